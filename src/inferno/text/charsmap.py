"""Check SentencePiece's table of replacements, which the library trusts."""

from __future__ import annotations

import base64
import struct
from binascii import Error

# darts-clone's units, four bytes each: a value, or a label, the way to the children, and whether
# the first of them is a value.
_BLOCK = 256
_IS_VALUE = 1 << 31
_HAS_VALUE = 1 << 8
_IS_FAR = 1 << 9


def longest_replacement(charsmap: str) -> int:
    """Return the length of the longest text that the table puts in place of another.

    charsmap    base64 of the trie's length in bytes, the trie, and texts, each with a NUL after it.

    Raises ValueError where the table is damaged: a look-up would leave the trie or the texts.
    """
    try:
        table = base64.b64decode(charsmap, validate=True)
        texts = _texts(table).decode()
    except (Error, UnicodeError):
        raise _damaged() from None
    if base64.b64encode(table).decode() != charsmap:
        raise _damaged()
    return max(map(len, texts.split("\0")))


def _texts(table: bytes) -> bytes:
    num_bytes = int.from_bytes(table[:4], "little")
    trie, texts = table[4 : 4 + num_bytes], table[4 + num_bytes :]
    # In whole blocks: a label may change the low eight bits of a place.
    if not num_bytes or len(trie) != num_bytes or num_bytes % (4 * _BLOCK):
        raise _damaged()
    units = struct.unpack(f"<{num_bytes // 4}I", trie)
    for place, unit in enumerate(units):
        if place == 0 or not unit & _IS_VALUE:
            _check_children(units, place, texts)
    return texts


def _check_children(units: tuple[int, ...], place: int, texts: bytes) -> None:
    unit = units[place]
    first = place ^ (unit >> 10 << (8 if unit & _IS_FAR else 0))
    if first >= len(units):
        raise _damaged()
    start = units[first] & ~_IS_VALUE
    if unit & _HAS_VALUE and not _begins_character(texts, start):
        raise _damaged()


def _begins_character(texts: bytes, start: int) -> bool:
    return start < len(texts) and texts[start] & 0xC0 != 0x80


def _damaged() -> ValueError:
    return ValueError("the precompiled_charsmap of its normalizer is damaged")
