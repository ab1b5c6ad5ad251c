"""Schemas with their keywords, and the values that each allows.

Every keyword is kept to, refused, or known to restrict nothing. Source: JSON Schema 2020-12, and
what earlier drafts named otherwise.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferno.grammar.decide import is_empty, matches
from inferno.grammar.json_assertions import (
    check_names,
    has_no_number,
    is_number,
    keep_values,
    known_values,
    numbers_of,
    read_count,
    read_names,
    read_numbers,
    read_pattern,
    read_strings,
    read_type,
    said_alone,
    schemas_by_name,
    strings_of,
)
from inferno.grammar.json_document import (
    ANNOTATIONS,
    Document,
    UnsupportedSchema,
    check_keywords,
    escaped,
    refuse,
    shown,
)
from inferno.grammar.json_shapes import (
    ALL_VALUES,
    ANY_VALUE,
    NO_VALUE,
    NO_VALUES,
    ArrayShape,
    Claim,
    Claims,
    Contained,
    Inexpressible,
    ObjectShape,
    Shapes,
    Values,
    bounded_array,
    conjoin,
    join,
    name_patterns,
)
from inferno.grammar.json_unevaluated import evaluated
from inferno.grammar.regex import ANY_TEXT, Regex, TooComplex, both

_MOST_NESTED = 60  # schemas that say what one and the same value is
_MOST_STEPS = 50_000  # sets of values that are looked into
_DISJOINT_DEPTH = 4  # of members that are looked into to tell objects apart


class _Circular(Exception):
    """Raised where a schema says of a value that it is what the same schema says."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema, and the JSON Pointer of its place."""

    content: Any
    pointer: str


