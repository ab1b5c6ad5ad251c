"""Define sets of numbers, and the regular expressions of their spellings in JSON.

A number has one integer part without leading zeros, and may have a fraction. Where nothing is said
of its value it may have an exponent too; where bounds or divisors are, it may not, and a fraction
is so short that a reader that keeps numbers as doubles finds the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache

from inferno.grammar.json_strings import any_of
from inferno.grammar.regex import (
    EMPTY,
    NOTHING,
    Regex,
    alt,
    both,
    char_set,
    chars,
    literal,
    repeat,
    seq,
    without,
)

# A double has fewer than 309 digits before its point, and keeps 15 digits of any number.
_MOST_DIGITS = 309
_MOST_FRACTION_DIGITS = 32
_EXACT_DIGITS = 15

# The remainders of a division that are followed from digit to digit; then the states that are left
# when those that agree are one, for a regular expression can be exponential in them.
_MOST_REMAINDERS = 2000
_MOST_STATES = 6
_MOST_LISTED = 2000  # multiples within bounds, written out one by one


class TooCostly(Exception):
    """Raised where the members of a set can't be told by a regular expression of some size."""


class Kind(Enum):
    """The numbers that have no fraction, those that have one, or all of them."""

    ALL = "all"
    INTEGER = "integer"
    FRACTION = "fraction"


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range; `is_open`: the value itself is outside."""

    value: Fraction
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that keep to all of the fields; `values`: the only members, already checked."""

    kind: Kind = Kind.ALL
    low: Bound | None = None
    high: Bound | None = None
    divisors: frozenset[Fraction] = frozenset()
    not_divisors: frozenset[Fraction] = frozenset()
    excluded: frozenset[Fraction] = frozenset()
    values: frozenset[Fraction] | None = None

    def __contains__(self, value: Fraction) -> bool:
        if self.values is not None and value not in self.values:
            return False
        is_integer = value.denominator == 1
        return (
            self.kind is not (Kind.FRACTION if is_integer else Kind.INTEGER)
            and _is_above(value, self.low)
            and _is_below(value, self.high)
            and all(_divides(each, value) for each in self.divisors)
            and not any(_divides(each, value) for each in self.not_divisors)
            and value not in self.excluded
        )

    @property
    def is_surely_empty(self) -> bool:
        if self.values is not None:
            return not self.values
        if self.low is None or self.high is None:
            return False
        low, high = self.low.value, self.high.value
        return low > high or (low == high and (self.low.is_open or self.high.is_open))


ALL_NUMBERS = Numbers()
NO_NUMBERS = Numbers(values=frozenset())


def meet_numbers(one: Numbers, other: Numbers) -> Numbers:
    """Return the numbers that are in both sets."""
    if one.values is not None or other.values is not None:
        mine, theirs = (one, other) if one.values is not None else (other, one)
        assert mine.values is not None
        return Numbers(values=frozenset(each for each in mine.values if each in theirs))
    kinds = {one.kind, other.kind} - {Kind.ALL}
    if len(kinds) == 2:
        return NO_NUMBERS
    lows = [each.low for each in (one, other) if each.low is not None]
    highs = [each.high for each in (one, other) if each.high is not None]
    divisors = one.divisors | other.divisors
    not_divisors = one.not_divisors | other.not_divisors
    kind = kinds.pop() if kinds else Kind.ALL
    if any(each.denominator == 1 for each in divisors):  # then it divides no fraction
        if kind is Kind.FRACTION:
            return NO_NUMBERS
        kind = Kind.INTEGER
    dividing = divisors | {Fraction(1)} if kind is Kind.INTEGER else divisors
    if any(_divides(each, known) for each in not_divisors for known in dividing):
        return NO_NUMBERS
    return Numbers(
        kind,
        max(lows, key=lambda low: (low.value, low.is_open), default=None),
        min(highs, key=lambda high: (high.value, not high.is_open), default=None),
        frozenset(each for each in divisors if not any(_is_less(each, more) for more in divisors)),
        not_divisors,
        one.excluded | other.excluded,
    )


def other_numbers(numbers: Numbers) -> list[Numbers]:
    """Return sets whose union has every number that `numbers` lacks."""
    if numbers.values is not None:
        return [Numbers(excluded=numbers.values)]
    others = []
    if numbers.kind is not Kind.ALL:
        is_integer = numbers.kind is Kind.INTEGER
        others.append(Numbers(Kind.FRACTION if is_integer else Kind.INTEGER))
    if numbers.low is not None:
        others.append(Numbers(high=Bound(numbers.low.value, not numbers.low.is_open)))
    if numbers.high is not None:
        others.append(Numbers(low=Bound(numbers.high.value, not numbers.high.is_open)))
    others += [Numbers(not_divisors=frozenset([each])) for each in sorted(numbers.divisors)]
    others += [Numbers(divisors=frozenset([each])) for each in sorted(numbers.not_divisors)]
    if numbers.excluded:
        others.append(Numbers(values=numbers.excluded))
    return others


