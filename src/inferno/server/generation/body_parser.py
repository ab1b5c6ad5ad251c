"""Parse a request's body into typed fields, or raise an error that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from inferno.server.docs.field_table import in_words, without_null
from inferno.server.http import ApiError
from inferno.server.openai.request_types import (
    ChatRequest,
    GenerateFields,
    RequestFields,
    TokenizeRequest,
)
from inferno.surrogates import SURROGATE
from inferno.text.conversation import REASONING_FIELDS
from inferno.text.model_text import ModelText
from inferno.untrusted_json import (
    BadNumber,
    Malformed,
    TooWide,
    field_of_bad_number,
    parse_object,
    quoted,
)

Fields = TypeVar("Fields", bound=RequestFields)

_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,128}")
_MAX_IGNORED = 32
_MISSING = "Object missing required field `"  # and the name, as msgspec says it

_OWN_TIERS = ("auto", "default")
_OWN_VERBOSITY = "medium"
_MOST_KEYS = 100  # of messages: more names than the header has
_ALWAYS_READ, _READ_OF_PARTS = frozenset({"role", "content"}), frozenset({"type", "text"})
# A message's reasoning is given to the template under all of its names.
_REASONING = frozenset(REASONING_FIELDS)


@dataclass(frozen=True, slots=True)
class Body(Generic[Fields]):
    """The fields of a parsed request body, and the names of unknown fields that were ignored."""

    fields: Fields
    ignored: tuple[str, ...]


def read_body(raw: bytes, kind: type[Fields], *, is_lenient: bool) -> Body[Fields]:
    """Return the fields of a JSON object; raise ApiError (400 or 413), which names what is wrong.

    A null counts as absent. Unknown fields are refused, or with `is_lenient` ignored.
    """
    try:
        given = parse_object(raw)
    except Malformed as problem:
        param = field_of_bad_number(raw) if isinstance(problem, BadNumber) else None
        message = f"The body can't be read: {problem}."
        if isinstance(problem, TooWide):
            raise ApiError(413, "body_too_large", message) from None
        param = None if param is None or SURROGATE.search(param) else param[:100]
        raise ApiError(400, "invalid_json", message, param=param) from None
    if _ESCAPED_SURROGATE.search(raw):
        _check_surrogates(given)
    fields = {name: value for name, value in given.items() if value is not None}
    fields = without_unsupported(fields, kind)
    known = kind.__struct_fields__
    unknown = tuple(name for name in fields if name not in known)
    if unknown and not is_lenient:
        raise _unknown(unknown)
    return Body(_convert(fields, kind), unknown)


def ignored_header(names: tuple[str, ...]) -> dict[str, str]:
    """Return the header that names fields without effect; empty if there are no such fields."""
    shown = [name for name in names if _HEADER_NAME.fullmatch(name)][:_MAX_IGNORED]
    return {"x-inferno-ignored": ", ".join(shown)} if shown else {}


def ignored_hints(fields: GenerateFields) -> tuple[str, ...]:
    """Return the names of fields that were given but have no effect, such as service_tier."""
    is_ignored = {
        "service_tier": fields.service_tier not in _OWN_TIERS,
        "store": fields.store,
        "verbosity": fields.verbosity not in (None, _OWN_VERBOSITY),
        "session_id": fields.session_id is not None,
    }
    return tuple(name for name, is_so in is_ignored.items() if is_so)


def ignored_chat_fields(fields: ChatRequest | TokenizeRequest, text: ModelText) -> tuple[str, ...]:
    """Return the names of fields, options and message keys that the template ignores."""
    template, names = fields.chat_template, []
    if fields.documents is not None and not text.takes_template_arg("documents", template):
        names.append("documents")
    for name in fields.chat_template_kwargs or {}:
        if not text.takes_template_arg(name, template):
            names.append(f"chat_template_kwargs.{name}")
    given = {
        key
        for message in fields.messages or ()
        for key, value in message.items()
        if value is not None
    }
    for key in sorted(given - _ALWAYS_READ)[:_MOST_KEYS]:
        known = _REASONING if key in _REASONING else {key}
        if not any(text.reads_message_key(each, template) for each in known):
            names.append(f"messages[].{key}")
    of_parts = {
        key
        for message in fields.messages or ()
        if isinstance(parts := message.get("content"), list)
        for part in parts
        if isinstance(part, dict)
        for key, value in part.items()
        if value is not None
    }
    names += [
        f"messages[].content[].{key}" for key in sorted(of_parts - _READ_OF_PARTS)[:_MOST_KEYS]
    ]
    return tuple(names)


def without_unsupported(fields: dict[str, Any], kind: type[RequestFields]) -> dict[str, Any]:
    """Return the supported fields; raise ApiError for an unsupported one with an effect."""
    unsupported = kind.unsupported
    for name in unsupported.keys() & fields.keys():
        value = fields[name]
        if not any(_is_same(value, each) for each in unsupported[name]):
            allowed = " or ".join(["null", *map(_as_json, unsupported[name])])
            advice = f" {kind.advice[name]}" if name in kind.advice else ""
            raise ApiError(
                400,
                "unsupported_parameter",
                f"'{name}' is not supported here: leave it out, or give {allowed}.{advice}",
                param=name,
            )
    return {name: value for name, value in fields.items() if name not in unsupported}


def _is_same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _as_json(value: Any) -> str:
    match value:
        case True | False:
            return str(value).lower()
        case {"type": kind}:
            return f'{{"type": "{kind}"}}'
        case [item]:
            return f'["{item}"]'
        case str():
            return f'"{value}"'
    return str(value)


def _convert(fields: Mapping[str, Any], kind: type[Fields]) -> Fields:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as problem:
        words = str(problem)
    expected, _, place = words.partition(" - at `$")
    path = place.removeprefix(".").removesuffix("`")
    name = path.partition("[")[0].partition(".")[0]
    if words.startswith(_MISSING):
        missing = expected.removeprefix(_MISSING).rstrip("`")
        raise _invalid(f"'{f'{path}.' if path else ''}{missing}' is missing.", name or missing)
    if expected.startswith("Invalid enum value"):
        expected = f"Expected {_choices(kind, path)}"
    expected = expected[:1].lower() + expected[1:].replace("`", "")
    raise _invalid(f"'{path}': {expected}{_shown(fields.get(name))}.", name or None)


def _choices(kind: type[Fields], path: str) -> str:
    """Return the values that a field takes, which may be part of another: a.b, a[...].b."""
    _, components = msgspec.json.schema_components([kind])

    def parts(schema: Mapping[str, Any], name: str) -> Any:
        """Return the properties or the items of the one choice that has them."""
        for choice in schema.get("anyOf", [schema]):
            found = components[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
            if name in found:
                return found[name]
        raise KeyError(name)

    schema: Mapping[str, Any] = components[kind.__name__]
    for step in path.split("."):
        name, *places = step.split("[")
        schema = without_null(parts(schema, "properties")[name])
        for _ in places:
            schema = without_null(parts(schema, "items"))
    return in_words(schema)


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


def _unknown(names: tuple[str, ...]) -> ApiError:
    shown = ", ".join(quoted(name, 40) for name in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    message = (
        f"Unknown field{'s' * (len(names) > 1)} {shown}{more}: correct the name or leave it out. "
        "A server started with --lenient ignores unknown fields."
    )
    return ApiError(400, "unknown_parameter", message, param=names[0][:100])


def _check_surrogates(fields: Mapping[str, Any]) -> None:
    """Raise ApiError for a lone surrogate: no UTF-8, log line or token can carry it."""
    for name, value in fields.items():
        if _has_surrogate((name, value)):
            shown = quoted(name, 40)
            message = f"{shown} holds half of a surrogate pair: send whole characters."
            raise _invalid(message, None if SURROGATE.search(name) else name[:100])


def _has_surrogate(value: object) -> bool:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                if SURROGATE.search(text):
                    return True
            case dict(items):
                waiting += items.keys()
                waiting += items.values()
            case list(items) | tuple(items):
                waiting += items
    return False


def _invalid(message: str, param: str | None) -> ApiError:
    return ApiError(400, "invalid_value", message, param=param)
