"""Schemas with their keywords, and the values that each allows.

Every keyword is kept to, refused, or known to restrict nothing. Source: JSON Schema 2020-12, and
what earlier drafts named otherwise.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

from inferno.grammar.decide import is_empty, matches
from inferno.grammar.json_numbers import (
    ALL_NUMBERS,
    Bound,
    Kind,
    Numbers,
    TooCostly,
    spelled_numbers,
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
)
from inferno.grammar.json_strings import format_texts, known_formats
from inferno.grammar.regex import (
    ANY,
    ANY_TEXT,
    NOTHING,
    Regex,
    TooComplex,
    UnsupportedRegex,
    alt,
    both,
    literal,
    repeat,
    without,
)
from inferno.grammar.syntax import parse_pattern

MOST_CHARACTERS = 1_000_000  # of a string; a longer one is no answer
_MOST_EXPONENT = 400  # of a number, of ten
_MOST_NESTED = 60  # schemas that say what one and the same value is
_MOST_STEPS = 50_000  # sets of values that are looked into
_MOST_NAME_PATTERNS = 64  # disjoint ones, after all are cut by each other
_DISJOINT_DEPTH = 4  # of members that are looked into to tell objects apart

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_DRAFTS = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")

# Keywords that say something of a schema or of its values, and restrict nothing.
ANNOTATIONS = frozenset(
    {
        *("$schema", "$comment", "$defs", "definitions", "$anchor", "$dynamicAnchor"),
        *("title", "description", "default", "example", "examples", "deprecated", "readOnly"),
        *("writeOnly", "contentMediaType", "contentEncoding", "contentSchema"),
        *("discriminator", "externalDocs", "xml"),  # OpenAPI
    }
)

REFUSED = {
    "$dynamicRef": "a $ref",
    "$recursiveRef": "a $ref",
    "$recursiveAnchor": "an $anchor",
    "$vocabulary": "one of JSON Schema's own drafts",
    "nullable": 'the type "null" beside the other one',
}


class UnsupportedSchema(ValueError):
    """Raised for a schema that can't be kept to; names the keyword, its place, what could be."""


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
        self._document = document
        self._is_closed = is_closed
        self._schemas = [_Schema(True, "#")]  # schema 0 is `true`
        self._numbers: dict[object, int] = {}
        self._values: dict[Claim | Claims, Values] = {}
        self._under_way: list[int] = []
        self._steps = 0
        self._anchors: dict[str, str] | None = None
        self._shapes = Shapes(self._has_name, self.negate)
        self._names: dict[tuple[Regex, str], bool] = {}

    def root(self) -> Claims:
        return self._claims(self._document, "#")

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
            raise self._refuse(
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
            raise self._refuse(pointer, f"is {_shown(content)}", "a schema")
        if "$ref" in content and ANNOTATIONS.issuperset(content.keys() - {"$ref"}):
            return self._referred(content, pointer)
        return (Claim(self._number(pointer, _Schema(content, pointer))),)

    def _number(self, key: object, schema: _Schema) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._schemas)
            self._schemas.append(schema)
        return self._numbers[key]

    def negate(self, claims: Claims) -> Claims:
        """Return the claims that don't all hold if and only if these hold."""
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
        self._check_keywords(schema)
        values = ALL_VALUES
        done = set()
        for keyword in content:
            reader = _READERS.get(keyword)
            if reader is None or reader in done:
                continue
            done.add(reader)
            values = self._shapes.meet(values, self._read_keyword(reader, keyword, schema))
        return values

    def _read_keyword(self, reader: _Reader, keyword: str, schema: _Schema) -> Values:
        pointer = f"{schema.pointer}/{_escaped(keyword)}"
        try:
            return reader(self, schema.content, schema.pointer)
        except Inexpressible as problem:
            raise UnsupportedSchema(f"{pointer} would need to say {problem}") from None
        except TooComplex as problem:
            raise UnsupportedSchema(f"{pointer} is too costly: {problem}") from None

    def _check_keywords(self, schema: _Schema) -> None:
        for keyword, value in schema.content.items():
            if keyword in _READERS or keyword in ANNOTATIONS or keyword.startswith("x-"):
                if keyword == "$schema" and not _is_draft(value):
                    known = ", ".join(_DRAFTS)
                    raise self._refuse(f"{schema.pointer}/$schema", f"is {_shown(value)}", known)
            elif keyword in ("$id", "id") and schema.pointer == "#":
                continue
            elif keyword == "$id":
                raise self._refuse(f"{schema.pointer}/$id", "names a schema", "$defs and $anchor")
            elif keyword in REFUSED and value is not False:
                pointer = f"{schema.pointer}/{keyword}"
                raise self._refuse(pointer, "can't be kept to", REFUSED[keyword])
            else:
                likely = _likely(keyword)
                if likely is not None:
                    pointer = f"{schema.pointer}/{_escaped(keyword)}"
                    raise self._refuse(pointer, "is no keyword", f"{likely}, if this is meant")

    def _refuse(self, pointer: str, problem: str, expected: str) -> UnsupportedSchema:
        return UnsupportedSchema(f"{pointer} {problem}; expected {expected}")

    def _whole(self, content: Mapping[str, Any], keyword: str, pointer: str) -> int | None:
        """Return a count that a keyword gives; None: it isn't there."""
        if keyword not in content:
            return None
        value = content[keyword]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            place = f"{pointer}/{keyword}"
            raise self._refuse(place, f"is {_shown(value)}", "a whole number from 0 on")
        return value

    def _fraction(self, value: Any, pointer: str) -> Fraction:
        if isinstance(value, int) and not isinstance(value, bool):
            number = Decimal(value)
        elif isinstance(value, float):
            number = Decimal(repr(value))
        else:
            raise self._refuse(pointer, f"is {_shown(value)}", "a number")
        if not number.is_finite() or (number and abs(number.adjusted()) > _MOST_EXPONENT):
            expected = f"a number of at most {_MOST_EXPONENT} digits"
            raise self._refuse(pointer, f"is {_shown(value)}", expected)
        return Fraction(number)

    def _type(self, content: Mapping[str, Any], pointer: str) -> Values:
        names = content["type"] if isinstance(content["type"], list) else [content["type"]]
        for name in names:
            if name not in TYPES:
                raise self._refuse(f"{pointer}/type", f"is {_shown(name)}", " or ".join(TYPES))
        return join(_OF_TYPE[name] for name in names)

    def _enum(self, content: Mapping[str, Any], pointer: str) -> Values:
        every = content["enum"]
        if not isinstance(every, list):
            raise self._refuse(f"{pointer}/enum", f"is {_shown(every)}", "a list of values")
        texts = [each for each in every if isinstance(each, str)]
        figures = [each for each in every if _is_number(each)]
        others = [each for each in every if not isinstance(each, str) and not _is_number(each)]
        place = f"{pointer}/enum"
        return join(
            [
                Values(strings=alt(*(self._literal(text, place) for text in texts))),
                self._numbers_of([self._fraction(each, place) for each in figures]),
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
                return Values(strings=self._literal(value, pointer))
            case list():
                claims = tuple(self._const(item, pointer) for item in value)
                size = len(value)
                return Values(arrays=(ArrayShape(claims, NO_VALUE, size, size),))
            case dict():
                for name in value:
                    self._literal(name, pointer)
                listed = tuple((name, self._const(held, pointer)) for name, held in value.items())
                return Values(objects=(ObjectShape(listed, tuple(value), ()),))
            case _:
                return self._numbers_of([self._fraction(value, pointer)])

    def _numbers_of(self, values: list[Fraction]) -> Values:
        return Values(numbers=(Numbers(values=frozenset(values)),)) if values else NO_VALUES

    def _literal(self, text: str, pointer: str) -> Regex:
        try:
            return literal(text)
        except ValueError:
            raise self._refuse(pointer, f"has {text[:40]!a}", "no surrogates") from None

    def _number_keywords(self, content: Mapping[str, Any], pointer: str) -> Values:
        bounds: dict[str, Bound | None] = {}
        for inclusive, exclusive in _BOUNDS:
            found = []
            is_open = content.get(exclusive) is True  # draft 4
            if inclusive in content:
                value = self._fraction(content[inclusive], f"{pointer}/{inclusive}")
                found.append(Bound(value, is_open))
            if exclusive in content and not isinstance(content[exclusive], bool):
                value = self._fraction(content[exclusive], f"{pointer}/{exclusive}")
                found.append(Bound(value, is_open=True))
            elif is_open and inclusive not in content:
                raise self._refuse(f"{pointer}/{exclusive}", "is true", f"{inclusive} beside it")
            sign = 1 if inclusive == "minimum" else -1
            bounds[inclusive] = max(
                found, key=lambda bound: (sign * bound.value, bound.is_open), default=None
            )
        divisors = frozenset[Fraction]()
        if "multipleOf" in content:
            place = f"{pointer}/multipleOf"
            divisor = self._fraction(content["multipleOf"], place)
            if divisor <= 0:
                raise self._refuse(place, f"is {_shown(content['multipleOf'])}", "more than 0")
            divisors = frozenset([divisor])
        numbers = Numbers(low=bounds["minimum"], high=bounds["maximum"], divisors=divisors)
        return replace(ALL_VALUES, numbers=() if numbers.is_surely_empty else (numbers,))

    def _string_keywords(self, content: Mapping[str, Any], pointer: str) -> Values:
        least = self._whole(content, "minLength", pointer) or 0
        most = self._whole(content, "maxLength", pointer)
        if least > MOST_CHARACTERS:
            place = f"{pointer}/minLength"
            raise self._refuse(place, f"is {least}", f"at most {MOST_CHARACTERS}")
        if most is not None and most > MOST_CHARACTERS:
            most = MOST_CHARACTERS
        is_empty_range = most is not None and most < least
        texts = [NOTHING if is_empty_range else repeat(ANY, least, most)]
        if "pattern" in content:
            texts.append(self._pattern(content["pattern"], f"{pointer}/pattern"))
        if "format" in content:
            name = content["format"]
            known = format_texts(name) if isinstance(name, str) else None
            if known is None:
                raise self._refuse(
                    f"{pointer}/format", f"is {_shown(name)}", " or ".join(known_formats())
                )
            texts.append(known)
        return replace(ALL_VALUES, strings=both(*texts))

    def _pattern(self, pattern: Any, pointer: str) -> Regex:
        if not isinstance(pattern, str):
            raise self._refuse(pointer, f"is {_shown(pattern)}", "a regular expression")
        try:
            return parse_pattern(pattern)
        except UnsupportedRegex as problem:
            raise UnsupportedSchema(f"{pointer}: {problem}") from None

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
                    raise self._refuse(f"{pointer}/{keyword}", "is no list", "a list of schemas")
                others = self._claims(listed, f"{pointer}/{keyword}")
        if "additionalItems" in content:
            if isinstance(content.get("items"), list):
                others = self._claims(content["additionalItems"], f"{pointer}/additionalItems")
            elif self._claims(content["additionalItems"], f"{pointer}/additionalItems"):
                raise self._refuse(
                    f"{pointer}/additionalItems", "has no meaning here", "items as a list"
                )
        array = bounded_array(
            ArrayShape(
                first,
                others,
                self._whole(content, "minItems", pointer) or 0,
                self._whole(content, "maxItems", pointer),
                self._contained(content, pointer),
            )
        )
        unique = content.get("uniqueItems", False)
        if unique is not False and (array.most is None or array.most > 1):
            raise self._refuse(
                f"{pointer}/uniqueItems", "can't be kept to", "maxItems of 1, or none"
            )
        return replace(ALL_VALUES, arrays=() if array.is_surely_empty else (array,))

    def _contained(self, content: Mapping[str, Any], pointer: str) -> tuple[Contained, ...]:
        least = self._whole(content, "minContains", pointer)
        most = self._whole(content, "maxContains", pointer)
        if "contains" not in content:
            return ()
        claims = self._claims(content["contains"], f"{pointer}/contains")
        contained = Contained(claims, 1 if least is None else least, most)
        return (contained,) if contained.least or most is not None else ()

    def _object_keywords(self, content: Mapping[str, Any], pointer: str) -> Values:
        patterns = [
            (
                self._pattern(pattern, f"{pointer}/patternProperties"),
                self._claims(each, f"{pointer}/patternProperties/{_escaped(pattern)}"),
            )
            for pattern, each in self._map(content, "patternProperties", pointer).items()
        ]
        listed = {}
        for name, each in self._map(content, "properties", pointer).items():
            self._literal(name, f"{pointer}/properties")
            own = self._claims(each, f"{pointer}/properties/{_escaped(name)}")
            held = [claims for pattern, claims in patterns if self._has_name(pattern, name)]
            listed[name] = conjoin(own, *held)
        required = self._texts(content.get("required", []), f"{pointer}/required")
        default = not (self._is_closed and ("properties" in content or patterns))
        further = self._claims(
            content.get("additionalProperties", default), f"{pointer}/additionalProperties"
        )
        others = self._name_patterns(patterns, further, pointer)
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
            self._whole(content, "minProperties", pointer) or 0,
            self._whole(content, "maxProperties", pointer),
        )
        is_none = self._shapes.is_surely_empty(shape)
        return replace(ALL_VALUES, objects=() if is_none else (shape,))

    def _name_patterns(
        self, patterns: list[tuple[Regex, Claims]], further: Claims, pointer: str
    ) -> tuple[tuple[Regex, Claims], ...]:
        """Return disjoint patterns for all names, and what holds of their members."""
        groups: list[tuple[Regex, Claims | None]] = [(ANY_TEXT, None)]
        for pattern, claims in patterns:
            cut: list[tuple[Regex, Claims | None]] = []
            for names, held in groups:
                inside, outside = both(names, pattern), both(names, without(pattern))
                cut.append((inside, claims if held is None else conjoin(held, claims)))
                cut.append((outside, held))
            groups = [(names, held) for names, held in cut if not is_empty(names)]
            if len(groups) > _MOST_NAME_PATTERNS:
                place = f"{pointer}/patternProperties"
                raise self._refuse(place, "has too many patterns", "fewer that overlap")
        every = ((names, further if held is None else held) for names, held in groups)
        return tuple((names, held) for names, held in every if held != NO_VALUE)

    def _map(self, content: Mapping[str, Any], keyword: str, pointer: str) -> Mapping[str, Any]:
        value = content.get(keyword, {})
        if not isinstance(value, Mapping):
            raise self._refuse(f"{pointer}/{keyword}", f"is {_shown(value)}", "an object")
        return value

    def _texts(self, value: Any, pointer: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._refuse(pointer, f"is {_shown(value)}", "a list of names")
        for name in value:
            self._literal(name, pointer)
        return tuple(dict.fromkeys(value))

    # Keywords that combine schemas.

    def _branches(self, content: Mapping[str, Any], keyword: str, pointer: str) -> list[Values]:
        every = content[keyword]
        if not isinstance(every, list) or not every:
            raise self._refuse(f"{pointer}/{keyword}", f"is {_shown(every)}", "a list of schemas")
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
        alone = []
        for place, branch in enumerate(branches):
            values = branch
            for rival_place, rival in enumerate(branches):
                self._steps += 1
                if rival_place != place and not self._are_disjoint(branch, rival):
                    values = self._shapes.meet(values, self._shapes.others(rival))
            alone.append(values)
        return join(alone)

    def _are_disjoint(self, one: Values, other: Values) -> bool:
        """Return whether no value is surely in both sets."""
        return self._is_surely_empty(self._shapes.meet(one, other), _DISJOINT_DEPTH)

    def _is_surely_empty(self, values: Values, depth: int) -> bool:
        if values.null or values.booleans or not is_empty(values.strings):
            return False
        if not all(_has_no_number(numbers) for numbers in values.numbers):
            return False
        required = [
            [array.at(place) for place in range(array.least)][:100] for array in values.arrays
        ] + [
            [self._shapes.member(shape, name) for name in shape.required]
            for shape in values.objects
        ]
        return all(
            any(self._is_impossible(claims, depth) for claims in members) for members in required
        )

    def _is_impossible(self, claims: Claims, depth: int) -> bool:
        if not depth:
            return False
        try:
            values = self._meet_all(claims)
        except _Circular:  # it will be looked into when this schema is known
            return False
        return self._is_surely_empty(values, depth - 1)

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
            for name, each in self._map(content, keyword, pointer).items():
                place = f"{pointer}/{keyword}/{_escaped(name)}"
                self._literal(name, place)
                if isinstance(each, list) and keyword != "dependentSchemas":
                    names = self._texts(each, place)
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
        target, place = self._target(content["$ref"], f"{pointer}/$ref")
        return self._meet_all(self._claims(target, place))

    def _referred(self, content: Mapping[str, Any], pointer: str) -> Claims:
        """Return what a schema says that is a reference alone, perhaps to another such one."""
        seen = set()
        while True:
            seen.add(pointer)
            target, place = self._target(content["$ref"], f"{pointer}/$ref")
            is_alone = isinstance(target, Mapping) and "$ref" in target
            if not is_alone or not ANNOTATIONS.issuperset(target.keys() - {"$ref"}):
                return self._claims(target, place)
            if place in seen:
                raise self._refuse(f"{pointer}/$ref", "refers to itself", "a schema of a value")
            content, pointer = target, place

    def _target(self, reference: Any, pointer: str) -> tuple[Any, str]:
        """Return the schema that a reference names, and its place."""
        expected = "a part of this schema such as #/$defs/name"
        if not isinstance(reference, str):
            raise self._refuse(pointer, f"is {_shown(reference)}", expected)
        own = self._document.get("$id") if isinstance(self._document, Mapping) else None
        if isinstance(own, str) and own and reference.partition("#")[0] == own.partition("#")[0]:
            reference = "#" + reference.partition("#")[2]
        if not reference.startswith("#"):
            raise self._refuse(pointer, f"is {_shown(reference)}", expected)
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            if self._anchors is None:
                self._anchors = dict(_anchors(self._document, "#"))
            if fragment not in self._anchors:
                raise self._refuse(pointer, f"is {_shown(reference)}", "an $anchor that is there")
            fragment = self._anchors[fragment][1:]
        target: Any = self._document
        parts = fragment.split("/")[1:]
        for depth, part in enumerate(parts):
            name = part.replace("~1", "/").replace("~0", "~")
            if depth and isinstance(target, Mapping) and "$id" in target:
                raise self._refuse(pointer, "leads into a schema with an $id", expected)
            if isinstance(target, Mapping) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise self._refuse(pointer, f"is {_shown(reference)}, which isn't there", expected)
        place = "/".join(["#", *(part for part in parts)])
        if not isinstance(target, Mapping | bool):
            raise self._refuse(pointer, f"is {_shown(reference)}, which is no schema", expected)
        return target, place

    # Properties and items that no other keyword speaks of.

    def _unevaluated(self, content: Mapping[str, Any], pointer: str) -> Values:
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in content and self._claims(content[keyword], f"{pointer}/{keyword}"):
                raise self._refuse(f"{pointer}/{keyword}", "can't be kept to", "none")
        return ALL_VALUES


@dataclass(frozen=True, slots=True)
class _All:
    """A schema that several claims make together."""

    claims: Claims


@dataclass(frozen=True, slots=True, eq=False)
class _Const:
    """A schema that allows one value."""

    value: Any


_Reader = Callable[[Schemas, Mapping[str, Any], str], Values]

_BOUNDS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))