class Schemas:
    """The schemas of a document by number, and the values that they allow.

    is_closed   objects that say nothing of further properties have none.
    """

    def __init__(self, document: Mapping[str, Any] | bool, is_closed: bool = False) -> None:
        self._document = Document(document)
        self._is_closed = is_closed
        self._schemas = [_Schema(True, "#")]  # schema 0 is `true`
        self._numbers: dict[object, int] = {}
        self._values: dict[Claim | Claims, Values] = {}
        self._under_way: list[int] = []
        self._steps = 0
        self._shapes = Shapes(self._has_name, self.negate)
        self._names: dict[tuple[Regex, str], bool] = {}

    def root(self, at: Sequence[str] = ()) -> Claims:
        """Return the claim that the document's schema holds, or the schema at a place in it."""
        content: Any = self._document.content
        for key in at:
            content = content[key]
        return self._claims(content, "/".join(["#", *map(escaped, at)]))

    def pointer(self, claims: Claims) -> str:
        """Return where the first of the claims stands."""
        return self._schemas[claims[0].schema].pointer if claims else "#"

    def values(self, claims: Claims) -> Values:
        """Return the values of which all claims hold.

        Raises UnsupportedSchema where a keyword says what rules can't say.
        """
        try:
            return self._meet_all(claims)
        except _Circular:
            raise refuse(
                self.pointer(claims), "refers to itself before any part of a value", "an end"
            ) from None
        except Inexpressible as problem:
            raise UnsupportedSchema(f"{self.pointer(claims)} would need {problem}") from None

    def member(self, shape: ObjectShape, name: str) -> Claims:
        return self._shapes.member(shape, name)

    def _meet_all(self, claims: Claims) -> Values:
        if claims not in self._values:
            values = ALL_VALUES
            for claim in claims:
                values = self._shapes.meet(values, self._values_of(claim))
            self._values[claims] = values
        return self._values[claims]

    def _values_of(self, claim: Claim) -> Values:
        if claim in self._values:
            return self._values[claim]
        self._steps += 1
        schema = self._schemas[claim.schema]
        if self._steps > _MOST_STEPS:
            raise UnsupportedSchema(f"{schema.pointer}: the schema has too many combinations")
        if claim.schema in self._under_way:
            raise _Circular
        if len(self._under_way) > _MOST_NESTED:
            raise UnsupportedSchema(
                f"{schema.pointer} is more than {_MOST_NESTED} schemas deep about one value"
            )
        self._under_way.append(claim.schema)
        try:
            if claim.holds:
                values = self._read(schema)
            else:
                self._under_way.pop()
                try:
                    values = self._shapes.others(self._values_of(Claim(claim.schema)))
                finally:
                    self._under_way.append(claim.schema)
        except Inexpressible as problem:
            raise UnsupportedSchema(f"{schema.pointer} would need {problem}") from None
        finally:
            self._under_way.pop()
        self._values[claim] = values
        return values

    # Schemas by their places.

    def _claims(self, content: Any, pointer: str) -> Claims:
        """Return that the schema at a place holds."""
        if content is True or content == {}:
            return ANY_VALUE
        if content is False:
            return NO_VALUE
        if not isinstance(content, Mapping):
            raise refuse(pointer, f"is {shown(content)}", "a schema")
        if "$ref" in content and ANNOTATIONS.issuperset(content.keys() - {"$ref"}):
            return self._referred(content, pointer)
        return (Claim(self._number(pointer, _Schema(content, pointer))),)

    def _number(self, key: object, schema: _Schema) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._schemas)
            self._schemas.append(schema)
        return self._numbers[key]

    def negate(self, claims: Claims) -> Claims:
        """Return claims that hold if and only if the given ones don't all hold."""
        if claims == ANY_VALUE:
            return NO_VALUE
        if claims == NO_VALUE:
            return ANY_VALUE
        if len(claims) == 1:
            return (Claim(claims[0].schema, not claims[0].holds),)
        together = _Schema(_All(claims), self.pointer(claims))
        return (Claim(self._number(claims, together), holds=False),)

    def _const(self, value: Any, pointer: str) -> Claims:
        """Return that a value is this one."""
        key = "const", json.dumps(value)
        return (Claim(self._number(key, _Schema(_Const(value), pointer))),)

    def _has_name(self, pattern: Regex, name: str) -> bool:
        if pattern == ANY_TEXT:
            return True
        if (pattern, name) not in self._names:
            self._names[pattern, name] = matches(pattern, name)
        return self._names[pattern, name]

    # Keywords.

    def _read(self, schema: _Schema) -> Values:
        content = schema.content
        if isinstance(content, _All):
            return self._meet_all(content.claims)
        if isinstance(content, _Const):
            return self._values_of_const(content.value, schema.pointer)
        if not isinstance(content, Mapping):
            return ALL_VALUES if content else NO_VALUES
        check_keywords(content, schema.pointer, _READERS)
        said = said_alone(content, _READERS)
        if (known := known_values(said)) is not None:
            return known
        values = ALL_VALUES
        done = set()
        # What is unevaluated is known last, and so lists no names before others do.
        for keyword in sorted(content, key=lambda keyword: keyword.startswith("unevaluated")):
            reader = _READERS.get(keyword)
            if reader is None or reader in done:
                continue
            done.add(reader)
            values = self._shapes.meet(values, self._read_keyword(reader, keyword, schema))
        keep_values(said, values)
        return values

    def _read_keyword(self, reader: _Reader, keyword: str, schema: _Schema) -> Values:
        pointer = f"{schema.pointer}/{escaped(keyword)}"
        try:
            return reader(self, schema.content, schema.pointer)
        except Inexpressible as problem:
            raise UnsupportedSchema(f"{pointer} would need to say {problem}") from None
        except TooComplex as problem:
            raise UnsupportedSchema(f"{pointer} is too costly: {problem}") from None

    def _enum(self, content: Mapping[str, Any], pointer: str) -> Values:
        every = content["enum"]
        if not isinstance(every, list):
            raise refuse(f"{pointer}/enum", f"is {shown(every)}", "a list of values")
        texts = [each for each in every if isinstance(each, str)]
        figures = [each for each in every if is_number(each)]
        others = [each for each in every if not isinstance(each, str) and not is_number(each)]
        place = f"{pointer}/enum"
        return join(
            [
                strings_of(texts, place),
                numbers_of(figures, place),
                *(self._values_of_const(each, place) for each in others),
            ]
        )

    def _const_keyword(self, content: Mapping[str, Any], pointer: str) -> Values:
        return self._values_of_const(content["const"], f"{pointer}/const")

    def _values_of_const(self, value: Any, pointer: str) -> Values:
        match value:
            case None:
                return Values(null=True)
            case bool():
                return Values(booleans=frozenset([value]))
            case str():
                return strings_of([value], pointer)
            case list():
                claims = tuple(self._const(item, pointer) for item in value)
                size = len(value)
                return Values(arrays=(ArrayShape(claims, NO_VALUE, size, size),))
            case dict():
                check_names(value, pointer)
                listed = tuple((name, self._const(held, pointer)) for name, held in value.items())
                return Values(objects=(ObjectShape(listed, tuple(value), ()),))
            case _:
                return numbers_of([value], pointer)

    def _array_keywords(self, content: Mapping[str, Any], pointer: str) -> Values:
        first: tuple[Claims, ...] = ()
        others = ANY_VALUE
        for keyword in ("prefixItems", "items"):
            listed = content.get(keyword)
            if isinstance(listed, list) and not first:
                first = tuple(
                    self._claims(each, f"{pointer}/{keyword}/{place}")
                    for place, each in enumerate(listed)
                )
            elif keyword in content:
                if keyword == "prefixItems":
                    raise refuse(f"{pointer}/{keyword}", "is no list", "a list of schemas")
                others = self._claims(listed, f"{pointer}/{keyword}")
        if "additionalItems" in content:
            if isinstance(content.get("items"), list):
                others = self._claims(content["additionalItems"], f"{pointer}/additionalItems")
            elif self._claims(content["additionalItems"], f"{pointer}/additionalItems"):
                raise refuse(f"{pointer}/additionalItems", "has no meaning here", "items as a list")
        array = bounded_array(
            ArrayShape(
                first,
                others,
                read_count(content, "minItems", pointer) or 0,
                read_count(content, "maxItems", pointer),
                self._contained(content, pointer),
            )
        )
        unique = content.get("uniqueItems", False)
        if unique is not False and (array.most is None or array.most > 1):
            raise refuse(f"{pointer}/uniqueItems", "can't be kept to", "maxItems of 1, or none")
        return replace(ALL_VALUES, arrays=() if array.is_surely_empty else (array,))

    def _contained(self, content: Mapping[str, Any], pointer: str) -> tuple[Contained, ...]:
        least = read_count(content, "minContains", pointer)
        most = read_count(content, "maxContains", pointer)
        if "contains" not in content:
            return ()
        claims = self._claims(content["contains"], f"{pointer}/contains")
        contained = Contained(claims, 1 if least is None else least, most)
        return (contained,) if contained.least or most is not None else ()

    def _object_keywords(self, content: Mapping[str, Any], pointer: str) -> Values:
        patterns = [
            (
                read_pattern(text, f"{pointer}/patternProperties"),
                self._claims(each, f"{pointer}/patternProperties/{escaped(text)}"),
            )
            for text, each in schemas_by_name(content, "patternProperties", pointer).items()
        ]
        listed = {}
        for name, each in schemas_by_name(content, "properties", pointer).items():
            own = self._claims(each, f"{pointer}/properties/{escaped(name)}")
            held = [claims for of_names, claims in patterns if self._has_name(of_names, name)]
            listed[name] = conjoin(own, *held)
        required = read_names(content.get("required", []), f"{pointer}/required")
        default = not (self._is_closed and ("properties" in content or patterns))
        further = self._claims(
            content.get("additionalProperties", default), f"{pointer}/additionalProperties"
        )
        others = name_patterns(patterns, further)
        if "propertyNames" in content:
            of_names = self._claims(content["propertyNames"], f"{pointer}/propertyNames")
            names = self._meet_all(of_names).strings
            for name in listed:
                if not self._has_name(names, name):
                    listed[name] = NO_VALUE
            others = tuple(
                (common, claims)
                for pattern, claims in others
                if not is_empty(common := both(pattern, names))
            )
        shape = ObjectShape(
            tuple(listed.items()),
            required,
            others,
            read_count(content, "minProperties", pointer) or 0,
            read_count(content, "maxProperties", pointer),
        )
        is_none = self._shapes.is_surely_empty(shape)
        return replace(ALL_VALUES, objects=() if is_none else (shape,))

    # Keywords that combine schemas.

    def _branches(self, content: Mapping[str, Any], keyword: str, pointer: str) -> list[Values]:
        every = content[keyword]
        if not isinstance(every, list) or not every:
            raise refuse(f"{pointer}/{keyword}", f"is {shown(every)}", "a list of schemas")
        places = (f"{pointer}/{keyword}/{place}" for place in range(len(every)))
        return [
            self._meet_all(self._claims(each, place))
            for each, place in zip(every, places, strict=True)
        ]

    def _all_of(self, content: Mapping[str, Any], pointer: str) -> Values:
        values = ALL_VALUES
        for branch in self._branches(content, "allOf", pointer):
            values = self._shapes.meet(values, branch)
        return values

    def _any_of(self, content: Mapping[str, Any], pointer: str) -> Values:
        return join(self._branches(content, "anyOf", pointer))

    def _one_of(self, content: Mapping[str, Any], pointer: str) -> Values:
        """Return the values of one branch alone.

        Where branches share no value, they are alternatives. Else those of the others are taken
        away, if it can be said what has no part in them.
        """
        branches = self._branches(content, "oneOf", pointer)
        disjoint = {
            (one, other): self._are_disjoint(branches[one], branches[other])
            for other in range(len(branches))
            for one in range(other)
        }
        alone = []
        for place, branch in enumerate(branches):
            values = branch
            for rival_place, rival in enumerate(branches):
                pair = min(place, rival_place), max(place, rival_place)
                if rival_place != place and not disjoint[pair]:
                    values = self._shapes.meet(values, self._shapes.others(rival))
            alone.append(values)
        return join(alone)

    def _are_disjoint(self, one: Values, other: Values) -> bool:
        """Return whether no value is surely in both sets."""
        objects = itertools.product(one.objects, other.objects)
        return self._is_surely_empty(
            self._shapes.meet(replace(one, objects=()), replace(other, objects=())),
            _DISJOINT_DEPTH,
        ) and all(self._share_no_object(mine, theirs) for mine, theirs in objects)

    def _share_no_object(self, one: ObjectShape, other: ObjectShape) -> bool:
        return any(
            self._is_impossible(
                conjoin(self.member(one, name), self.member(other, name)), _DISJOINT_DEPTH
            )
            for name in dict.fromkeys((*one.required, *other.required))
        )

    def _is_surely_empty(self, values: Values, depth: int) -> bool:
        if values.null or values.booleans or not is_empty(values.strings):
            return False
        if not all(has_no_number(numbers) for numbers in values.numbers):
            return False
        required = [
            *([array.at(place) for place in range(array.least)][:100] for array in values.arrays),
            *([self.member(shape, name) for name in shape.required] for shape in values.objects),
        ]
        return all(
            any(self._is_impossible(claims, depth) for claims in members) for members in required
        )

    def _is_impossible(self, claims: Claims, depth: int) -> bool:
        if not depth:
            return False
        words = [each for claim in claims if (each := self._words(claim)) is not None]
        if words and not frozenset.intersection(*words):
            return True
        try:
            values = self._meet_all(claims)
        except _Circular:  # it will be looked into when this schema is known
            return False
        return self._is_surely_empty(values, depth - 1)

    def _words(self, claim: Claim) -> frozenset[str] | None:
        """Return the texts that a schema lists, if it lists texts alone, as of tags."""
        content = self._schemas[claim.schema].content
        if not claim.holds or not isinstance(content, Mapping):
            return None
        every = [content["const"]] if "const" in content else content.get("enum")
        if not isinstance(every, list) or not all(isinstance(each, str) for each in every):
            return None
        return frozenset(every)

    def _not(self, content: Mapping[str, Any], pointer: str) -> Values:
        return self._shapes.others(self._meet_all(self._claims(content["not"], f"{pointer}/not")))

    def _if(self, content: Mapping[str, Any], pointer: str) -> Values:
        """Return what `then` allows of what `if` does, and what `else` allows of the rest."""
        if "if" not in content:
            return ALL_VALUES
        condition, then, otherwise = (
            self._meet_all(self._claims(content.get(keyword, True), f"{pointer}/{keyword}"))
            for keyword in ("if", "then", "else")
        )
        if then == otherwise == ALL_VALUES:
            return ALL_VALUES
        return join(
            [
                self._shapes.meet(condition, then),
                self._shapes.meet(self._shapes.others(condition), otherwise),
            ]
        )

    def _dependent(self, content: Mapping[str, Any], pointer: str) -> Values:
        values = ALL_VALUES
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, each in schemas_by_name(content, keyword, pointer).items():
                place = f"{pointer}/{keyword}/{escaped(name)}"
                if isinstance(each, list) and keyword != "dependentSchemas":
                    names = read_names(each, place)
                    then = replace(ALL_VALUES, objects=(ObjectShape(required=names),))
                else:
                    then = self._meet_all(self._claims(each, place))
                if then == ALL_VALUES:
                    continue
                without_it = replace(ALL_VALUES, objects=(ObjectShape(listed=((name, NO_VALUE),)),))
                with_it = Values(objects=(ObjectShape(required=(name,)),))
                values = self._shapes.meet(
                    values, join([without_it, self._shapes.meet(with_it, then)])
                )
        return values

    # References.

    def _ref(self, content: Mapping[str, Any], pointer: str) -> Values:
        target, place = self._document.find(content["$ref"], f"{pointer}/$ref")
        return self._meet_all(self._claims(target, place))

    def _referred(self, content: Mapping[str, Any], pointer: str) -> Claims:
        """Return what a schema says that is a reference alone, perhaps to another such one."""
        seen = set()
        while True:
            seen.add(pointer)
            target, place = self._document.find(content["$ref"], f"{pointer}/$ref")
            is_alone = isinstance(target, Mapping) and "$ref" in target
            if not is_alone or not ANNOTATIONS.issuperset(target.keys() - {"$ref"}):
                return self._claims(target, place)
            if place in seen:
                raise refuse(f"{pointer}/$ref", "refers to itself", "a schema of a value")
            content, pointer = target, place

    # Properties and items that no other keyword speaks of.

    def _unevaluated(self, content: Mapping[str, Any], pointer: str) -> Values:
        values = ALL_VALUES
        if "unevaluatedProperties" in content:
            rest = self._claims(
                content["unevaluatedProperties"], f"{pointer}/unevaluatedProperties"
            )
            known = evaluated(self._document, content, pointer, "unevaluatedProperties")
            if rest and not known.all_properties:
                patterns = [(read_pattern(each, pointer), ANY_VALUE) for each in known.patterns]
                others = name_patterns(patterns, rest)
                listed = tuple((name, ANY_VALUE) for name in sorted(known.names))
                shape = ObjectShape(listed, others=others)
                values = replace(values, objects=(shape,))
        if "unevaluatedItems" in content:
            rest = self._claims(content["unevaluatedItems"], f"{pointer}/unevaluatedItems")
            known = evaluated(self._document, content, pointer, "unevaluatedItems")
            if rest and not known.all_items:
                array = bounded_array(ArrayShape((ANY_VALUE,) * known.num_items, rest))
                values = replace(values, arrays=(array,))
        return values


