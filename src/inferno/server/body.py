"""A request's body becomes typed fields, or a refusal that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from inferno.server.edge import Refusal
from inferno.server.refused import Harmless, take_harmless
from inferno.untrusted_json import Malformed, TooWide, parse_object, quoted

Fields = TypeVar("Fields", bound=msgspec.Struct)

_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Only to name the field: numbers that JSON doesn't have, and those that nobody would read.
_BAD_NUMBER = re.compile(rb'"(\w{1,64})"\s*:\s*[\[{]?\s*-?(?:NaN|Infinity|[0-9]{1000})')
_HEADER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_IGNORED = 32


@dataclass(frozen=True, slots=True)
class Body(Generic[Fields]):
    """What a request says, and the names of what it says in vain."""

    fields: Fields
    ignored: tuple[str, ...]


def read_body(
    raw: bytes, kind: type[Fields], refused: Harmless, *, is_lenient: bool
) -> Body[Fields]:
    """The fields of a JSON object; Refusal (400, or 413) names what is wrong.

    A null counts as absent. Unknown fields are refused, or with `is_lenient` ignored.
    """
    try:
        given = parse_object(raw)
    except Malformed as problem:
        bad = _BAD_NUMBER.search(raw)
        param = bad[1].decode() if bad else None
        message = f"The body can't be read: {problem}."
        if isinstance(problem, TooWide):
            raise Refusal(413, "body_too_large", message) from None
        raise Refusal(400, "invalid_json", message, param=param) from None
    if _ESCAPED_SURROGATE.search(raw):
        _check_surrogates(given)
    fields = {name: value for name, value in given.items() if value is not None}
    fields = take_harmless(fields, refused)
    known = kind.__struct_fields__
    unknown = tuple(name for name in fields if name not in known)
    if unknown and not is_lenient:
        raise _unknown(unknown)
    return Body(_convert(fields, kind), unknown)


def ignored_header(names: tuple[str, ...]) -> dict[str, str]:
    """The header that tells a client what had no effect, if anything had none."""
    shown = [name for name in names if _HEADER_NAME.fullmatch(name)][:_MAX_IGNORED]
    return {"x-inferno-ignored": ", ".join(shown)} if shown else {}


def _convert(fields: Mapping[str, Any], kind: type[Fields]) -> Fields:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as problem:
        words = str(problem)
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", words):
        raise _invalid(f"'{missing[1]}' is missing.", missing[1])
    place = _PLACE.search(words)
    path = place[1] if place else ""
    name = re.split(r"[.\[]", path)[0]
    expected = words[: place.start()] if place else words
    expected = expected[:1].lower() + expected[1:].replace("`", "")
    raise _invalid(f"'{path}': {expected}{_shown(fields.get(name))}.", name or None)


def _shown(value: object) -> str:
    match value:
        case bool():
            return f"; it is {str(value).lower()}"
        case int() if value.bit_length() <= 128:
            return f"; it is {value}"
        case float():
            return f"; it is {value}"
        case str():
            return f"; it is {quoted(value, 40)}"
    return ""


def _unknown(names: tuple[str, ...]) -> Refusal:
    shown = ", ".join(quoted(name, 40) for name in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    message = (
        f"Unknown field{'s' * (len(names) > 1)} {shown}{more}: correct the name or leave it out. "
        "A server started with --lenient ignores unknown fields."
    )
    return Refusal(400, "unknown_parameter", message, param=names[0][:100])


def _check_surrogates(fields: Mapping[str, Any]) -> None:
    """A lone surrogate is no character: no UTF-8, log line or token can carry it."""
    for name, value in fields.items():
        if _has_surrogate((name, value)):
            shown = quoted(name, 40)
            message = f"{shown} holds half of a surrogate pair: send whole characters."
            raise _invalid(message, None if _SURROGATE.search(name) else name[:100])


def _has_surrogate(value: object) -> bool:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                if _SURROGATE.search(text):
                    return True
            case dict(items):
                waiting += items.keys()
                waiting += items.values()
            case list(items) | tuple(items):
                waiting += items
    return False


def _invalid(message: str, param: str | None) -> Refusal:
    return Refusal(400, "invalid_value", message, param=param)
