"""Make commands' options from the tables of `inferno.options`, and collect their values."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Container, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

from inferno.cli.errors import FLAGS
from inferno.cli.numbers import read_number
from inferno.errors import InvalidRequest
from inferno.option_table import Group, Option, OptionRow, renamed, table

Command = TypeVar("Command", bound=Callable[..., Any])
_KEYWORDS = inspect.Parameter.KEYWORD_ONLY
_LARGEST = 2**63 - 1
_logger = logging.getLogger("inferno")


def takes_options(
    kind: type, *, only: Container[str] | None = None, without: Container[str] = ()
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a table.

    The command takes them as `**given`, for `options_of`. Beside `--device` goes `--cuda`.

    only, without   names of options; by default the command gets all that commands may have.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        given = list(signature.parameters.values())
        assert given[-1].kind is inspect.Parameter.VAR_KEYWORD, "for what the options say"
        added = [
            parameter
            for row in table(kind).values()
            if not row.facts.is_python_only
            and row.name not in without
            and (only is None or row.name in only)
            for parameter in _parameters(row)
        ]
        set_parameters(command, [*given[:-1], *added, given[-1]])
        return command

    return decorate


def set_parameters(command: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    """Give a command's function a signature with the given parameters, which typer reads."""
    signature = inspect.Signature(
        sorted(parameters, key=lambda each: each.kind), __validate_parameters__=False
    )
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}


def options_of(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a table's options from a command's arguments, for the table's class."""
    found = {}
    for row in table(kind).values():
        name = _name(row)
        if name not in given:
            continue
        value = given[name]
        if row.is_repeated:
            if not value:
                continue
            value = tuple(value)
        elif _is_negated(row):
            value = not value
        elif row.facts.choices and isinstance(value, str):
            value = _present_value(row, str(value))
        elif value is None and not row.is_optional:
            continue
        found[row.name] = value
        for flag in row.facts.former_flags:
            if given.get(_parameter(flag)):
                _logger.warning(renamed(flag, row.flag))
                found[row.name] = not row.default
    if given.get("cuda") and "device" in table(kind):
        found["device"] = _with_cuda(found.get("device"))
    return found


class GroupedCommand(TyperCommand):
    """A command whose help shows its options under the headings of their groups."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; messages propose its own options alone."""
        before = FLAGS.set(frozenset(flag for one in self.params for flag in one.opts))
        try:
            return super().invoke(ctx)
        finally:
            FLAGS.reset(before)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments and one for each group of options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            heading = "Arguments"
            if isinstance(parameter, TyperOption):
                heading = parameter.rich_help_panel or Group.GENERAL
            sections.setdefault(heading, []).append(record)
        for heading in ("Arguments", Group.GENERAL, *Group):
            if rows := sections.pop(heading, None):
                with formatter.section(heading):
                    formatter.write_dl(rows)
        assert not sections, f"headings that are no groups: {list(sections)}"


def _parameters(row: OptionRow) -> Iterator[inspect.Parameter]:
    yield inspect.Parameter(
        _name(row),
        _KEYWORDS,
        default=_default(row),
        annotation=Annotated[_annotation(row), _info(row)],
    )
    for flag in row.facts.former_flags:
        assert row.kind is bool, "others would have to be read"
        hidden = typer.Option(flag, hidden=True)
        yield inspect.Parameter(
            _parameter(flag), _KEYWORDS, default=False, annotation=Annotated[bool, hidden]
        )
    if row.name == "device" and row.default == "cpu":
        info = typer.Option("--cuda", help="Short for --device cuda.", rich_help_panel=Group.MODEL)
        yield inspect.Parameter("cuda", _KEYWORDS, default=False, annotation=Annotated[bool, info])


def _info(row: OptionRow) -> Any:
    facts = row.facts
    return typer.Option(
        *(facts.flags or (row.flag,)),
        help=facts.help + (" May be repeated." if row.is_repeated else ""),
        show_default=facts.absent if facts.absent is not None else True,
        rich_help_panel=facts.group,
        **_reading(row),
    )


def _reading(row: OptionRow) -> dict[str, Any]:
    """Return how typer is to read a number, or the word auto."""
    facts = row.facts
    if facts.former_values:
        return {"metavar": f"[{'|'.join(facts.choices)}]"}
    if row.kind not in (int, float):
        return {}
    auto = {"or_auto": row.default} if facts.accepts_auto else {}
    return {
        "parser": read_number(row.kind, None, None, **auto),
        "metavar": facts.metavar or f"<{row.kind.__name__}>",
        # For the help: the options' class holds them, and says more in a line than typer.
        "min": facts.low if _shows_bounds(facts) else None,
        "max": facts.high if _shows_bounds(facts) else None,
    }


def _shows_bounds(facts: Option) -> bool:
    """Return whether help can write the bounds, and they are not those of a machine's word."""
    return not facts.is_low_excluded and (facts.high is None or facts.high < _LARGEST)


def _annotation(row: OptionRow) -> Any:
    if row.is_repeated:
        return list[row.kind] | None  # type: ignore[name-defined]
    kind = _choices(row) if row.facts.choices else row.kind
    return kind | None if row.facts.absent is not None else kind


@cache
def _choices(row: OptionRow) -> type[StrEnum]:
    known = [*row.facts.choices, *dict(row.facts.former_values)]
    return StrEnum(row.name, known)  # type: ignore[return-value]


def _present_value(row: OptionRow, value: str) -> str:
    """Return what a choice is called now, with a warning where it was given its former name."""
    now = dict(row.facts.former_values).get(value, value)
    if now != value:
        _logger.warning(renamed(f"{row.flag} {value}", f"{row.flag} {now}"))
    return now


def _parameter(flag: str) -> str:
    """Return the name of a command's parameter for a flag."""
    return flag.removeprefix("--").replace("-", "_")


def _default(row: OptionRow) -> Any:
    if row.facts.accepts_auto:
        return "auto"
    if row.is_repeated or row.facts.absent is not None:
        return None
    if _is_negated(row):
        return False
    if row.facts.choices and isinstance(row.default, str):
        return _choices(row)(row.default)
    is_needed = not isinstance(row.default, int | float | str | Path | None)
    return inspect.Parameter.empty if is_needed else row.default


def _name(row: OptionRow) -> str:
    """Return the name of a command's parameter: the flag's, where that says the opposite."""
    if _is_negated(row) or row.is_repeated:
        return _parameter(row.flag)
    return row.name


def _is_negated(row: OptionRow) -> bool:
    return row.flag.startswith("--no-")


def _with_cuda(device: str | None) -> str:
    """Return the device that --device and --cuda ask for together."""
    if device not in (None, "cuda"):
        raise InvalidRequest(f"--cuda and --device {device} contradict each other", param="device")
    return "cuda"
