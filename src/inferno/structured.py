"""The shape that an answer must have: a JSON Schema, a regular expression, a choice, a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno.errors import InvalidRequest
from inferno.untrusted_json import Malformed, parse_object

MAX_GRAMMAR_BYTES = 256 << 10
MAX_TEXTS = 1024  # to choose from

# What says the shape; the other fields say more of it.
_SHAPES = ("json", "json_object", "regex", "choice", "grammar")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutput:
    """The shape that an answer must have, by exactly one of the first five fields.

    json            a JSON Schema, as a mapping or as text; it is kept as text.
    json_object     any JSON object.
    regex           a regular expression that the whole answer matches.
    choice          texts, one of which is the answer.
    grammar         a context-free grammar in Lark's notation, as llguidance reads it.
    disable_any_whitespace  JSON is written without any space that JSON doesn't need.

    Raises InvalidRequest where not exactly one is given, or what is given is no such thing. Whether
    a grammar can be honoured is known when a model compiles it.
    """

    json: str | Mapping[str, Any] | None = None
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] = ()
    grammar: str | None = None
    disable_any_whitespace: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", _choices(self.choice))  # frozen: only here
        given = [name for name in _SHAPES if getattr(self, name) not in (None, False, ())]
        if len(given) != 1:
            raise _refuse(
                f"exactly one of {', '.join(_SHAPES)}", ", ".join(given) or "none of them"
            )
        [shape] = given
        if shape == "json":
            object.__setattr__(self, "json", _schema_text(self.json))
        elif shape == "json_object" and self.json_object is not True:
            raise _refuse("true or false as json_object", type(self.json_object).__name__)
        elif shape in ("regex", "grammar"):
            _check_text(shape, getattr(self, shape))
        if not isinstance(self.disable_any_whitespace, bool):
            raise _refuse("true or false as disable_any_whitespace", "something else")
        if self.disable_any_whitespace and shape not in ("json", "json_object"):
            raise _refuse("disable_any_whitespace beside json or json_object alone", shape)


class AnswerSchema:
    """A type of answers: the shape that it asks for, and how a text becomes a value of it.

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
        """Return the value of a whole answer; None where the type's own validators refuse it."""
        try:
            return self._read(text)
        except ValueError:
            return None


_ADAPTER = (("json_schema", "validate_json"),)


def _schema_text(schema: object) -> str:
    """Return a JSON Schema as text, its keys in the order in which they were given."""
    if isinstance(schema, Mapping):
        try:
            schema = json.dumps(schema, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as problem:
            raise _refuse("a JSON Schema as json", f"what JSON can't say ({problem})") from None
    text = _check_text("json", schema)
    try:
        parse_object(text.encode())
    except (Malformed, UnicodeEncodeError) as problem:
        raise _refuse("a JSON Schema as json", f"a text that is none: {problem}") from None
    return text


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
