"""Turn JSON Schemas into grammars: every text of a grammar is JSON that is valid by its schema.

Properties come in the order of the schema. A value has one spelling where it matters; see
json_strings.py and json_numbers.py. What each keyword allows is read in json_keywords.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from inferno.grammar.decide import is_empty
from inferno.grammar.json_document import UnsupportedSchema
from inferno.grammar.json_keywords import Schemas
from inferno.grammar.json_numbers import Numbers, TooCostly, spelled_numbers
from inferno.grammar.json_shapes import (
    NO_VALUE,
    ArrayShape,
    Claims,
    Contained,
    ObjectShape,
    Values,
    conjoin,
)
from inferno.grammar.json_strings import any_of, spelled_string
from inferno.grammar.pruning import NoText, is_too_nested, prune
from inferno.grammar.regex import (
    EMPTY,
    NOTHING,
    Regex,
    TooComplex,
    alt,
    both,
    char_set,
    literal,
    repeat,
    seq,
    without,
)
from inferno.grammar.rules import (
    START,
    Alternative,
    Grammar,
    Reference,
    Repeated,
    Symbol,
    Terminal,
)
from inferno.untrusted_json import Malformed, parse_object

__all__ = ["WHITESPACE", "UnsupportedSchema", "compile_schema", "strings_of_schema"]

# Between JSON's tokens may stand a space, or a new line and its indentation: with more, a model
# that likes blank lines may write nothing else.
WHITESPACE = repeat(alt(literal(" "), seq(literal("\n"), repeat(char_set(" \t"), 0, 40))), 0, 1)

_JSON_SPACE = repeat(char_set(" \t\n\r"), 0, None)

_MOST_SYMBOLS = 400_000  # of all rules
_MOST_COUNTING_RULES = 5_000  # rules for one object or array whose members are counted
_BLOCK = 8  # symbols that a rule stands for


def compile_schema(
    schema: str | Mapping[str, Any] | bool,
    *,
    whitespace: Regex | None = WHITESPACE,
    disable_additional_properties: bool = False,
    at: Sequence[str] = (),
) -> Grammar:
    """Return the grammar of the JSON texts that are valid by a schema.

    at                             the keys that lead to the part of it that is meant.
    whitespace                     what may stand between two tokens, or nothing; None is nothing.
    disable_additional_properties  objects that list properties have no others, unless they say so.

    Raises UnsupportedSchema, which names the keyword that can't be kept to and its place; and
    ValueError where other texts than JSON's spaces are to stand between tokens.
    """
    if whitespace is not None and not _is_json_space(whitespace):
        raise ValueError("whitespace must match spaces, tabs and line ends alone, as JSON has it")
    document = _document(schema)
    try:
        schemas = Schemas(document, disable_additional_properties)
        return _Compiler(schemas, whitespace).grammar(schemas.root(at))
    except RecursionError:
        raise UnsupportedSchema("# is nested too deeply") from None
    except TooComplex as problem:
        raise UnsupportedSchema(f"# has strings that are too costly: {problem}") from None


def strings_of_schema(schema: str | Mapping[str, Any] | bool, *, at: Sequence[str] = ()) -> Regex:
    """Return the strings that are valid by a schema, or a part of it, as they are, not as JSON.

    Raises UnsupportedSchema as `compile_schema` does, and where there are none.
    """
    document = _document(schema)
    try:
        schemas = Schemas(document)
        strings = schemas.values(schemas.root(at)).strings
        if is_empty(strings):
            raise UnsupportedSchema("#: no string can satisfy the schema")
    except RecursionError:
        raise UnsupportedSchema("# is nested too deeply") from None
    except TooComplex as problem:
        raise UnsupportedSchema(f"# has strings that are too costly: {problem}") from None
    return strings


def _document(schema: str | Mapping[str, Any] | bool) -> Mapping[str, Any] | bool:
    if isinstance(schema, bool):
        return schema
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        return _parsed(text)
    except (Malformed, TypeError, ValueError, RecursionError) as problem:
        raise UnsupportedSchema(f"# is no JSON Schema: {problem}") from None


@lru_cache(maxsize=2)  # one whose parts are asked for one by one is parsed once
def _parsed(text: str) -> Mapping[str, Any]:
    return parse_object(text.encode())


@lru_cache(maxsize=16)
def _is_json_space(whitespace: Regex) -> bool:
    return is_empty(both(whitespace, without(_JSON_SPACE)))


@dataclass(frozen=True, slots=True)
class _Marks:
    """JSON's punctuation with the space that may stand beside it.

    brackets    the opening and the closing one, and both with nothing between them.
    """

    comma: Terminal
    colon: Regex
    brackets: Mapping[str, tuple[Terminal, Terminal, Terminal]]


@lru_cache(maxsize=16)
def _marks(space: Regex) -> _Marks:
    return _Marks(
        Terminal(seq(space, literal(","), space)),
        seq(space, literal(":"), space),
        {
            pair: (
                Terminal(seq(literal(pair[0]), space)),
                Terminal(seq(space, literal(pair[1]))),
                Terminal(seq(literal(pair[0]), space, literal(pair[1]))),
            )
            for pair in ("[]", "{}")
        },
    )


@lru_cache(maxsize=512)  # the same object for the same values: it is looked into once
def _texts(
    null: bool, booleans: frozenset[bool], numbers: tuple[Numbers, ...], strings: Regex
) -> Regex:
    """Return the texts of values that have no parts; raises TooCostly."""
    words = [literal("null")] if null else []
    words += [literal(json.dumps(held)) for held in sorted(booleans)]
    words += [spelled_numbers(each) for each in numbers]
    return alt(*words, spelled_string(strings))


class _Compiler:
    """Rules for the claims that are met on the way from the root."""

    def __init__(self, schemas: Schemas, whitespace: Regex | None) -> None:
        self._schemas = schemas
        self._rules: dict[str, list[Alternative]] = {}
        self._symbols: dict[Claims, Symbol] = {}
        self._places: dict[str, str] = {}  # of rules, for messages
        self._waiting: list[tuple[str, Claims, Values]] = []
        self._num_symbols = 0
        self._is_compact = whitespace is None
        marks = _marks(EMPTY if whitespace is None else whitespace)
        self._comma, self._colon, self._brackets = marks.comma, marks.colon, marks.brackets

    def grammar(self, root: Claims) -> Grammar:
        self._add(START, [(self._symbol(root),)], self._schemas.pointer(root))
        while self._waiting:
            name, claims, values = self._waiting.pop()
            self._add(name, self._alternatives(name, claims, values), self._schemas.pointer(claims))
        try:
            grammar = prune(self._rules)
        except NoText as nothing:
            place = self._places[nothing.rule]
            raise UnsupportedSchema(f"{place}: nothing can satisfy the schema") from None
        if is_too_nested(grammar):
            raise UnsupportedSchema("# has too many schemas, one in another")
        return grammar

    def _add(self, name: str, alternatives: Iterable[Alternative], place: str) -> Reference:
        self._rules[name] = list(alternatives)
        self._places[name] = place
        self._num_symbols += 1 + sum(1 + len(each) for each in self._rules[name])
        if self._num_symbols > _MOST_SYMBOLS:
            raise UnsupportedSchema(f"{place}: the schema needs a grammar that is too large")
        return Reference(name)

    def _symbol(self, claims: Claims) -> Symbol:
        """Return the symbol for values of which the claims hold."""
        if claims not in self._symbols:
            values = self._schemas.values(claims)
            if values.arrays or values.objects:
                name = f"value_{len(self._symbols)}"
                self._waiting.append((name, claims, values))
                self._symbols[claims] = Reference(name)
            else:
                self._symbols[claims] = Terminal(self._leaf(claims, values))
        return self._symbols[claims]

    def _leaf(self, claims: Claims, values: Values) -> Regex:
        """Return the texts of values that have no parts."""
        try:
            return _texts(values.null, values.booleans, values.numbers, values.strings)
        except TooCostly as problem:
            place = self._schemas.pointer(claims)
            raise UnsupportedSchema(f"{place}/multipleOf can't be kept to: {problem}") from None

    def _alternatives(self, name: str, claims: Claims, values: Values) -> Iterator[Alternative]:
        leaf = self._leaf(claims, values)
        if leaf != NOTHING:
            yield (Terminal(leaf),)
        place = self._schemas.pointer(claims)
        for number, array in enumerate(values.arrays):
            if array.contained:
                yield from self._counted_array(f"{name}_array_{number}", place, array)
            else:
                yield from self._array(f"{name}_array_{number}", place, array)
        for number, shape in enumerate(values.objects):
            yield from self._object(f"{name}_object_{number}", place, shape)

    # Arrays.

    def _array(self, name: str, place: str, array: ArrayShape) -> Iterator[Alternative]:
        opening, closing, empty = self._brackets["[]"]
        if array.least == 0:
            yield (empty,)
        if array.most == 0:
            return
        num_first = len(array.first)
        rest: Alternative = ()
        if array.most is None or array.most > num_first:
            # The first item stands before all commas.
            standing = num_first or 1
            least = max(0, array.least - standing)
            most = None if array.most is None else array.most - standing
            if most is None or most > 0:
                item = self._symbol(array.others)
                more = self._add(f"{name}_more", [(self._comma, item)], place)
                rest = (Repeated(more, least, most),)
        first = [self._symbol(claims) for claims in array.first or (array.others,)]
        for index in range(len(first) - 1, 0, -1):
            rest = (self._comma, first[index], *rest)
            if index >= array.least:
                rest = (self._add(f"{name}_from_{index}", [rest, ()], place),)
        yield (opening, first[0], *rest, closing)

    def _counted_array(self, name: str, place: str, array: ArrayShape) -> Iterator[Alternative]:
        """Yield the array's alternatives where items of some kind are counted.

        A rule stands for what may follow after so many items, of which so many are of the kind.
        """
        opening, closing, empty = self._brackets["[]"]
        if len(array.contained) > 1:
            raise UnsupportedSchema(f"{place}/contains is said twice of one array; expected once")
        [contained] = array.contained
        last = max(len(array.first), array.least, array.most or 0, 1)
        limit = contained.least if contained.most is None else contained.most
        if last * (limit + 1) > _MOST_COUNTING_RULES:
            raise UnsupportedSchema(f"{place}/contains counts too far; expected smaller bounds")
        if array.least == 0 and contained.least == 0:
            yield (empty,)
        for index in range(1, last + 1):
            for count in range(limit + 1):
                self._add(
                    f"{name}_after_{index}_{count}",
                    [
                        *self._next_items(name, array, contained, index, count, last),
                        *(
                            [(closing,)]
                            if index >= array.least and count >= contained.least
                            else []
                        ),
                    ],
                    place,
                )
        for alternative in self._next_items(name, array, contained, 0, 0, last):
            yield (opening, *alternative)

    def _next_items(
        self, name: str, array: ArrayShape, kind: Contained, index: int, count: int, last: int
    ) -> Iterator[Alternative]:
        """Yield the item after `index` ones, of which `count` are of the kind, and what follows."""
        if array.most is not None and index >= array.most:
            return
        comma = (self._comma,) if index else ()
        after = f"{name}_after_{min(index + 1, last)}"
        claims = array.at(index)
        is_enough = kind.most is None and count == kind.least
        if kind.most is None:
            yield (*comma, self._symbol(claims), Reference(f"{after}_{count}"))
        else:
            other = conjoin(claims, self._schemas.negate(kind.claims))
            yield (*comma, self._symbol(other), Reference(f"{after}_{count}"))
        if not is_enough and (kind.most is None or count < kind.most):
            item = self._symbol(conjoin(claims, kind.claims))
            yield (*comma, item, Reference(f"{after}_{count + 1}"))

    # Objects.

    def _object(self, name: str, place: str, shape: ObjectShape) -> Iterator[Alternative]:
        opening, closing, empty = self._brackets["{}"]
        listed = dict(shape.listed)
        names = [each for each, claims in listed.items() if claims != NO_VALUE]
        names += [each for each in shape.required if each not in listed]
        required = set(shape.required)
        other = self._other_members(name, place, shape, [*listed, *names])
        members = [
            self._member(
                each, listed[each] if each in listed else self._schemas.member(shape, each)
            )
            for each in names
        ]
        if not required and shape.least == 0:
            yield (empty,)
        if shape.most is not None or shape.least > len(required):
            if other is not None and shape.least - len(required) > 1:
                # A parser takes a name that comes twice for one member.
                raise UnsupportedSchema(
                    f"{place}/minProperties is {shape.least}; expected at most 1 more than the "
                    "required properties, or no additionalProperties"
                )
            counted = _CountedMembers(self._add, self._comma, name, place, shape, other)
            is_required = [each in required for each in names]
            for alternative in counted.alternatives(members, is_required):
                yield (opening, *alternative, closing)
            return
        # What may follow when something precedes: each member with its comma, or nothing.
        parts: list[Alternative] = []
        for index, each in enumerate(names):
            part = (self._comma, *members[index])
            if each not in required:
                optional = self._add(f"{name}_optional_{index}", [part], place)
                part = (Repeated(optional, 0, 1),)
            parts.append(part)
        if other is not None:
            more = self._add(f"{name}_more", [(self._comma, other)], place)
            parts.append((Repeated(more, 0, None),))
        firsts = 1 + next(
            (index for index, each in enumerate(names) if each in required), len(names) - 1
        )
        tail_from = self._tails(name, place, parts, are_many=firsts > 1)
        for index in range(firsts):
            yield (opening, *members[index], *tail_from(index + 1), closing)
        if other is not None and not required:
            yield (opening, other, *parts[-1], closing)

    def _tails(
        self, name: str, place: str, parts: list[Alternative], are_many: bool
    ) -> Callable[[int], Alternative]:
        """Return a function from a number to the parts from there on, one after the other.

        If it will be asked for many, rules stand for eight parts, and for eight of such rules: so
        all tails together are not as long as the square of the parts, and no rule leads far.
        """
        levels = [parts]
        while are_many and len(levels[-1]) > _BLOCK:
            below = levels[-1]
            blocks: list[Alternative] = []
            for start in range(0, len(below), _BLOCK):
                together = sum(below[start : start + _BLOCK], ())
                rule = f"{name}_block_{len(levels)}_{start // _BLOCK}"
                blocks.append((self._add(rule, [together], place),))
            levels.append(blocks)

        def tail_from(start: int) -> Alternative:
            symbols: list[Symbol] = []
            for level, of_level in enumerate(levels):
                while start < len(of_level) and (start % _BLOCK or level == len(levels) - 1):
                    symbols += of_level[start]
                    start += 1
                start = -(-start // _BLOCK)
            return tuple(symbols)

        return tail_from

    def _member(self, name: str, claims: Claims) -> Alternative:
        return (*self._key(literal(name)), self._symbol(claims))

    def _key(self, names: Regex) -> Alternative:
        name = spelled_string(names)
        if self._is_compact:
            return (Terminal(seq(name, self._colon)),)
        return Terminal(name), Terminal(self._colon)

    def _other_members(
        self, name: str, place: str, shape: ObjectShape, listed: list[str]
    ) -> Reference | None:
        """Return the rule for a member whose name isn't listed, if there may be one."""
        alternatives = []
        others = without(any_of(listed))
        for pattern, claims in shape.others:
            # Without a pattern, and without listed names, any escapes may stand.
            names = both(pattern, others)
            if claims != NO_VALUE and not is_empty(names):
                alternatives.append((*self._key(names), self._symbol(claims)))
        if not alternatives or shape.most == 0:
            return None
        return self._add(f"{name}_other", alternatives, place)


