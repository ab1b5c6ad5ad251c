"""Define the shape of an answer: a JSON Schema, a regular expression, a choice, a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from inferno.errors import InvalidRequest
from inferno.untrusted_json import Malformed, parse_object

MAX_GRAMMAR_BYTES = 256 << 10
MAX_TEXTS = 1024  # to choose from

LIBRARY = "llguidance"

# JSON Schema's keywords that hold values, and no schemas; and those that hold schemas by names,
# which may be anything.
HOLD_VALUES = ("const", "enum", "default", "examples", "example")
HOLD_SCHEMAS_BY_NAME = (
    *("properties", "patternProperties", "dependentSchemas", "dependencies"),
    *("$defs", "definitions"),
)

# What says the shape; the other fields say more of it.
_SHAPES = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
_OF_JSON = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutput:
    """The shape that an answer must have, by exactly one of the first six fields.

    json            a JSON Schema, as a mapping or as text; it is kept as text.
    json_object     any JSON object.
    regex           a regular expression that the whole answer matches.
    choice          texts, one of which is the answer.
    grammar         a context-free grammar in Lark's notation, as llguidance reads it.
    structural_tag  free text with parts of a shape in it, as a mapping or as text: see
                    docs/structured.md; it is kept as text.
    disable_any_whitespace  JSON is written without any space that JSON doesn't need.
    disable_additional_properties   objects whose schema lists properties have no others, unless
                    the schema says so.
    whitespace_pattern  a regular expression of what may stand between the tokens of JSON.
    special_tokens  the model's, which a structural tag may name; the engine's front fills them in.

    Raises InvalidRequest where not exactly one is given, or what is given is no such thing. Whether
    a grammar can be honoured is known when a model compiles it.
    """

    json: str | Mapping[str, Any] | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] = ()
    grammar: str | None = None
    structural_tag: str | Mapping[str, Any] | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    special_tokens: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", _choices(self.choice))  # frozen: only here
        given = [name for name in _SHAPES if getattr(self, name) not in (None, False, ())]
        if len(given) != 1:
            raise _refuse(
                f"exactly one of {', '.join(_SHAPES)}", ", ".join(given) or "none of them"
            )
        [shape] = given
        if shape in ("json", "structural_tag"):
            text = _object_text(shape, getattr(self, shape))
            object.__setattr__(self, shape, text)
        elif shape == "json_object" and self.json_object is not True:
            raise _refuse("true or false as json_object", type(self.json_object).__name__)
        elif shape in ("regex", "grammar"):
            _check_text(shape, getattr(self, shape))
        self._check_details(shape)

    def _check_details(self, shape: str) -> None:
        for name in ("disable_any_whitespace", "disable_additional_properties"):
            if not isinstance(getattr(self, name), bool):
                raise _refuse(f"true or false as {name}", type(getattr(self, name)).__name__)
        if self.whitespace_pattern is not None:
            _check_text("whitespace_pattern", self.whitespace_pattern)
            if self.disable_any_whitespace:
                raise _refuse("whitespace_pattern or disable_any_whitespace", "both")
        for name in _OF_JSON:
            if getattr(self, name) and shape not in ("json", "json_object", "structural_tag"):
                raise _refuse(f"{name} beside a shape of JSON alone", shape)


def has_grammars() -> bool:
    """Return whether the library for answers with a shape is installed."""
    return find_spec(LIBRARY) is not None


class AnswerSchema:
    """A type of answers: the shape to ask for, and how a text becomes a value.

    schema      a class with `model_json_schema` and `model_validate_json`, as Pydantic's models
                are; a Pydantic TypeAdapter; or a JSON Schema as a mapping, whose values are plain.
    """

    def __init__(self, schema: object) -> None:
        self._read: Callable[[str], Any]
        for to_schema, read in (("model_json_schema", "model_validate_json"), *_ADAPTER):
            if callable(getattr(schema, to_schema, None)) and hasattr(schema, read):
                shape, self._read = getattr(schema, to_schema)(), getattr(schema, read)
                break
        else:
            if not isinstance(schema, Mapping):
                raise InvalidRequest(
                    "schema must be a Pydantic model, a TypeAdapter, or a JSON Schema as a "
                    f"mapping, not {type(schema).__name__}",
                    param="schema",
                )
            shape, self._read = schema, json.loads
        self.shape = StructuredOutput(json=shape)

    def read(self, text: str) -> Any:
        """Return the value of a whole answer; None where the type's validators refuse it."""
        try:
            return self._read(text)
        except ValueError:
            return None


_ADAPTER = (("json_schema", "validate_json"),)


def _object_text(name: str, value: object) -> str:
    """Return an object as JSON text, its keys in the order in which they were given."""
    if isinstance(value, Mapping):
        try:
            value = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as problem:
            raise _refuse(f"{_NAMES[name]} as {name}", f"what JSON can't say ({problem})") from None
    text = _check_text(name, value)
    try:
        parse_object(text.encode())
    except (Malformed, UnicodeEncodeError) as problem:
        raise _refuse(f"{_NAMES[name]} as {name}", f"a text that is none: {problem}") from None
    return text


_NAMES = {"json": "a JSON Schema", "structural_tag": "a structural tag"}


def _choices(choices: object) -> tuple[str, ...]:
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise _refuse("a list of texts as choice", type(choices).__name__)
    if len(choices) > MAX_TEXTS or not all(isinstance(each, str) and each for each in choices):
        raise _refuse(f"up to {MAX_TEXTS} texts as choice, none of them empty", "something else")
    if choices:
        _check_text("choice", "".join(choices))
    return tuple(choices)


def _check_text(name: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise _refuse(f"a text as {name}", type(text).__name__ if text else "an empty one")
    if len(text) > MAX_GRAMMAR_BYTES or len(text.encode(errors="replace")) > MAX_GRAMMAR_BYTES:
        raise _refuse(f"at most {MAX_GRAMMAR_BYTES} bytes as {name}", f"{len(text)} characters")
    return text


def _refuse(expected: str, given: str) -> InvalidRequest:
    return InvalidRequest(f"structured must have {expected}, not {given}", param="structured")