_OF_TYPE = {
    "null": Values(null=True),
    "boolean": Values(booleans=ALL_VALUES.booleans),
    "integer": Values(numbers=(Numbers(Kind.INTEGER),)),
    "number": Values(numbers=(ALL_NUMBERS,)),
    "string": Values(strings=ANY_TEXT),
    "array": Values(arrays=ALL_VALUES.arrays),
    "object": Values(objects=ALL_VALUES.objects),
}

# Which method reads a keyword; those that belong together are read at once.
_READERS: dict[str, _Reader] = {
    "type": Schemas._type,
    "enum": Schemas._enum,
    "const": Schemas._const_keyword,
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        Schemas._number_keywords,
    ),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), Schemas._string_keywords),
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


def _has_no_number(numbers: Numbers) -> bool:
    try:
        return is_empty(spelled_numbers(numbers))
    except TooCostly:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_draft(value: Any) -> bool:
    return isinstance(value, str) and any(
        value.rstrip("#") == f"{start}://json-schema.org/{draft}/schema"
        for start in ("http", "https")
        for draft in _DRAFTS
    )


def _likely(keyword: str) -> str | None:
    """Return the keyword that a word was meant to be, if it is almost one."""
    known = [*_READERS, *ANNOTATIONS]
    by_lower = {each.lower(): each for each in known}
    lower = keyword.lower().lstrip("$")
    if lower in by_lower or f"${lower}" in by_lower:
        return by_lower.get(lower) or by_lower[f"${lower}"]
    close = difflib.get_close_matches(keyword, known, 1, 0.84)
    return close[0] if close else None


def _anchors(content: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield the anchors of a document and their places."""
    if isinstance(content, Mapping):
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(content.get(keyword), str):
                yield content[keyword], pointer
        for keyword, each in content.items():
            if keyword not in ("enum", "const", "default", "examples", "example"):
                yield from _anchors(each, f"{pointer}/{_escaped(keyword)}")
    elif isinstance(content, list):
        for place, each in enumerate(content):
            yield from _anchors(each, f"{pointer}/{place}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