class _CountedMembers:
    """Rules for the members of an object whose number is bounded.

    A rule stands for the members from one on, after so many have come; more than the larger bound
    of counts are as many as that.
    """

    def __init__(
        self,
        add: Callable[[str, Iterable[Alternative], str], Reference],
        comma: Terminal,
        name: str,
        place: str,
        shape: ObjectShape,
        other: Reference | None,
    ) -> None:
        self._add = add
        self._comma = comma
        self._name = name
        self._place = place
        self._shape = shape
        self._other = other

    def alternatives(
        self, members: list[Alternative], is_required: list[bool]
    ) -> Iterator[Alternative]:
        """Yield what may stand between the braces, if something does."""
        shape = self._shape
        limit = shape.least if shape.most is None else shape.most
        limit = min(limit, len(members) + shape.least)
        if (len(members) + 1) * (limit + 1) > _MOST_COUNTING_RULES:
            raise UnsupportedSchema(
                f"{self._place} counts the members of too many; expected smaller bounds"
            )
        for index in range(len(members), -1, -1):
            for count in range(limit + 1):
                ways: list[Alternative] = []
                if index == len(members):
                    ways += self._others(count)
                elif shape.most is None or count < shape.most:
                    comma = (self._comma,) if count else ()
                    after = self._from(index + 1, min(count + 1, limit))
                    ways.append((*comma, *members[index], after))
                if index < len(members) and not is_required[index]:
                    ways.append((self._from(index + 1, count),))
                self._add(self._from(index, count).name, ways, self._place)
        yield (self._from(0, 0),)

    def _from(self, index: int, count: int) -> Reference:
        return Reference(f"{self._name}_from_{index}_{count}")

    def _others(self, count: int) -> Iterator[Alternative]:
        """Yield the members that aren't listed, after `count` that are."""
        shape = self._shape
        least = max(0, shape.least - count)
        most = None if shape.most is None else shape.most - count
        if least == 0 and count:
            yield ()
        if self._other is None or most == 0:
            return
        more = self._add(f"{self._name}_more", [(self._comma, self._other)], self._place)
        if count:
            yield (Repeated(more, max(1, least), most),)
        elif most == 1:
            yield (self._other,)
        else:
            last = None if most is None else most - 1
            yield (self._other, Repeated(more, max(0, least - 1), last))
