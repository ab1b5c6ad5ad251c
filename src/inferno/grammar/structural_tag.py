"""Read structural tags: free text with parts of a shape in it, such as calls of tools.

Two spellings are read: `structures` with `triggers`, vLLM's first; and `format`, a tree of
`const_string`, `json_schema`, `regex`, `any_text`, `sequence`, `or`, `tag`, `triggered_tags` and
`tags_with_separator`, as XGrammar's documentation describes it (xgrammar.mlc.ai, structural tag).
Where one of their texts is a special token's, that token is meant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from inferno.grammar.ends import Ends, is_given
from inferno.grammar.json_assertions import read_names, schemas_by_name
from inferno.grammar.json_document import check_keywords, refuse
from inferno.grammar.json_keywords import KEYWORDS
from inferno.grammar.json_schema import strings_of_schema
from inferno.grammar.regex import (
    ANY,
    ANY_TEXT,
    Regex,
    Seq,
    alphabet_of,
    alt,
    both,
    char_set,
    complement_of,
    literal,
    repeat,
    seq,
    without,
)
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
from inferno.grammar.syntax import parse_regex

_MOST_TAGS = 256
_MOST_DEPTH = 16
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
# What may be said of arguments that are written one by one, in the order of `properties`.
_OF_ARGUMENTS = ("type", "properties", "required", "additionalProperties")
_ANY_NAME = repeat(complement_of(char_set("<> \t\n\r")), 1, 64)
_FREE_TEXT = Repeated(Terminal(repeat(ANY, 1, None)), 0, 1)
_OF_SCHEMA = "schema_"  # how the names of a schema's rules begin
_Place = tuple[str, ...] | None  # of a schema in another; None: anything is valid


class CompileSchema(Protocol):
    """The function that returns the grammar of a JSON Schema, or of a part: see json_schema.py."""

    def __call__(
        self, schema: str | Mapping[str, Any] | bool, *, at: Sequence[str] = ()
    ) -> Grammar:
        """Return the grammar of the values that are valid by the schema at a place."""


class UnsupportedTag(ValueError):
    """Raised for a structural tag that can't be honoured; the text says where and why."""


