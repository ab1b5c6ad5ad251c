"""Numbers on the command line: a refusal says what was given and what was expected."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

Command = TypeVar("Command", bound=Callable[..., Any])
Number = int | float

_KINDS: dict[Any, str] = {int: "an integer", float: "a number"}


def reads_numbers(command: Command) -> Command:
    """Let all numbers that a command takes be read here: typer's words leave out what was given.

    An option with `min` and `max` is held to them. The bounds of the others stand where their
    values are used, and are refused there.
    """
    hints = get_type_hints(command, include_extras=True)
    command.__annotations__ = {name: _with_reader(hint) for name, hint in hints.items()}
    return command


def _with_reader(hint: Any) -> Any:
    """The annotation of a parameter, where it is a number with our own way of reading it."""
    if get_origin(hint) is not Annotated:
        return hint
    annotation, info = get_args(hint)[:2]
    kinds = [kind for kind in (annotation, *get_args(annotation)) if kind in _KINDS]
    if not kinds or not isinstance(info, ParameterInfo) or info.parser is not None:
        return hint
    info = copy(info)
    info.parser = _reader(kinds[0], info.min, info.max)
    info.metavar = info.metavar or f"<{kinds[0].__name__}>"
    return Annotated[annotation, info]


def _reader(
    kind: type[Number], low: Number | None, high: Number | None
) -> Callable[[str | Number], Number]:
    expected = _KINDS[kind]
    if low is not None and high is not None:
        expected += f" from {kind(low)} to {kind(high)}"

    def read(given: str | Number) -> Number:
        try:
            number = kind(given)
        except ValueError:
            raise _refuse(given, expected) from None
        is_inside = (low is None or low <= number) and (high is None or number <= high)
        if not is_inside:
            raise _refuse(given, expected)
        return number

    return read


def _refuse(given: str | Number, expected: str) -> typer.BadParameter:
    return typer.BadParameter(f"it must be {expected}, not {reprlib.repr(given)}")
