"""Numbers on the command line: a refusal says what was given and what was expected."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer
from typer.models import ParameterInfo

Command = TypeVar("Command", bound=Callable[..., Any])
Number = int | float

_KINDS: dict[Any, str] = {int: "an integer", float: "a number"}
_NOT_AUTO = object()


def reads_numbers(command: Command) -> Command:
    """Let all numbers that a command takes be read here: typer's words leave out what was given.

    An option with `min` and `max` is held to them. The bounds of the others stand where their
    values are used, and are refused there.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [
        each.replace(annotation=_with_reader(each.annotation))
        for each in signature.parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def read_number(
    kind: type[Number], low: Number | None, high: Number | None, *, or_auto: Any = _NOT_AUTO
) -> Callable[[str | Number], Any]:
    """Return a parser of numbers within bounds; its error says what was given and expected.

    or_auto     the value of the word `auto`, if the option takes it.
    """
    expected = "" if or_auto is _NOT_AUTO else "auto, or "
    expected += _KINDS[kind]
    if low is not None and high is not None:
        expected += f" from {_plain(kind(low))} to {_plain(kind(high))}"

    def read(given: str | Number) -> Any:
        if given == "auto" and or_auto is not _NOT_AUTO:
            return or_auto
        try:
            number = kind(given)
        except ValueError:
            raise _refuse(given, expected) from None
        is_inside = (low is None or low <= number) and (high is None or number <= high)
        if not is_inside:
            raise _refuse(given, expected)
        return number

    return read


def _with_reader(hint: Any) -> Any:
    """Return the annotation of a parameter, where it is a number with our own way of reading it."""
    if get_origin(hint) is not Annotated:
        return hint
    annotation, info = get_args(hint)[:2]
    kinds = [kind for kind in (annotation, *get_args(annotation)) if kind in _KINDS]
    if not kinds or not isinstance(info, ParameterInfo) or info.parser is not None:
        return hint
    info = copy(info)
    info.parser = read_number(kinds[0], info.min, info.max)
    info.metavar = info.metavar or f"<{kinds[0].__name__}>"
    return Annotated[annotation, info]


def _plain(number: Number) -> str:
    return f"{number:.15g}" if isinstance(number, float) else str(number)


def _refuse(given: str | Number, expected: str) -> typer.BadParameter:
    return typer.BadParameter(f"it must be {expected}, not {reprlib.repr(given)}")
