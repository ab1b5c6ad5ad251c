"""Structural tags: free text with parts of a shape in it, such as calls of tools.

Two spellings are read: `structures` with `triggers`, vLLM's first; and `format`, a tree of
`const_string`, `json_schema`, `regex`, `any_text`, `sequence`, `or`, `tag`, `triggered_tags` and
`tags_with_separator`, as XGrammar's documentation describes it (xgrammar.mlc.ai, structural tag).
Where one of their texts is a special token's, that token is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferno.grammar.regex import ANY, ANY_TEXT, Regex, alt, both, literal, repeat, seq, without
from inferno.grammar.rules import (
    START,
    Alternative,
    Grammar,
    Mark,
    Reference,
    Repeated,
    Symbol,
    Terminal,
)
from inferno.grammar.syntax import parse_pattern, parse_regex

_MOST_TAGS = 256
_MOST_DEPTH = 16

# Returns the grammar of a JSON Schema.
CompileSchema = Callable[[Mapping[str, Any] | bool], Grammar]


class UnsupportedTag(ValueError):
    """Raised for a structural tag that can't be honoured; the text says where and why."""


def compile_structural_tag(
    tag: Mapping[str, Any], special_tokens: Mapping[str, int], compile_schema: CompileSchema
) -> Grammar:
    """Return the grammar of a structural tag.

    special_tokens  the model's, by their texts.

    Raises UnsupportedTag, and what `compile_schema` raises.
    """
    builder = _Builder(special_tokens, compile_schema)
    if "format" in tag:
        _check_keys(tag, "#", {"type", "format"})
        start = builder.format(tag["format"], "#/format", 0)
    else:
        _check_keys(tag, "#", {"type", "structures", "triggers"})
        start = builder.triggered(
            _texts(tag, "triggers", "#"),
            [
                _as_tag(each, f"#/structures/{i}")
                for i, each in enumerate(_list(tag, "structures", "#"))
            ],
            "#",
            least=0,
            most=None,
            depth=0,
        )
    builder.rules[START] = (start,)
    return Grammar(builder.rules)