def compile_structural_tag(
    tag: Mapping[str, Any],
    special_tokens: Mapping[str, int],
    compile_schema: CompileSchema,
    *,
    is_loose: bool = False,
) -> Grammar:
    """Return the grammar of a structural tag.

    special_tokens  the model's, by their texts.
    is_loose        where a schema need not be kept to, any object may stand, whatever it is.

    Raises UnsupportedTag, and what `compile_schema` raises.
    """
    builder = _Builder(special_tokens, compile_schema, is_loose)
    if "format" in tag:
        _check_keys(tag, "#", {"type", "format"})
        start = builder.whole(builder.format(tag["format"], "#/format", 0), "#/format")
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

    def __init__(
        self, special_tokens: Mapping[str, int], compile_schema: CompileSchema, is_loose: bool
    ) -> None:
        self.rules: dict[str, tuple[Alternative, ...]] = {}
        self._special_tokens = special_tokens
        self._compile_schema = compile_schema
        self._is_loose = is_loose
        self._num_grammars = 0
        self._known: dict[tuple[str, tuple[str, ...], bool], Alternative] = {}  # schemas'
        self._ends = Ends(self.rules, _OF_SCHEMA)

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
                return (_FREE_TEXT,)
            case "sequence":
                _check_keys(node, where, {"type", "elements"})
                parts: list[Symbol] = []
                for i, each in enumerate(_list(node, "elements", where)):
                    parts += self.format(each, f"{where}/elements/{i}", depth + 1)
                return _joined(parts)
            case "or":
                _check_keys(node, where, {"type", "elements"})
                options = []
                for i, each in enumerate(_list(node, "elements", where)):
                    place = f"{where}/elements/{i}"
                    options.append(self.whole(self.format(each, place, depth + 1), place))
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
        inner = node.get("content")
        content = self.format(inner, f"{where}/content", depth + 1)
        begin, end = (self.text(_text(node, name, where)) for name in ("begin", "end"))
        if isinstance(inner, Mapping) and inner.get("type") == "triggered_tags":
            match content:
                case (Reference(name),):  # one tag or none: either comes to the end by itself
                    ended = [_joined((*each, *end)) for each in self.rules[name]]
                    return _joined((*begin, self._rule(ended)))
        return self.whole((*begin, *content, *end), f"{where}/content")

    def whole(self, symbols: Sequence[Symbol], where: str) -> Alternative:
        """Return symbols that follow each other, joined.

        Raises UnsupportedTag where one may take for its own what must follow it.
        """
        joined = _joined(symbols)
        if self._ends.may_be_missed(joined):
            raise UnsupportedTag(
                f"{where} may go on behind the end of a part, over what must follow it: "
                "let each choice, number, or free text, be a tag with an end that is no part of it"
            )
        return joined

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
        for one in triggers:
            if any(one in other for other in triggers if other is not one):
                raise UnsupportedTag(f"{where}/triggers: one must not be part of another")
        texts = [each for each in triggers if self._first_mark(each) is None]
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
            self._check_end(trigger, [_text(tag, "begin", where) for _, tag in begun], where)
            ends: list[Alternative] = []
            for i, tag in begun:
                rest = {**tag, "begin": tag["begin"].removeprefix(trigger)}
                ends.append(self.tag(rest, f"{where}/tags/{i}", depth + 1))
            following = self._rule(ends)
            mark = self._first_mark(trigger)
            if mark is None:
                assert found is not None
                options.append((Terminal(_up_to(literal(trigger), found)), following))
                continue
            before, _, after = trigger.partition(mark)
            lead: Symbol = some_free
            if before:
                lead = Terminal(both(free, seq(ANY_TEXT, literal(before))))
            named = Mark(self._special_tokens[mark])
            options.append((lead, named, *self.text(after), following))
        for i, tag in enumerate(tags):
            if not any(_text(tag, "begin", where).startswith(each) for each in triggers):
                raise UnsupportedTag(f"{where}/tags/{i} begins with none of the triggers")
        part = self._rule(options)
        return (Repeated(part, least, most), some_free)

    def text(self, text: str) -> Alternative:
        """Return the symbols of a text, its special tokens as marks."""
        symbols: list[Symbol] = []
        while text:
            first = self._first_mark(text)
            before, _, after = (text, "", "") if first is None else text.partition(first)
            if before:
                symbols.append(Terminal(literal(before)))
            if first is not None:
                symbols.append(Mark(self._special_tokens[first]))
            text = after
        return tuple(symbols)

    def _first_mark(self, text: str) -> str | None:
        """Return the special token that comes first in a text, of several the longest."""
        places = {each: text.find(each) for each in self._special_tokens if each}
        found = [each for each, place in places.items() if place >= 0]
        return min(found, key=lambda each: (places[each], -len(each)), default=None)

    def _marks(self, text: str) -> list[Mark]:
        return [each for each in self.text(text) if isinstance(each, Mark)]

    def _check_end(self, trigger: str, begins: Sequence[str], where: str) -> None:
        """Raise UnsupportedTag where a trigger ends within a special token of a tag's beginning."""
        for begin in begins:
            parts = self._marks(trigger), self._marks(begin.removeprefix(trigger))
            if self._marks(begin) != [*parts[0], *parts[1]]:
                raise UnsupportedTag(
                    f"{where}/triggers: {trigger!r:.60} ends within one of the model's special "
                    f"tokens, which begins {begin!r:.60}: let it end before or behind that"
                )

    def schema(
        self,
        schema: object,
        where: str,
        *,
        is_strict: bool,
        at: Sequence[str] = (),
        otherwise: Mapping[str, Any] | bool = _ANY_OBJECT,
    ) -> Alternative:
        """Return the symbols of a value by a JSON Schema, or by the part of it at some place.

        is_strict   a schema that can't be honoured is refused; else `otherwise` takes its place.
        """
        if not isinstance(schema, str | Mapping | bool):
            raise UnsupportedTag(f"{where} needs a JSON Schema")
        if self._is_loose and not is_strict:
            schema, at = otherwise, ()
        key = schema if isinstance(schema, str) else json.dumps(schema), tuple(at), is_strict
        if (known := self._known.get(key)) is not None:
            return known
        try:
            grammar = self._compile_schema(schema, at=at)
        except ValueError:
            if is_strict:
                raise
            grammar = self._compile_schema(otherwise)
        self._num_grammars += 1
        prefix = f"{_OF_SCHEMA}{self._num_grammars}_"
        for name, alternatives in grammar.rules.items():
            self.rules[prefix + name] = tuple(
                tuple(_renamed(each, prefix) for each in alternative)
                for alternative in alternatives
            )
        self._known[key] = (Reference(prefix + START),)
        return self._known[key]

    def _parameters(self, node: Mapping[str, Any], where: str) -> Alternative:
        """Return the symbols of arguments one by one, each between texts of its own.

        The values of those in `raw` are the texts themselves, everything else is JSON. Where the
        schema lists no properties, there may be any.
        """
        texts = {name: _text(node, name, where) for name in ("before_name", "after_name", "end")}
        _check_keys(node, where, {"type", "json_schema", "is_strict", "raw", *texts})
        is_strict = _flag(node, "is_strict", where, absent=True)
        schema, raw = node.get("json_schema"), _names(node.get("raw"))
        if not isinstance(schema, Mapping):
            raise UnsupportedTag(f"{where} needs the JSON Schema of an object")
        if is_strict:
            _check_arguments(schema)
        elif self._is_loose:
            schema, raw = _ANY_OBJECT, ()
        before, after = self.text(texts["before_name"]), self.text(texts["after_name"])
        whole = json.dumps(schema)

        def argument(name: Alternative, place: _Place, *, is_raw: bool) -> Reference:
            of_value, at = (True, ()) if place is None else (whole, place)
            if is_raw:
                value = _raw_text(of_value, at, texts["end"], is_strict=is_strict)
            else:
                in_json = self.schema(of_value, where, is_strict=is_strict, at=at, otherwise=True)
                value = (*in_json, *self.text(texts["end"]))
            return self._rule([(*before, *name, *after, *value)])

        symbols: list[Symbol] = []
        listed, others = _members_of(schema)
        required = _names(schema.get("required"))
        for name, place in listed.items():
            one = argument(self.text(name), place, is_raw=name in raw)
            symbols.append(one if name in required else Repeated(one, 0, 1))
        if "properties" not in schema and schema.get("additionalProperties") is not False:
            any_other = argument((Terminal(_ANY_NAME),), others, is_raw=others is None)
            symbols.append(Repeated(any_other, 0, None))
        return tuple(symbols)

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
        separator = self.text(_text(node, "separator", where))
        if most is None:
            self.whole((one, *separator, one), where)
        separated = self._rule([self.whole((*separator, one), where)])
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


