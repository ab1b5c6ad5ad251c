"""Read JSON that nobody vouches for: strictly, in bounded time and memory."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

# Beyond this size a single wide character would cost too much: it makes Python keep a whole
# string in four bytes a character. Larger documents must be plain ASCII without escapes.
MAX_WIDE_BYTES = 4 << 20

# Every JSON value follows one of these characters, so counting them bounds the objects that the
# parser can make (some 150 bytes each at most) before it makes any. A checkpoint spends 12 on a
# tensor in a header and 2 in an index: enough for 25,000 tensors a file and 150,000 in an index.
# A mixture of 128 experts in 48 layers has 19,000, the largest published models 140,000.
_SEPARATORS = (b",", b":", b"[", b"{")
MAX_SEPARATORS = 300_000


class Malformed(Exception):
    """The bytes are not what the format says; whoever knows the file's name adds it."""


def parse_object(raw: bytes, *, may_repeat: bool = False) -> dict[str, Any]:
    """The JSON object in `raw`, where duplicate keys, NaN, Infinity and deep nesting are refused.

    may_repeat  a key may come twice with the same value, as in files that people edit.

    The caller bounds the length of `raw`. Raises Malformed.
    """
    _check_cost(raw)
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_agreeing if may_repeat else _unique,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise Malformed("its JSON is nested too deeply") from None
    except ValueError as error:  # bad UTF-8, bad JSON, an integer of thousands of digits
        raise Malformed(f"it is not valid JSON in UTF-8 ({error})") from None
    if not isinstance(value, dict):
        raise Malformed(f"its JSON is a {type(value).__name__}, not an object")
    return value


def quoted(text: str, limit: int = 100) -> str:
    """`text` as a printable, shortened literal, safe to put into a message."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}... ({len(text)} characters)"


def _check_cost(raw: bytes) -> None:
    if len(raw) > MAX_WIDE_BYTES and (not raw.isascii() or b"\\" in raw):
        raise Malformed(
            f"its JSON has {len(raw)} bytes and is not plain ASCII without escapes, "
            f"which is expected beyond {MAX_WIDE_BYTES} bytes"
        )
    num_separators = sum(raw.count(separator) for separator in _SEPARATORS)
    if num_separators > MAX_SEPARATORS:
        raise Malformed(
            f"its JSON has too many values ({num_separators} separators, "
            f"at most {MAX_SEPARATORS} are read)"
        )


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
    raise Malformed(f"its JSON holds {constant}, which is not JSON")