def _divides(one: Fraction, other: Fraction) -> bool:
    return (other / one).denominator == 1


def _is_less(one: Fraction, other: Fraction) -> bool:
    """Return whether all that another number divides is divided by one, and more."""
    return one != other and _divides(one, other)


def _is_above(value: Fraction, low: Bound | None) -> bool:
    return low is None or value > low.value or (value == low.value and not low.is_open)


def _is_below(value: Fraction, high: Bound | None) -> bool:
    return high is None or value < high.value or (value == high.value and not high.is_open)


# How they are spelled.

_DIGIT = chars((ord("0"), ord("9")))
_NON_ZERO = chars((ord("1"), ord("9")))
_ZEROS = repeat(literal("0"), 0, None)
_DIGITS = repeat(_DIGIT, 0, None)
_SOME_NON_ZERO = seq(_DIGITS, _NON_ZERO, _DIGITS)
_MINUS = repeat(literal("-"), 0, 1)
_POINT = literal(".")

_POSITIVE_WHOLE = seq(_NON_ZERO, repeat(_DIGIT, 0, _MOST_DIGITS - 1))
_WHOLE = alt(literal("0"), _POSITIVE_WHOLE)
_INTEGER = alt(literal("0"), seq(_MINUS, _POSITIVE_WHOLE))

_EXACT = seq(_MINUS, repeat(alt(_DIGIT, _POINT), 1, _EXACT_DIGITS + 1))
_EXACT_FRACTION = both(seq(_MINUS, _WHOLE, _POINT, repeat(_DIGIT, 1, None)), _EXACT)
_PLAIN = alt(_INTEGER, _EXACT_FRACTION)  # without an exponent

# 16 digits and an exponent up to 289 stay within the range of a double.
_EXPONENT = alt(
    repeat(_DIGIT, 1, 2),
    seq(literal("1"), _DIGIT, _DIGIT),
    seq(literal("2"), chars((ord("0"), ord("8"))), _DIGIT),
)
_SCIENTIFIC = seq(
    _MINUS,
    alt(literal("0"), seq(_NON_ZERO, repeat(_DIGIT, 0, 15))),
    repeat(seq(_POINT, repeat(_DIGIT, 1, _MOST_FRACTION_DIGITS)), 0, 1),
    char_set("Ee"),
    repeat(char_set("+-"), 0, 1),
    _EXPONENT,
)
_NUMBER = alt(
    seq(_MINUS, _WHOLE, repeat(seq(_POINT, repeat(_DIGIT, 1, _MOST_FRACTION_DIGITS)), 0, 1)),
    _SCIENTIFIC,
)


@lru_cache(maxsize=256)
def spelled_numbers(numbers: Numbers) -> Regex:
    """Return the regular expression of the spellings of a set's members.

    Raises TooCostly where a divisor has too many remainders.
    """
    if numbers.is_surely_empty:
        return NOTHING
    if numbers.values is not None:
        return any_of(decimal_text(each) for each in sorted(numbers.values))
    if numbers == ALL_NUMBERS:
        return _NUMBER
    listed = _listed(numbers)
    if listed is not None:
        return any_of(decimal_text(each) for each in listed)
    rules = [_INTEGER if numbers.kind is Kind.INTEGER else _PLAIN]
    if numbers.kind is Kind.FRACTION:
        rules.append(seq(_MINUS, _DIGITS, _POINT, _SOME_NON_ZERO))
    if numbers.low is not None or numbers.high is not None:
        rules.append(_range(numbers.low, numbers.high))
    is_integer = numbers.kind is Kind.INTEGER
    rules += [_multiples(each, is_integer) for each in sorted(numbers.divisors)]
    rules += [without(_multiples(each, is_integer)) for each in sorted(numbers.not_divisors)]
    rules += [without(_any_spelling(each)) for each in sorted(numbers.excluded)]
    return both(*rules)


def decimal_text(value: Fraction) -> str:
    """Return a number as its digits, without an exponent and without zeros at the end."""
    whole, fraction = _digits(abs(value))
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _digits(value: Fraction) -> tuple[str, str]:
    """Return the digits before and after the point of a number that is not negative."""
    whole, rest = divmod(value.numerator, value.denominator)
    places = _num_places(value)
    return str(whole), f"{rest * 10**places // value.denominator:0{places}d}" if places else ""


