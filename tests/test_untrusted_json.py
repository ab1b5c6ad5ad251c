"""Hostile JSON costs little memory, and messages about it are safe to print."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress

import pytest

from inferno.untrusted_json import Malformed, TooWide, parse_object, quoted

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


# What keeps a character in one byte, in two, and in four.
NARROW = ["\\n", '\\"', "\\\\"]
TWO_BYTES = ["\\u00e9", "\\u4e2d", "é", "中"]
FOUR_BYTES = [WIDE, "\\ud83d\\ude00", "\\uD83D\\uDE00"]


@pytest.mark.parametrize(
    ("unusual", "mib"),
    [*((each, 20) for each in NARROW), *((each, 8) for each in TWO_BYTES)],
)
@pytest.mark.parametrize("is_full", [False, True])
def test_a_large_document_may_hold_escapes(unusual: str, mib: int, is_full: bool) -> None:
    once = len(unusual.encode())
    num = (mib << 20) // once - 100 if is_full else 1
    body = unusual * num + "a" * ((mib << 20) - 100 - num * once)
    text = json.loads(f'"{body}"')
    assert parse_object(f'{{"a":"{body}"}}'.encode()) == {"a": text}
    assert peak_of_parsing(f'{{"a":"{body}"}}'.encode()) < max(64, 4 * mib) << 20


@pytest.mark.parametrize(
    ("unusual", "mib"), [*((each, 8) for each in TWO_BYTES), *((each, 4) for each in FOUR_BYTES)]
)
def test_what_would_be_wide_in_memory_is_refused_with_its_limit(unusual: str, mib: int) -> None:
    raw = ('{"a":"' + "a" * (mib << 20) + unusual + '"}').encode()
    with pytest.raises(TooWide, match=f"{mib << 20} bytes"):
        parse_object(raw)
    assert peak_of_parsing(raw) < 1 << 20


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
