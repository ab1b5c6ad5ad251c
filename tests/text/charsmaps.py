"""SentencePiece's tables of replacements, made by hand of one entry or two."""

from __future__ import annotations

import base64
import struct

VALUE = 1 << 31
HAS_VALUE = 1 << 8


def units(start: int = 0) -> list[int]:
    """A trie that leads from "a" to the text that begins at `start`."""
    trie = [0] * 256
    trie[0] = 1 << 10  # the root's children are at 0 ^ 1 ^ their first byte
    trie[0 ^ 1 ^ ord("a")] = ord("a") | HAS_VALUE | 0x90 << 10
    trie[0 ^ 1 ^ ord("a") ^ 0x90] = VALUE | start
    return trie


def charsmap(trie: list[int], texts: bytes = b"bb\0", *, num_bytes: int | None = None) -> str:
    """The table as tokenizer.json has it; `num_bytes` is what it says of the trie's length."""
    said = 4 * len(trie) if num_bytes is None else num_bytes
    table = struct.pack(f"<{1 + len(trie)}I", said, *trie) + texts
    return base64.b64encode(table).decode()
