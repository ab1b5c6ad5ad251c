"""Read untrusted JSON: strictly, in bounded time and memory."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

# A single character beyond U+FFFF, such as an emoji, makes Python keep its whole string in four
# bytes a character, and others in two. So much a string of the whole document may take; where all
# is ASCII none is longer than the document.
_MAX_WIDE_BYTES = 16 << 20
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_MAX_DIGITS = sys.int_info.default_max_str_digits
_FOUR_BYTES = tuple(bytes([first]) for first in range(0xF0, 0xF5))  # UTF-8's beyond U+FFFF

# Every JSON value follows one of these characters, so counting them bounds the objects that the
# parser can make (some 150 bytes each at most) before it makes any. A checkpoint spends 12 on a
# tensor in a header and 2 in an index: enough for 25,000 tensors a file and 150,000 in an index.
# A mixture of 128 experts in 48 layers has 19,000, the largest published models 140,000.
SEPARATORS = (b",", b":", b"[", b"{")
MAX_SEPARATORS = 300_000


class Malformed(Exception):
    """Raised when bytes aren't in the expected format; callers add the file's name."""


class BadNumber(Malformed):
    """Raised when the JSON holds a number that JSON doesn't have, or one of thousands of digits."""


class TooWide(Malformed):
    """Raised when bytes may be JSON, but too many for the characters that are among them."""


def parse_object(raw: bytes, *, may_repeat: bool = False) -> dict[str, Any]:
    """Parse the JSON object in `raw`; refuse duplicate keys, NaN, Infinity and deep nesting.

    may_repeat  whether a key may come twice with the same value, as in files that people edit.

    The caller bounds the length of `raw`. Raises Malformed.
    """
    value = parse_value(raw, may_repeat=may_repeat)
    if not isinstance(value, dict):
        raise Malformed(f"its JSON is a {type(value).__name__}, not an object")
    return value


def parse_value(raw: bytes, *, may_repeat: bool = False) -> Any:
    """Parse the JSON value in `raw`, of whatever kind, as `parse_object` does."""
    _check_cost(raw)
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_agreeing if may_repeat else _unique,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise Malformed("its JSON is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"it is not valid JSON in UTF-8 ({error})") from None
    except ValueError as error:  # an integer of thousands of digits
        raise BadNumber(f"it is not valid JSON in UTF-8 ({error})") from None


def field_of_bad_number(raw: bytes) -> str | None:
    """Return the key whose value holds the number that made parse_object raise BadNumber."""
    bad = object()
    try:
        value = json.loads(
            raw,
            parse_constant=lambda _: bad,
            parse_int=lambda digits: bad if len(digits) > _MAX_DIGITS else None,
            parse_float=lambda _: None,
        )
    except (ValueError, RecursionError):  # what comes after the number is worse
        return None
    fields = value.items() if isinstance(value, dict) else ()
    return next((name for name, held in fields if _holds(held, bad)), None)


def quoted(text: str, limit: int = 100) -> str:
    """Return `text` as a printable, shortened literal, safe to put into a message."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}... ({len(text)} characters)"


def _check_cost(raw: bytes) -> None:
    if len(raw) > _MAX_WIDE_BYTES // 4 and (width := _width(raw)) > 1:
        _check_width(len(raw), width)
    num_separators = sum(raw.count(separator) for separator in SEPARATORS)
    if num_separators > MAX_SEPARATORS:
        raise Malformed(
            f"its JSON has too many values ({num_separators} separators, "
            f"at most {MAX_SEPARATORS} are read)"
        )


def _width(raw: bytes) -> int:
    """Return how many bytes Python may need for a character of this."""
    if any(first in raw for first in _FOUR_BYTES) or _ESCAPED_SURROGATE.search(raw):
        return 4
    return 1 if raw.isascii() and rb"\u" not in raw else 2


def _check_width(num_bytes: int, width: int) -> None:
    most = _MAX_WIDE_BYTES // width
    if num_bytes > most:
        kind = "characters beyond U+FFFF, as emoji are" if width == 4 else "non-ASCII characters"
        raise TooWide(f"its JSON has {num_bytes} bytes; with {kind}, at most {most} bytes are read")


def _holds(value: object, wanted: object) -> bool:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict(items):
                waiting += items.values()
            case list(items):
                waiting += items
            case other if other is wanted:
                return True
    return False


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise Malformed(f"its JSON has the key {quoted(key)} twice in one object")
    return unique


def _agreeing(pairs: list[tuple[str, object]]) -> dict[str, object]:
    first = dict(reversed(pairs))
    for key, value in pairs:
        if first[key] != value:
            raise Malformed(f"its JSON has two values for the key {quoted(key)}")
    return dict(pairs)


def _refuse_constant(constant: str) -> object:
    raise BadNumber(f"its JSON holds {constant}, which is not JSON")
