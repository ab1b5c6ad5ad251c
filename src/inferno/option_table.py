"""Define options as rows of tables: the facts of an option, and how its value is checked.

An option is a field of a dataclass; inferno/options.py and sampling_params.py have the tables.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from inferno.errors import InvalidRequest

if TYPE_CHECKING:
    import re


class Group(StrEnum):
    """The headings under which a command's help shows its options."""

    MODEL = "Model"
    SAMPLING = "Sampling"
    MEMORY = "Memory and batches"
    SPECULATION = "Speculation"
    SERVER = "Server"
    SECURITY = "Security"
    GENERAL = "Options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The facts of an option besides its name, type and default.

    absent          the words that help shows in place of a default, which the command works out.
    choices         all values that the option may have.
    low, high       the bounds of a number, both inclusive; the lower one not if is_low_excluded.
    pattern         the pattern that a text must match, or each of several texts; `expected` says it
                    in words.
    accepts_auto    whether the word `auto`, which stands for the default, may replace a number.
    flags           the spellings on the command line, if not --its-name. A flag --no-... turns a
                    switch off that is on by default.
    former_flags    earlier spellings, which work for one release, with a warning.
    former_values   earlier names of choices, and their present ones; these too work for one
                    release.
    is_python_only  whether no command has the option.
    """

    help: str
    group: Group
    absent: str | None = None
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_low_excluded: bool = False
    pattern: re.Pattern[str] | None = None
    expected: str = ""
    accepts_auto: bool = False
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    former_flags: tuple[str, ...] = ()
    former_values: tuple[tuple[str, str], ...] = ()
    is_python_only: bool = False


def option(default: Any = dataclasses.MISSING, **facts: Any) -> Any:
    """Return a dataclass field for an option with the given facts."""
    metadata = {"option": Option(**facts)}
    if isinstance(default, MappingProxyType):  # dataclasses take it for mutable
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option of a table, with the facts and the type of its field.

    hint            the type of the option's value, as the field annotates it.
    kind            the type of a value that is given, or of each of several values.
    """

    name: str
    hint: Any
    kind: Any
    default: Any
    is_optional: bool
    is_repeated: bool
    facts: Option

    @property
    def flag(self) -> str:
        """Return the option as the command line spells it."""
        return self.facts.flags[0] if self.facts.flags else "--" + self.name.replace("_", "-")


@cache
def table(kind: type) -> Mapping[str, OptionRow]:
    """Return the options of EngineOptions, ServerOptions or WorkerOptions, by name, in order."""
    hints = get_type_hints(kind)
    return {
        field.name: _row(field, hints[field.name])
        for field in dataclasses.fields(kind)
        if "option" in field.metadata
    }


def take_former_values(options: Any) -> None:
    """Replace former names of values by the present ones, with a warning."""
    for row in table(type(options)).values():  # type: ignore[arg-type]
        value = getattr(options, row.name)
        for was, now in row.facts.former_values:
            if value != was:
                continue
            told = renamed(f"{row.name}={value!r}", f"{row.name}={now!r}")
            warnings.warn(told, DeprecationWarning, stacklevel=4)
            object.__setattr__(options, row.name, now)


def renamed(was: str, now: str) -> str:
    """Return the text of the warning about a former name."""
    return f"{was} is called {now} now; the former name goes with the next release"


def check_options(options: Any, *, by_flag: bool) -> None:
    """Raise InvalidRequest for the first value that its option doesn't allow.

    by_flag         name the option as the command line does, and not as Python.
    """
    for row in table(type(options)).values():  # type: ignore[arg-type]
        value = getattr(options, row.name)
        if not _is_allowed(row, value):
            name = row.flag if by_flag else row.name
            raise InvalidRequest(f"{name} must be {_expected(row)}, not {value!r}", param=row.name)


def _row(field: dataclasses.Field[Any], hint: Any) -> OptionRow:
    facts: Option = field.metadata["option"]
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    several = [part for part in parts if get_origin(part) in (tuple, Sequence)]
    [kind] = [
        part
        for part in (get_args(several[0])[:1] if several else parts)
        if part is not type(None) and not (facts.accepts_auto and part is str)
    ]
    return OptionRow(
        name=field.name,
        hint=hint,
        kind=kind,
        default=field.default
        if field.default_factory is dataclasses.MISSING
        else field.default_factory(),
        is_optional=type(None) in parts,
        is_repeated=bool(several),
        facts=facts,
    )


def _is_allowed(row: OptionRow, value: Any) -> bool:
    facts = row.facts
    if value is None:
        return row.is_optional
    if row.is_repeated:
        return isinstance(value, tuple) and all(_is_one_allowed(row, each) for each in value)
    if facts.accepts_auto and not row.is_optional and value == "auto":
        return True
    return _is_one_allowed(row, value)


def _is_one_allowed(row: OptionRow, value: Any) -> bool:
    facts = row.facts
    if row.kind is bool:
        return isinstance(value, bool)
    if row.kind in (int, float):
        is_number = isinstance(value, int if row.kind is int else int | float)
        if not is_number or isinstance(value, bool):
            return False
        return (facts.low is None or facts.low <= value) and (
            facts.high is None or value <= facts.high
        )
    if facts.choices:
        return value in facts.choices
    if not isinstance(value, row.kind):
        return False
    return facts.pattern is None or facts.pattern.fullmatch(value) is not None


def _expected(row: OptionRow) -> str:
    """Return what an option may be, in words."""
    facts = row.facts
    if facts.expected:
        return facts.expected
    if facts.choices:
        return "one of " + ", ".join(facts.choices)
    if row.kind is bool:
        return "true or false"
    if row.kind in (int, float):
        kind = "an integer" if row.kind is int else "a number"
        return f"{'auto, or ' if facts.accepts_auto else ''}{kind} {_bounds(facts)}"
    return f"of type {row.kind.__name__}"


def _bounds(facts: Option) -> str:
    """Return the bounds of a number in words."""
    return f"from {_plain(facts.low)} to {_plain(facts.high)}"


def _plain(number: float | None) -> str:
    return f"{number:.15g}" if isinstance(number, float) else str(number)
