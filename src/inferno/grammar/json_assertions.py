"""Read keywords about values without parts: types, numbers and strings."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from inferno.grammar.decide import is_empty
from inferno.grammar.json_document import UnsupportedSchema, refuse, shown
from inferno.grammar.json_numbers import (
    ALL_NUMBERS,
    Bound,
    Kind,
    Numbers,
    TooCostly,
    meet_numbers,
    spelled_numbers,
)
from inferno.grammar.json_shapes import ALL_VALUES, NO_VALUES, Values, join
from inferno.grammar.json_strings import any_of, format_texts, known_formats
from inferno.grammar.regex import ANY, ANY_TEXT, NOTHING, Regex, UnsupportedRegex, both, repeat
from inferno.grammar.syntax import parse_pattern

_MOST_COUNTED = 1_000_000  # characters, items, members: no answer has more
_MOST_EXPONENT = 400  # of a number, of ten

# The sides of a range, and whether the larger bound is the narrower one.
_BOUNDS = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))

_OF_TYPE = {
    "null": Values(null=True),
    "boolean": Values(booleans=ALL_VALUES.booleans),
    "integer": Values(numbers=(Numbers(Kind.INTEGER),)),
    "number": Values(numbers=(ALL_NUMBERS,)),
    "string": Values(strings=ANY_TEXT),
    "array": Values(arrays=ALL_VALUES.arrays),
    "object": Values(objects=ALL_VALUES.objects),
}


def read_type(content: Mapping[str, Any], pointer: str) -> Values:
    names = content["type"] if isinstance(content["type"], list) else [content["type"]]
    for name in names:
        if not isinstance(name, str) or name not in _OF_TYPE:
            raise refuse(f"{pointer}/type", f"is {shown(name)}", " or ".join(_OF_TYPE))
    return join(_OF_TYPE[name] for name in names)


def read_numbers(content: Mapping[str, Any], pointer: str) -> Values:
    """Return the values that the keywords about numbers allow, values of other types included."""
    bounds = []
    for inclusive, exclusive, sign in _BOUNDS:
        found = []
        is_open = content.get(exclusive) is True  # draft 4
        if inclusive in content:
            found.append(Bound(read_number(content[inclusive], f"{pointer}/{inclusive}"), is_open))
        elif is_open:
            raise refuse(f"{pointer}/{exclusive}", "is true", f"{inclusive} beside it")
        if not isinstance(content.get(exclusive, False), bool):
            value = read_number(content[exclusive], f"{pointer}/{exclusive}")
            found.append(Bound(value, is_open=True))
        narrowest = sorted(found, key=lambda bound: (sign * bound.value, bound.is_open))
        bounds.append(narrowest[-1] if narrowest else None)
    divisors = frozenset[Fraction]()
    if "multipleOf" in content:
        place = f"{pointer}/multipleOf"
        divisor = read_number(content["multipleOf"], place)
        if divisor <= 0:
            raise refuse(place, f"is {shown(content['multipleOf'])}", "more than 0")
        divisors = frozenset([divisor])
    numbers = meet_numbers(Numbers(low=bounds[0], high=bounds[1]), Numbers(divisors=divisors))
    return replace(ALL_VALUES, numbers=() if numbers.is_surely_empty else (numbers,))


def read_strings(content: Mapping[str, Any], pointer: str) -> Values:
    """Return the values that the keywords about strings allow, values of other types included."""
    least = read_count(content, "minLength", pointer) or 0
    most = read_count(content, "maxLength", pointer)
    is_empty_range = most is not None and most < least
    texts = [NOTHING if is_empty_range else repeat(ANY, least, most)]
    if "pattern" in content:
        texts.append(read_pattern(content["pattern"], f"{pointer}/pattern"))
    if "format" in content:
        name = content["format"]
        known = format_texts(name) if isinstance(name, str) else None
        if known is None:
            expected = " or ".join(known_formats())
            raise refuse(f"{pointer}/format", f"is {shown(name)}", expected)
        texts.append(known)
    return replace(ALL_VALUES, strings=both(*texts))


def read_number(value: Any, pointer: str) -> Fraction:
    """Return the number that a keyword gives."""
    if isinstance(value, int) and not isinstance(value, bool):
        exact = Decimal(value)
    elif isinstance(value, float):
        exact = Decimal(repr(value))
    else:
        raise refuse(pointer, f"is {shown(value)}", "a number")
    if not exact.is_finite() or (exact and abs(exact.adjusted()) > _MOST_EXPONENT):
        expected = f"a number of at most {_MOST_EXPONENT} digits"
        raise refuse(pointer, f"is {shown(value)}", expected)
    return Fraction(exact)


def read_count(content: Mapping[str, Any], keyword: str, pointer: str) -> int | None:
    """Return a count that a keyword gives, if an answer can reach it; None without the keyword."""
    if keyword not in content:
        return None
    value = content[keyword]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refuse(f"{pointer}/{keyword}", f"is {shown(value)}", "a whole number from 0 on")
    if value > _MOST_COUNTED and keyword.startswith("min"):
        raise refuse(f"{pointer}/{keyword}", f"is {shown(value)}", f"at most {_MOST_COUNTED}")
    return min(value, _MOST_COUNTED)


def read_pattern(text: Any, pointer: str) -> Regex:
    """Return the texts in which a pattern finds something."""
    if not isinstance(text, str):
        raise refuse(pointer, f"is {shown(text)}", "a regular expression")
    try:
        return parse_pattern(text)
    except UnsupportedRegex as problem:
        raise UnsupportedSchema(f"{pointer}: {problem}") from None


def schemas_by_name(content: Mapping[str, Any], keyword: str, pointer: str) -> Mapping[str, Any]:
    """Return a keyword's schemas by names of properties, or by patterns; empty without it."""
    value = content.get(keyword, {})
    if not isinstance(value, Mapping):
        raise refuse(f"{pointer}/{keyword}", f"is {shown(value)}", "an object")
    check_names(value, f"{pointer}/{keyword}")
    return value


