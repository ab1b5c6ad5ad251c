"""Tests of inferno.text.charsmap: sound tables pass, those that lead outside are refused."""

from __future__ import annotations

import base64
import random

import pytest
from tokenizers.normalizers import Precompiled

from inferno.text.charsmap import longest_replacement
from tests.text.charsmaps import HAS_VALUE, VALUE, charsmap, units


def test_a_sound_table_does_what_its_trie_says() -> None:
    table = charsmap(units())
    assert longest_replacement(table) == 2
    assert Precompiled(decoded(table)).normalize_str("xax") == "xbbx"


def test_the_longest_text_counts_in_characters() -> None:
    assert longest_replacement(charsmap(units(), "é\0ééé\0b\0".encode())) == 3


def far_child() -> list[int]:
    trie = units()
    trie[0] = 256 << 10
    return trie


def far_child_by_its_flag() -> list[int]:
    trie = units()
    trie[0] = 1 << 9 | 1 << 10
    return trie


def half_block() -> list[int]:
    return [256 << 10, *units()[1:], *[0] * 128]  # "\x80" would be outside, "\x7f" is not


def root_without_children() -> list[int]:
    return [VALUE | HAS_VALUE | 300 << 10, *units()[1:]]


DAMAGED = {
    "nothing": "",
    "no base64": "a!b=",
    "base64 with bits to spare": charsmap(units(), b"b\0")[:-2] + "B=",
    "no trie": charsmap([]),
    "half a block": charsmap(half_block()),
    "a trie longer than the table": charsmap(units(), num_bytes=2048),
    "a trie of four gigabytes": charsmap(units(), num_bytes=2**32 - 1024),
    "a child outside": charsmap(far_child()),
    "a child far outside": charsmap(far_child_by_its_flag()),
    "a root that is a value": charsmap(root_without_children()),
    "a text outside": charsmap(units(start=3)),
    "a text far outside": charsmap(units(start=2**31 - 1)),
    "a text from half a character on": charsmap(units(start=1), "é\0".encode()),
    "texts that are no UTF-8": charsmap(units(), b"\xff\0"),
    "no texts": charsmap(units(), b""),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_table_is_refused(damage: str) -> None:
    with pytest.raises(ValueError, match="precompiled_charsmap"):
        longest_replacement(DAMAGED[damage])


def test_what_passes_never_makes_the_library_panic() -> None:
    rng = random.Random(0)
    num_passed = 0
    for _ in range(300):
        trie = units()
        for _ in range(rng.randint(1, 4)):
            trie[rng.randrange(256)] = rng.getrandbits(rng.choice([9, 18, 32]))
        table = charsmap(trie, "é\0bb\0".encode())
        try:
            longest_replacement(table)
        except ValueError:
            continue
        num_passed += 1
        normalizer = Precompiled(decoded(table))
        for character in map(chr, range(1, 300)):
            normalizer.normalize_str("a" + character)
    assert 20 < num_passed < 280


def decoded(table: str) -> bytes:
    return base64.b64decode(table)