class _Builder:
    """Gathers the rules of one grammar."""

    def __init__(self, special_tokens: Mapping[str, int], compile_schema: CompileSchema) -> None:
        self.rules: dict[str, tuple[Alternative, ...]] = {}
        self._special_tokens = special_tokens
        self._compile_schema = compile_schema
        self._num_grammars = 0

    def format(self, node: object, where: str, depth: int) -> Alternative:
        """Return the symbols of a node of `format`."""
        if not isinstance(node, Mapping):
            raise UnsupportedTag(f"{where} must be an object with a `type`")
        if depth > _MOST_DEPTH:
            raise UnsupportedTag(f"{where} is nested deeper than {_MOST_DEPTH} levels")
        match node.get("type"):
            case "const_string":
                _check_keys(node, where, {"type", "value"})
                return self.text(_text(node, "value", where))
            case "json_schema":
                _check_keys(node, where, {"type", "json_schema", "is_strict"})
                is_strict = _flag(node, "is_strict", where, absent=True)
                return self.schema(node.get("json_schema"), where, is_strict=is_strict)
            case "parameters":
                return self._parameters(node, where)
            case "regex":
                _check_keys(node, where, {"type", "pattern"})
                return (Terminal(parse_regex(_text(node, "pattern", where))),)
            case "any_text":
                _check_keys(node, where, {"type"})
                return (Repeated(Terminal(repeat(ANY, 1, None)), 0, 1),)
            case "sequence":
                _check_keys(node, where, {"type", "elements"})
                parts: list[Symbol] = []
                for i, each in enumerate(_list(node, "elements", where)):
                    parts += self.format(each, f"{where}/elements/{i}", depth + 1)
                return tuple(parts)
            case "or":
                _check_keys(node, where, {"type", "elements"})
                options = [
                    self.format(each, f"{where}/elements/{i}", depth + 1)
                    for i, each in enumerate(_list(node, "elements", where))
                ]
                return (self._rule(options),)
            case "tag":
                return self.tag(node, where, depth)
            case "triggered_tags":
                return self._triggered_tags(node, where, depth)
            case "tags_with_separator":
                return self._tags_with_separator(node, where, depth)
        raise UnsupportedTag(
            f"{where}/type must be const_string, json_schema, regex, any_text, sequence, or, tag, "
            f"triggered_tags or tags_with_separator, not {node.get('type')!r:.60}"
        )

    def tag(self, node: Mapping[str, Any], where: str, depth: int) -> Alternative:
        """Return the symbols of a tag: its begin, its content, its end."""
        _check_keys(node, where, {"type", "begin", "content", "end"})
        content = self.format(node.get("content"), f"{where}/content", depth + 1)
        return (
            *self.text(_text(node, "begin", where)),
            *content,
            *self.text(_text(node, "end", where)),
        )

    def triggered(
        self,
        triggers: Sequence[str],
        tags: Sequence[Mapping[str, Any]],
        where: str,
        *,
        least: int,
        most: int | None,
        depth: int,
    ) -> Alternative:
        """Return the symbols of free text in which each trigger begins one of the tags."""
        marks = [each for each in triggers if each in self._special_tokens]
        texts = [each for each in triggers if each not in self._special_tokens]
        for one in texts:
            if any(one in other for other in texts if other is not one):
                raise UnsupportedTag(f"{where}/triggers: one must not be part of another")
        found = alt(*map(literal, texts)) if texts else None
        free: Regex = ANY_TEXT
        if found is not None:
            free = without(seq(ANY_TEXT, found, ANY_TEXT))
        some_free = Repeated(Terminal(both(free, repeat(ANY, 1, None))), 0, 1)
        options: list[Alternative] = []
        for trigger in triggers:
            begun = [
                (i, tag)
                for i, tag in enumerate(tags)
                if _text(tag, "begin", where).startswith(trigger)
            ]
            if not begun:
                raise UnsupportedTag(f"{where}/triggers: {trigger!r:.60} begins no tag")
            ends: list[Alternative] = []
            for i, tag in begun:
                rest = {**tag, "begin": tag["begin"].removeprefix(trigger)}
                ends.append(self.tag(rest, f"{where}/tags/{i}", depth + 1))
            following = self._rule(ends)
            if trigger in marks:
                options.append((some_free, Mark(self._special_tokens[trigger]), following))
            else:
                assert found is not None
                up_to = both(
                    seq(ANY_TEXT, literal(trigger)),
                    without(seq(ANY_TEXT, found, ANY, ANY_TEXT)),
                )
                options.append((Terminal(up_to), following))
        for i, tag in enumerate(tags):
            if not any(_text(tag, "begin", where).startswith(each) for each in triggers):
                raise UnsupportedTag(f"{where}/tags/{i} begins with none of the triggers")
        part = self._rule(options)
        return (Repeated(part, least, most), some_free)

    def text(self, text: str) -> Alternative:
        """Return the symbols of a text, its special tokens as marks."""
        symbols: list[Symbol] = []
        while text:
            places = {each: text.find(each) for each in self._special_tokens if each}
            found = [each for each, place in places.items() if place >= 0]
            # Of those that come first, the longest.
            first = min(found, key=lambda each: (places[each], -len(each)), default="")
            begin = places.get(first, len(text))
            if begin:
                symbols.append(Terminal(literal(text[:begin])))
            if first:
                symbols.append(Mark(self._special_tokens[first]))
            text = text[begin + len(first) :]
        return tuple(symbols)

    def schema(self, schema: object, where: str, *, is_strict: bool) -> Alternative:
        """Return the symbols of a value by a JSON Schema.

        is_strict   a schema that can't be honoured is refused; else it asks for any object.
        """
        if not isinstance(schema, Mapping | bool):
            raise UnsupportedTag(f"{where} needs a JSON Schema")
        self._num_grammars += 1
        prefix = f"schema_{self._num_grammars}_"
        try:
            grammar = self._compile_schema(schema)
        except ValueError:
            if is_strict:
                raise
            grammar = self._compile_schema({"type": "object"})
        for name, alternatives in grammar.rules.items():
            self.rules[prefix + name] = tuple(
                tuple(_renamed(each, prefix) for each in alternative)
                for alternative in alternatives
            )
        return (Reference(prefix + START),)

    def _parameters(self, node: Mapping[str, Any], where: str) -> Alternative:
        """Return the symbols of arguments one by one, each between texts of its own.

        The values of those in `raw` are the texts themselves, everything else is JSON.
        """
        texts = {name: _text(node, name, where) for name in ("before_name", "after_name", "end")}
        _check_keys(node, where, {"type", "json_schema", "is_strict", "raw", *texts})
        raw = node.get("raw", ())
        is_strict = _flag(node, "is_strict", where, absent=True)
        schema = node.get("json_schema")
        properties = schema.get("properties", {}) if isinstance(schema, Mapping) else None
        if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
            raise UnsupportedTag(f"{where} needs the JSON Schema of an object")
        required = schema.get("required", ())
        definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        symbols: list[Symbol] = []
        for name, of_value in properties.items():
            begin = self.text(texts["before_name"] + name + texts["after_name"])
            place = f"{where}/json_schema/properties/{name}"
            if name in raw and isinstance(of_value, Mapping):
                value = self._raw_text(of_value, place, texts["end"], is_strict=is_strict)
            else:
                inner = {**of_value, **definitions} if isinstance(of_value, Mapping) else of_value
                value = (
                    *self.schema(inner, place, is_strict=is_strict),
                    *self.text(texts["end"]),
                )
            one = self._rule([(*begin, *value)])
            symbols.append(one if name in required else Repeated(one, 0, 1))
        return tuple(symbols)

    def _raw_text(
        self, schema: Mapping[str, Any], where: str, end: str, *, is_strict: bool
    ) -> Alternative:
        """Return the symbols of a text as it stands, up to the first `end`, and of that."""
        given = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
            return (Terminal(seq(alt(*map(literal, given)), literal(end))),)
        if is_strict and (unkept := sorted({"format", "enum", "const"} & schema.keys())):
            raise UnsupportedTag(f"{where}/{unkept[0]} can't be kept to where values aren't JSON")
        text = repeat(ANY, schema.get("minLength", 0), schema.get("maxLength"))
        if "pattern" in schema:
            text = both(text, parse_pattern(_text(schema, "pattern", where)))
        first_end = without(seq(ANY_TEXT, literal(end), ANY, ANY_TEXT))
        return (Terminal(both(seq(text, literal(end)), first_end)),)

    def _triggered_tags(self, node: Mapping[str, Any], where: str, depth: int) -> Alternative:
        _check_keys(node, where, {"type", "triggers", "tags", "at_least_one", "stop_after_first"})
        least, most = _bounds(node, where)
        tags = [_checked_tag(each, where) for each in _list(node, "tags", where)]
        symbols = self.triggered(
            _texts(node, "triggers", where), tags, where, least=least, most=most, depth=depth
        )
        if most is None:
            return symbols
        once, some_free = symbols
        assert isinstance(once, Repeated)
        return (once.symbol,) if least else (self._rule([(once.symbol,), (some_free,)]),)

    def _tags_with_separator(self, node: Mapping[str, Any], where: str, depth: int) -> Alternative:
        _check_keys(node, where, {"type", "tags", "separator", "at_least_one", "stop_after_first"})
        least, most = _bounds(node, where)
        tags = [
            self.tag(_checked_tag(each, where), f"{where}/tags/{i}", depth + 1)
            for i, each in enumerate(_list(node, "tags", where))
        ]
        one = self._rule(tags)
        separated = self._rule([(*self.text(_text(node, "separator", where)), one)])
        several: Alternative = (one,)
        if most is None:
            several = (one, Repeated(separated, 0, None))
        return several if least else (Repeated(self._rule([several]), 0, 1),)

    def _rule(self, alternatives: Sequence[Alternative]) -> Reference:
        name = f"part_{len(self.rules) + 1}"
        self.rules[name] = tuple(alternatives)
        return Reference(name)


