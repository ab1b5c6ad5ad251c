"""Hostile JSON costs little memory, and messages about it are safe to print."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest

from inferno.untrusted_json import Malformed, parse_object, quoted

WIDE = "\U0001f600"  # makes Python keep the whole string in four bytes a character
LONG = "a" * 4_194_000


def test_a_document_of_bombs_takes_less_than_64_mib() -> None:
    for bomb in (
        f'{{"a":"{LONG}{WIDE}"}}',
        f'{{"a":"{LONG}\\ud83d\\ude00"}}',
        '{"a":[' + "{}," * 140_000 + "0]}",
        '{"a":[' + "[]," * 4_000_000 + "0]}",
        "{" + ",".join(f'"{i:07}{WIDE}":"a"' for i in range(149_000)) + "}",
    ):
        assert peak_of_parsing(bomb.encode()) < 64 << 20, bomb[:40]


def peak_of_parsing(raw: bytes) -> int:
    """Bytes that Python allocates at most at a time while it parses `raw`."""
    tracemalloc.start()
    with suppress(Malformed):
        parse_object(raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_large_document_must_be_plain() -> None:
    with pytest.raises(Malformed, match="plain ASCII"):
        parse_object(('{"é":"' + "a" * (4 << 20) + '"}').encode())


def test_nan_and_infinity_are_not_json() -> None:
    for constant in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(Malformed, match=constant):
            parse_object(f'{{"a":{constant}}}'.encode())


def test_the_key_that_occurs_twice_is_named() -> None:
    with pytest.raises(Malformed, match="'b' twice"):
        parse_object(b'{"a":1,"b":1,"b":2}')


def test_quoted_text_is_short_and_printable() -> None:
    assert quoted("a.weight") == "'a.weight'"
    long = quoted("\x1b\ud800\u202e\n" * 10_000)
    assert long.isprintable()
    assert len(long) < 1000
