"""Define sets of JSON values as unions of shapes: what a schema allows, without its keywords.

A value of `Values` may be null, a boolean, a number of some sets, a string of some texts, an array
or an object of some shapes. What holds of items and members is named by claims, which are looked
into when rules are made of them; so schemas may contain themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from inferno.grammar.decide import is_empty
from inferno.grammar.json_numbers import (
    ALL_NUMBERS,
    Numbers,
    meet_numbers,
    other_numbers,
)
from inferno.grammar.regex import ANY_TEXT, NOTHING, Regex, alt, both, without

_T = TypeVar("_T")

MOST_SHAPES = 400  # of arrays, and of objects, that one schema's combinations may have

_MOST_NAME_PATTERNS = 32  # disjoint ones, after all are cut by each other

# Positions of items that are written out one by one.
_MOST_PLACES = 1000


class Inexpressible(Exception):
    """Raised where shapes can't say what a schema allows, or only too many; its text is why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A schema, by its number, and whether a value is valid by it or not."""

    schema: int
    holds: bool = True


Claims: TypeAlias = tuple[Claim, ...]  # all of them are so

ANY_VALUE: Claims = ()
NO_VALUE: Claims = (Claim(0, holds=False),)  # schema 0 is `true`


@dataclass(frozen=True, slots=True)
class Contained:
    """A number of items of which claims hold."""

    claims: Claims
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Arrays: what the first items are, what the others are, how many there are."""

    first: tuple[Claims, ...] = ()
    others: Claims = ANY_VALUE
    least: int = 0
    most: int | None = None
    contained: tuple[Contained, ...] = ()

    def at(self, place: int) -> Claims:
        return self.first[place] if place < len(self.first) else self.others

    @property
    def is_surely_empty(self) -> bool:
        return self.most is not None and self.most < self.least


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Objects: members by name, then others by disjoint patterns of names; no others than these.

    listed    names that the schema speaks of, in their order.
    required  names that must be there, listed or not.
    least, most  how many members there are.
    """

    listed: tuple[tuple[str, Claims], ...] = ()
    required: tuple[str, ...] = ()
    others: tuple[tuple[Regex, Claims], ...] = ((ANY_TEXT, ANY_VALUE),)
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """A set of values; without anything, none."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: Regex = NOTHING
    arrays: tuple[ArrayShape, ...] = ()
    objects: tuple[ObjectShape, ...] = ()


ALL_VALUES = Values(
    null=True,
    booleans=frozenset([True, False]),
    numbers=(ALL_NUMBERS,),
    strings=ANY_TEXT,
    arrays=(ArrayShape(),),
    objects=(ObjectShape(),),
)
NO_VALUES = Values()


def conjoin(*claims: Claims) -> Claims:
    """Return all claims once, or `NO_VALUE` where two contradict each other."""
    together = dict.fromkeys(claim for each in claims for claim in each)
    for claim in together:
        if Claim(claim.schema, not claim.holds) in together:
            return NO_VALUE
    return NO_VALUE if NO_VALUE[0] in together else tuple(together)


class Shapes:
    """The operations on sets of values.

    has_name   whether a pattern of names has a name.
    negate     returns claims that hold if and only if the given ones don't all hold.
    """

    def __init__(
        self, has_name: Callable[[Regex, str], bool], negate: Callable[[Claims], Claims]
    ) -> None:
        self._has_name = has_name
        self._negate = negate

    def meet(self, one: Values, other: Values) -> Values:
        """Return the values that are in both sets."""
        if one in (ALL_VALUES, other):
            return other
        if other == ALL_VALUES:
            return one
        return Values(
            one.null and other.null,
            one.booleans & other.booleans,
            _distinct(
                numbers
                for mine in one.numbers
                for theirs in other.numbers
                if not (numbers := meet_numbers(mine, theirs)).is_surely_empty
            ),
            both(one.strings, other.strings),
            _distinct(
                array
                for mine in one.arrays
                for theirs in other.arrays
                if not (array := _meet_arrays(mine, theirs)).is_surely_empty
            ),
            _distinct(
                shape
                for mine in one.objects
                for theirs in other.objects
                if not self.is_surely_empty(shape := self._meet_objects(mine, theirs))
            ),
        )

    def others(self, values: Values) -> Values:
        """Return the values that are not in the set."""
        rest = Values(
            not values.null,
            frozenset([True, False]) - values.booleans,
            ALL_VALUES.numbers,
            without(values.strings),
            ALL_VALUES.arrays,
            ALL_VALUES.objects,
        )
        for numbers in values.numbers:
            rest = self.meet(rest, replace(ALL_VALUES, numbers=tuple(other_numbers(numbers))))
        for array in values.arrays:
            rest = self.meet(rest, replace(ALL_VALUES, arrays=tuple(self._other_arrays(array))))
        for shape in values.objects:
            rest = self.meet(rest, replace(ALL_VALUES, objects=tuple(self._other_objects(shape))))
        return rest

    def is_surely_empty(self, shape: ObjectShape) -> bool:
        if shape.most is not None and shape.most < max(shape.least, len(shape.required)):
            return True
        return any(self.member(shape, name) == NO_VALUE for name in shape.required)

    def member(self, shape: ObjectShape, name: str) -> Claims:
        """Return the claims that hold of an object's member of some name."""
        for listed, claims in shape.listed:
            if listed == name:
                return claims
        for pattern, claims in shape.others:
            if self._has_name(pattern, name):
                return claims
        return NO_VALUE

    def _meet_objects(self, one: ObjectShape, other: ObjectShape) -> ObjectShape:
        if one == other or other == ObjectShape():
            return one
        if one == ObjectShape():
            return other
        names = dict.fromkeys(name for shape in (one, other) for name, _ in shape.listed)
        mine, theirs = dict(one.listed), dict(other.listed)
        listed = []
        for name in names:
            first = mine[name] if name in mine else self.member(one, name)
            second = theirs[name] if name in theirs else self.member(other, name)
            listed.append((name, conjoin(first, second)))
        patterns = []
        for pattern, claims in one.others:
            for second_pattern, second_claims in other.others:
                common = both(pattern, second_pattern)
                if common != NOTHING and (together := conjoin(claims, second_claims)) != NO_VALUE:
                    patterns.append((common, together))
        if len(patterns) > MOST_SHAPES:
            raise Inexpressible(f"more than {MOST_SHAPES} patterns of names")
        return ObjectShape(
            tuple(listed),
            _distinct((*one.required, *other.required)),
            tuple(patterns),
            max(one.least, other.least),
            _smaller(one.most, other.most),
        )

    def _other_arrays(self, array: ArrayShape) -> Iterator[ArrayShape]:
        """Yield shapes that together have all arrays but these."""
        if array.least:
            yield ArrayShape(most=array.least - 1)
        if array.most is not None:
            yield ArrayShape(least=array.most + 1)
        for place, claims in enumerate(array.first[: array.most]):
            if claims != ANY_VALUE:
                first = (ANY_VALUE,) * place + (self._negate(claims),)
                yield ArrayShape(first, least=place + 1)
        if array.others != ANY_VALUE and (array.most is None or array.most > len(array.first)):
            if array.first:
                raise Inexpressible("that one of the items after the first ones is not so")
            yield ArrayShape(contained=(Contained(self._negate(array.others), 1, None),))
        for contained in array.contained:
            if contained.least:
                yield ArrayShape(contained=(replace(contained, least=0, most=contained.least - 1),))
            if contained.most is not None:
                yield ArrayShape(
                    contained=(replace(contained, least=contained.most + 1, most=None),)
                )

    def _other_objects(self, shape: ObjectShape) -> Iterator[ObjectShape]:
        """Yield shapes that together have all objects but these."""
        for name in shape.required:
            yield ObjectShape(((name, NO_VALUE),))
        for name, claims in shape.listed:
            if claims != ANY_VALUE:
                yield ObjectShape(((name, self._negate(claims)),), required=(name,))
        if shape.others != ((ANY_TEXT, ANY_VALUE),):
            raise Inexpressible("that one of the properties that aren't listed is not so")
        if shape.least:
            yield ObjectShape(most=shape.least - 1)
        if shape.most is not None:
            yield ObjectShape(least=shape.most + 1)