def _renamed(symbol: Symbol, prefix: str) -> Symbol:
    match symbol:
        case Reference(name):
            return Reference(prefix + name)
        case Repeated(Reference(name), least, most):
            return Repeated(Reference(prefix + name), least, most)
    return symbol


def _as_tag(structure: object, where: str) -> Mapping[str, Any]:
    """Return a structure of the first spelling as a tag of the second."""
    if not isinstance(structure, Mapping):
        raise UnsupportedTag(f"{where} must be an object with begin, schema and end")
    _check_keys(structure, where, {"begin", "schema", "end"})
    content = {"type": "json_schema", "json_schema": structure.get("schema")}
    return {
        "type": "tag",
        "begin": _text(structure, "begin", where),
        "content": content,
        "end": _text(structure, "end", where),
    }


def _checked_tag(tag: object, where: str) -> Mapping[str, Any]:
    if not isinstance(tag, Mapping) or tag.get("type", "tag") != "tag":
        raise UnsupportedTag(f"{where}/tags must hold objects of type tag")
    return tag


def _bounds(node: Mapping[str, Any], where: str) -> tuple[int, int | None]:
    for name in ("at_least_one", "stop_after_first"):
        if not isinstance(node.get(name, False), bool):
            raise UnsupportedTag(f"{where}/{name} must be true or false")
    return int(node.get("at_least_one", False)), 1 if node.get("stop_after_first") else None


def _flag(node: Mapping[str, Any], name: str, where: str, *, absent: bool) -> bool:
    found = node.get(name, absent)
    if not isinstance(found, bool):
        raise UnsupportedTag(f"{where}/{name} must be true or false")
    return found


def _list(node: Mapping[str, Any], name: str, where: str) -> Sequence[Any]:
    found = node.get(name)
    if not isinstance(found, list | tuple) or not 0 < len(found) <= _MOST_TAGS:
        raise UnsupportedTag(f"{where}/{name} must be a list of 1 to {_MOST_TAGS}")
    return found


def _texts(node: Mapping[str, Any], name: str, where: str) -> Sequence[str]:
    found = _list(node, name, where)
    if not all(isinstance(each, str) and each for each in found):
        raise UnsupportedTag(f"{where}/{name} must hold texts, none of them empty")
    return found


def _text(node: Mapping[str, Any], name: str, where: str) -> str:
    found = node.get(name)
    if not isinstance(found, str):
        raise UnsupportedTag(f"{where}/{name} must be a text")
    return found


def _check_keys(node: Mapping[str, Any], where: str, known: set[str]) -> None:
    for name in node:
        if name not in known:
            names = ", ".join(sorted(known))
            raise UnsupportedTag(
                f"{where} has {name!r:.60}, which isn't known: it may have {names}"
            )