@dataclass(frozen=True, slots=True)
class _All:
    """A schema that several claims make together."""

    claims: Claims


@dataclass(frozen=True, slots=True, eq=False)
class _Const:
    """A schema that allows one value."""

    value: Any


_Reader = Callable[[Schemas, Mapping[str, Any], str], Values]


def _without_schemas(read: Callable[[Mapping[str, Any], str], Values]) -> _Reader:
    return lambda schemas, content, pointer: read(content, pointer)


_NUMBERS, _STRINGS = _without_schemas(read_numbers), _without_schemas(read_strings)

# Which method reads a keyword; those that belong together are read at once.
_READERS: dict[str, _Reader] = {
    "type": _without_schemas(read_type),
    "enum": Schemas._enum,
    "const": Schemas._const_keyword,
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        _NUMBERS,
    ),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), _STRINGS),
    **dict.fromkeys(
        (
            *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
            *("contains", "minContains", "maxContains"),
        ),
        Schemas._array_keywords,
    ),
    **dict.fromkeys(
        (
            *("properties", "patternProperties", "additionalProperties", "required"),
            *("minProperties", "maxProperties", "propertyNames"),
        ),
        Schemas._object_keywords,
    ),
    "allOf": Schemas._all_of,
    "anyOf": Schemas._any_of,
    "oneOf": Schemas._one_of,
    "not": Schemas._not,
    **dict.fromkeys(("if", "then", "else"), Schemas._if),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), Schemas._dependent),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), Schemas._unevaluated),
    "$ref": Schemas._ref,
}

KEYWORDS = tuple(_READERS)