def join(every: Iterable[Values]) -> Values:
    """Return the values that are in one of the sets."""
    every = list(every)
    return Values(
        any(each.null for each in every),
        frozenset(held for each in every for held in each.booleans),
        _distinct(held for each in every for held in each.numbers),
        alt(*(each.strings for each in every)),
        _distinct(held for each in every for held in each.arrays),
        _distinct(held for each in every for held in each.objects),
    )


def name_patterns(
    patterns: list[tuple[Regex, Claims]], further: Claims
) -> tuple[tuple[Regex, Claims], ...]:
    """Return disjoint patterns for all names, with what all that match say of a member.

    further  what holds where none matches.
    """
    # A group of names: the patterns that all match, those that none does, and their claims.
    groups: list[tuple[list[Regex], list[Regex], Claims | None]] = [([], [], None)]
    for pattern, claims in patterns:
        cut: list[tuple[list[Regex], list[Regex], Claims | None]] = []
        for inside, outside, held in groups:
            matching = [*inside, pattern]
            needed = [each for each in outside if not is_empty(both(*matching, each))]
            if is_empty(both(*matching, *map(without, needed))):
                cut.append((inside, outside, held))
                continue
            cut.append((matching, needed, claims if held is None else conjoin(held, claims)))
            if not is_empty(both(*inside, *map(without, [*outside, pattern]))):
                cut.append((inside, [*outside, pattern], held))
        groups = cut
        if len(groups) > _MOST_NAME_PATTERNS:
            raise Inexpressible(f"more than {_MOST_NAME_PATTERNS} overlaps of patterns")
    every = (
        (both(*inside, *map(without, outside)), further if held is None else held)
        for inside, outside, held in groups
    )
    return tuple((names, held) for names, held in every if held != NO_VALUE)


def _meet_arrays(one: ArrayShape, other: ArrayShape) -> ArrayShape:
    if one == other or other == ArrayShape():
        return one
    num_first = max(len(one.first), len(other.first))
    return bounded_array(
        ArrayShape(
            tuple(conjoin(one.at(place), other.at(place)) for place in range(num_first)),
            conjoin(one.others, other.others),
            max(one.least, other.least),
            _smaller(one.most, other.most),
            _distinct((*one.contained, *other.contained)),
        )
    )


def bounded_array(array: ArrayShape) -> ArrayShape:
    """Return the shape with as many items at most as can be: none is where no value may be."""
    if len(array.first) > _MOST_PLACES:
        raise Inexpressible(f"more than {_MOST_PLACES} items that are listed one by one")
    most = array.most
    if array.others == NO_VALUE:
        most = _smaller(most, len(array.first))
    for place, claims in enumerate(array.first):
        if claims == NO_VALUE:
            most = _smaller(most, place)
    first = array.first if most is None else array.first[: max(0, most)]
    return replace(array, first=first, most=most)


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _distinct(items: Iterable[_T]) -> tuple[_T, ...]:
    """Return the items, each once, in their order."""
    found: dict[_T, None] = {}
    for item in items:
        found[item] = None
        if len(found) > MOST_SHAPES:
            raise Inexpressible(f"more than {MOST_SHAPES} combinations of what it allows")
    return tuple(found)