def read_names(value: Any, pointer: str) -> tuple[str, ...]:
    """Return the names that a keyword lists, each once."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise refuse(pointer, f"is {shown(value)}", "a list of names")
    check_names(value, pointer)
    return tuple(dict.fromkeys(value))


def check_names(every: Mapping[str, Any] | list[str], pointer: str) -> None:
    """Check that an answer, which is in UTF-8, can have the texts."""
    for text in every:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise refuse(pointer, f"has {text[:40]!a}", "no surrogates")


def strings_of(texts: list[str], pointer: str) -> Values:
    """Return the set of values that has just the given strings."""
    check_names(texts, pointer)
    return Values(strings=any_of(texts))


def numbers_of(values: list[Any], pointer: str) -> Values:
    """Return the set of values that has just the given numbers."""
    exact = frozenset(read_number(each, pointer) for each in values)
    return Values(numbers=(Numbers(values=exact),)) if exact else NO_VALUES


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def has_no_number(numbers: Numbers) -> bool:
    """Return whether a set of numbers is surely empty."""
    try:
        return is_empty(spelled_numbers(numbers))
    except TooCostly:
        return False


# What schemas of values without parts allow, by what they say: most of a document's are the same,
# and those of the next document.
_KNOWN: dict[str, Values] = {}
_MOST_KNOWN, _MOST_SAID = 500, 500  # such schemas, and the characters of one
_OF_LEAVES = frozenset(
    {
        *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minLength", "maxLength", "pattern", "format"),
    }
)
_OF_BRANCHES = _OF_LEAVES | {"title", "description"}


def said_alone(content: Mapping[str, Any], keywords: Collection[str]) -> str | None:
    """Return what a schema says, as text, if it is little and speaks of no part of a value.

    keywords    all that restrict something.
    """
    said = {keyword: value for keyword, value in content.items() if keyword in keywords}
    branches = said.get("anyOf", [])
    if said.keys() - _OF_LEAVES - {"anyOf"} or not isinstance(branches, list):
        return None
    if not all(isinstance(each, dict) and each.keys() <= _OF_BRANCHES for each in branches):
        return None
    text = json.dumps(said)
    return text if len(text) <= _MOST_SAID else None


def known_values(said: str | None) -> Values | None:
    """Return what schemas allow that say this, if it is known."""
    return None if said is None else _KNOWN.get(said)


def keep_values(said: str | None, values: Values) -> None:
    """Keep what schemas allow that say this, if it means the same in any document."""
    is_plain = values.arrays in ((), ALL_VALUES.arrays)
    if said is not None and is_plain and values.objects in ((), ALL_VALUES.objects):
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[said] = values