def _joined(symbols: Sequence[Symbol]) -> Alternative:
    """Return the symbols; texts that follow each other are one where one of them may be several.

    A terminal is as long as it can be, so that one of any text would take its end for its own.
    """
    joined: list[Symbol] = []
    run: list[Symbol] = []
    for symbol in (*symbols, None):
        if symbol is not None and _regex_of(symbol) is not None:
            run.append(symbol)
            continue
        joined += _one_text(run, before_mark=isinstance(symbol, Mark))
        joined += [] if symbol is None else [symbol]
        run = []
    return tuple(joined)


def _regex_of(symbol: Symbol) -> Regex | None:
    """Return the texts that a symbol stands for, where no rule says more of them."""
    match symbol:
        case Terminal(regex):
            return regex
        case Repeated(Terminal(regex), 0, 1):
            return repeat(regex, 0, 1)
    return None


def _one_text(run: Sequence[Symbol], *, before_mark: bool) -> Sequence[Symbol]:
    """Return these texts, one after the other; any text before a given one goes up to the first.

    before_mark a special token follows, which is no part of any text: its end is in no doubt.
    """
    regexes = [regex for symbol in run if (regex := _regex_of(symbol)) is not None]
    if len(run) < 2 or all(map(is_given, regexes)):
        return run
    # Runs that were joined before are looked into: any text may be the last part of one.
    flat = [part for each in regexes for part in (each.parts if isinstance(each, Seq) else (each,))]
    parts: list[Regex] = []
    for is_one, group in groupby(flat, key=is_given):
        text = seq(*group)
        if is_one and parts and parts[-1] == ANY_TEXT and not before_mark:
            parts[-1] = _up_to(text, text)
        else:
            parts.append(text)
    return [Terminal(seq(*parts))]


def _up_to(text: Regex, stops: Regex) -> Regex:
    """Return any text that ends with this one, and has no stop before."""
    return both(seq(ANY_TEXT, text), without(seq(ANY_TEXT, stops, ANY, ANY_TEXT)))


def _check_arguments(schema: Mapping[str, Any]) -> None:
    """Raise UnsupportedSchema for what says more of arguments than which there are, and what."""
    check_keywords(schema, "#", KEYWORDS)
    schemas_by_name(schema, "properties", "#")
    read_names(schema.get("required", []), "#/required")
    for keyword in KEYWORDS:
        if keyword in schema and keyword not in _OF_ARGUMENTS:
            raise refuse(
                f"#/{keyword}",
                "can't be kept to where arguments are written one by one",
                f"{', '.join(_OF_ARGUMENTS[:-1])} and {_OF_ARGUMENTS[-1]} alone",
            )


def _members_of(schema: Mapping[str, Any]) -> tuple[Mapping[str, _Place], _Place]:
    """Return where the schema of each argument stands, by name, and that of others.

    What is no such thing says nothing.
    """
    properties, required = schema.get("properties"), _names(schema.get("required"))
    listed: dict[str, _Place] = {
        name: ("properties", name)
        for name, of_value in (properties if isinstance(properties, Mapping) else {}).items()
        if of_value is not False or name in required
    }
    others = ("additionalProperties",) if "additionalProperties" in schema else None
    for name in required:
        listed.setdefault(name, others)
    return listed, others


def _names(given: object) -> Sequence[str]:
    return [name for name in given if isinstance(name, str)] if isinstance(given, list) else []


def _raw_text(schema: str | bool, at: Sequence[str], end: str, *, is_strict: bool) -> Alternative:
    """Return the symbols of a text as it stands, and of the `end` that follows.

    Readers take the end without its line breaks for one, too, so that no text holds it.
    """
    try:
        text = _without_end(strings_of_schema(schema, at=at), end)
    except ValueError:
        if is_strict:
            raise
        text = _without_end(ANY_TEXT, end)
    return (Terminal(seq(text, literal(end))),)


def _without_end(text: Regex, end: str) -> Regex:
    """Return the texts that don't hold the end, which are all of them where none can."""
    mark = end.strip()
    if not alphabet_of(text).has_all(mark):
        return text
    return both(text, without(seq(ANY_TEXT, literal(mark), ANY_TEXT)))


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