def _num_places(value: Fraction) -> int:
    """Return how many digits a decimal number has after its point."""
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        places = max(places, power)
    assert rest == 1, "JSON's numbers are decimal"
    return places


def _any_spelling(value: Fraction) -> Regex:
    """Return the value with zeros at its end, and without."""
    whole, fraction = _digits(abs(value))
    sign = literal("-") if value < 0 else EMPTY if value else _MINUS
    if fraction:
        return seq(sign, literal(f"{whole}.{fraction}"), _ZEROS)
    return seq(sign, literal(whole), repeat(seq(_POINT, _ZEROS), 0, 1))


def _listed(numbers: Numbers) -> list[Fraction] | None:
    """Return the members one by one, if they are multiples within two bounds and few."""
    if numbers.low is None or numbers.high is None:
        return None
    steps = [each for each in numbers.divisors if numbers.kind is not Kind.INTEGER]
    if numbers.kind is Kind.INTEGER and numbers.divisors:
        steps = [Fraction(max(each.numerator for each in numbers.divisors))]
    if not steps:
        return None
    step = max(steps)
    first, last = -(-numbers.low.value // step), numbers.high.value // step
    if last - first >= _MOST_LISTED:
        return None
    each_one = (step * count for count in range(first, last + 1))
    return [each for each in each_one if each in numbers]


def _range(low: Bound | None, high: Bound | None) -> Regex:
    """Return all texts of plain numbers between both bounds, and others that are no such text."""
    zero = Bound(Fraction(0))
    not_negative = both(
        _at_least(low if low is not None and low.value >= 0 else zero),
        _at_most(high) if high is not None else _unsigned(),
    )
    if high is not None and high.value < 0:
        not_negative = NOTHING
    if low is not None and low.value >= 0:
        return not_negative
    least = zero if high is None or high.value >= 0 else Bound(-high.value, high.is_open)
    sizes = [_at_least(Bound(least.value, least.is_open or not least.value))]
    if low is not None:
        sizes.append(_at_most(Bound(-low.value, low.is_open)))
    return alt(not_negative, seq(literal("-"), both(*sizes)))


def _unsigned() -> Regex:
    return seq(_DIGITS, repeat(seq(_POINT, _DIGITS), 0, 1))


def _at_least(bound: Bound) -> Regex:
    """Return the texts of plain numbers from a bound on that is not negative."""
    whole, fraction = _digits(bound.value)
    larger = [seq(_NON_ZERO, repeat(_DIGIT, len(whole), None))]
    for place, digit in enumerate(whole):
        above = _from_to(int(digit) + 1, 9)
        rest = repeat(_DIGIT, len(whole) - place - 1, len(whole) - place - 1)
        larger.append(seq(literal(whole[:place]), above, rest))
    any_fraction = repeat(seq(_POINT, _DIGITS), 0, 1)
    if not fraction:
        more = seq(_POINT, _SOME_NON_ZERO) if bound.is_open else any_fraction
        return alt(seq(alt(*larger), any_fraction), seq(literal(whole), more))
    ends = [
        seq(literal(fraction[:place]), _from_to(int(digit) + 1, 9), _DIGITS)
        for place, digit in enumerate(fraction)
    ]
    ends.append(seq(literal(fraction), _SOME_NON_ZERO if bound.is_open else _DIGITS))
    return alt(seq(alt(*larger), any_fraction), seq(literal(whole), _POINT, alt(*ends)))


def _at_most(bound: Bound) -> Regex:
    """Return the texts of plain numbers without a sign up to a bound that is not negative."""
    if bound.value < 0 or (bound.is_open and not bound.value):
        return NOTHING
    whole, fraction = _digits(bound.value)
    smaller = [repeat(_DIGIT, 1, len(whole) - 1)] if len(whole) > 1 else []
    for place, digit in enumerate(whole):
        below = _from_to(0, int(digit) - 1)
        rest = repeat(_DIGIT, len(whole) - place - 1, len(whole) - place - 1)
        smaller.append(seq(literal(whole[:place]), below, rest))
    any_fraction = repeat(seq(_POINT, _DIGITS), 0, 1)
    if not fraction:
        same = NOTHING if bound.is_open else repeat(seq(_POINT, _ZEROS), 0, 1)
        return alt(seq(alt(*smaller), any_fraction), seq(literal(whole), same))
    ends = [
        seq(literal(fraction[:place]), _from_to(0, int(digit) - 1), _DIGITS)
        for place, digit in enumerate(fraction)
    ]
    ends += [literal(fraction[:place]) for place in range(1, len(fraction))]
    if not bound.is_open:
        ends.append(seq(literal(fraction), _ZEROS))
    same = repeat(seq(_POINT, alt(*ends)), 0, 1)
    return alt(seq(alt(*smaller), any_fraction), seq(literal(whole), same))


def _from_to(first: int, last: int) -> Regex:
    return chars((ord("0") + first, ord("0") + last)) if first <= last else NOTHING


@lru_cache(maxsize=64)
def _multiples(divisor: Fraction, is_integer: bool) -> Regex:
    """Return the texts of plain numbers that a divisor divides, and others that are no such text.

    An automaton reads digits and keeps the remainder of what it has read; in the fraction it counts
    places too, until the divisor has no more of them. Then only zeros may come.
    """
    places = 0 if is_integer else _num_places(divisor)
    modulus = divisor.numerator if is_integer else int(divisor * 10**places)
    if modulus > _MOST_REMAINDERS or places > _MOST_FRACTION_DIGITS:
        raise TooCostly(f"a division by {decimal_text(divisor)} has too many remainders")
    factors = _prime_powers(modulus) or [1]
    return seq(_MINUS, both(*(_digits_divided(each, places) for each in factors)))


def _prime_powers(number: int) -> list[int]:
    """Return the powers of different primes whose product a number is: they divide on their own."""
    powers = []
    prime = 2
    while number > 1:
        power = 1
        while number % prime == 0:
            number //= prime
            power *= prime
        if power > 1:
            powers.append(power)
        prime += 1
    return powers


def _digits_divided(modulus: int, places: int) -> Regex:
    """Return the texts of digits, a point and digits whose value is divided."""
    # State 0 to modulus-1: in the integer part. Then a state per place and remainder.
    end = modulus * (places + 2)
    moves: dict[int, dict[str, int]] = {end: {"0": end}}
    accepting = {end}
    for remainder in range(modulus):
        moves[remainder] = {str(digit): (remainder * 10 + digit) % modulus for digit in range(10)}
        moves[remainder]["."] = modulus + remainder
    for place in range(places + 1):
        for remainder in range(modulus):
            state = modulus * (place + 1) + remainder
            if place < places:
                after = modulus * (place + 2)
                moves[state] = {
                    str(digit): after + (remainder * 10 + digit) % modulus for digit in range(10)
                }
            else:
                moves[state] = {"0": end} if remainder == 0 else {}
            if remainder * 10 ** (places - place) % modulus == 0:
                accepting.add(state)
                if place == 0:
                    accepting.add(remainder)
    return _expression(moves, accepting, modulus)


def _expression(
    moves: Mapping[int, Mapping[str, int]], accepting: Iterable[int], num_repeating: int
) -> Regex:
    """Return what an automaton accepts from state 0 on, as a regular expression.

    Only among the first states is there a way back: their number makes the expression large.

    States that agree become one (Moore), then one after the other is taken out (Kleene).
    """
    accepting = set(accepting)
    block = {state: int(state in accepting) for state in moves}
    while True:
        seen: dict[tuple[object, ...], int] = {}
        finer = {}
        for state, row in moves.items():
            look = (block[state], *sorted((char, block[to]) for char, to in row.items()))
            finer[state] = seen.setdefault(look, len(seen))
        if len(seen) == len(set(block.values())):
            break
        block = finer
    num_states = len({block[state] for state in range(num_repeating)})
    if num_states > _MOST_STATES:
        raise TooCostly(f"{num_states} remainders have to be told apart")
    edges: dict[tuple[int, int], Regex] = {}
    for state, row in moves.items():
        for target in {block[to] for to in row.values()}:
            characters = sorted(char for char, to in row.items() if block[to] == target)
            edges[block[state], target] = alt(*(literal(each) for each in characters))
    start, end = -1, -2
    edges[start, block[0]] = EMPTY
    for state in accepting:
        edges[block[state], end] = EMPTY
    for gone in sorted(set(block.values()), key=lambda state: _num_edges(edges, state)):
        loop = repeat(edges.pop((gone, gone), NOTHING), 0, None)
        into = {one: edge for (one, two), edge in edges.items() if two == gone}
        out = {two: edge for (one, two), edge in edges.items() if one == gone}
        edges = {pair: edge for pair, edge in edges.items() if gone not in pair}
        for one, before in into.items():
            for two, after in out.items():
                way = seq(before, loop, after)
                edges[one, two] = alt(edges.get((one, two), NOTHING), way)
    return edges.get((start, end), NOTHING)


def _num_edges(edges: Mapping[tuple[int, int], Regex], state: int) -> int:
    return sum(state in pair for pair in edges)
