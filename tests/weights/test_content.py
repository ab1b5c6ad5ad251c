"""The hash of weights: the same however they are read, another for any other bytes or key."""

from __future__ import annotations

import random
import time
import tracemalloc
from types import SimpleNamespace
from typing import cast

import pytest

from inferno.file_identity import FileIdentity
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.content import BlockHash, ContentHash, HashKey

BLOCK = 128 << 10
KEY = HashKey(bytes(32))


def hashed(data: bytes, key: HashKey = KEY, *, pieces: list[int] | None = None) -> str:
    found, start = BlockHash(key), 0
    for size in pieces or []:
        found.update(memoryview(data)[start : start + size])
        start += size
    found.update(memoryview(data)[start:])
    return found.hexdigest()


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, BLOCK - 1, BLOCK, BLOCK + 9, 3 * BLOCK, 3 * BLOCK + 5]
)
def test_the_pieces_make_no_difference(size: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(size)
    expected = hashed(data)
    for _ in range(5):
        sizes = [rng.choice((1, 3, 100, 4096, BLOCK - 8, BLOCK, BLOCK + 1)) for _ in range(6)]
        assert hashed(data, pieces=sizes) == expected


def test_any_bit_makes_a_difference() -> None:
    rng = random.Random(0)
    data = bytearray(rng.randbytes(2 * BLOCK + 100))
    seen = {hashed(bytes(data))}
    for bit in [*range(64), *rng.sample(range(8 * len(data)), 64), 8 * len(data) - 1]:
        data[bit // 8] ^= 1 << bit % 8
        seen.add(hashed(bytes(data)))
        data[bit // 8] ^= 1 << bit % 8
    assert len(seen) >= 129


def test_pairs_of_highest_bits_make_a_difference() -> None:
    """Such pairs cancel in sums modulo 2^64 whatever they are multiplied with, every other time."""
    data = bytearray(BLOCK)
    seen = {hashed(bytes(data))}
    for word in range(1, 40):
        changed = bytearray(data)
        changed[7] ^= 0x80
        changed[8 * word + 7] ^= 0x80
        seen.add(hashed(bytes(changed)))
    assert len(seen) == 40


def test_zeros_at_the_end_and_the_order_of_blocks_make_a_difference() -> None:
    data = random.Random(0).randbytes(2 * BLOCK)
    found = {hashed(data), hashed(data + bytes(1)), hashed(data + bytes(8))}
    found |= {
        hashed(data[BLOCK:] + data[:BLOCK]),
        hashed(data[:BLOCK]),
        hashed(b""),
        hashed(bytes(1)),
    }
    assert len(found) == 7


def test_another_key_makes_another_hash() -> None:
    other = HashKey(bytes(31) + b"1")
    assert other.name != KEY.name
    assert hashed(b"weights", other) != hashed(b"weights")


def test_a_file_is_believed_once_its_last_change_is_some_seconds_old() -> None:
    now = time.time_ns()
    second = 10**9
    settled = FileIdentity(1, 2, 3, now - 9 * second, now - 5 * second - now % second + 1)
    assert settled.is_settled(now)
    assert not settled._replace(changed=now - second).is_settled(now)
    assert not settled._replace(modified=now - second).is_settled(now)
    assert not settled._replace(changed=now + 60 * second).is_settled(now)  # by another clock
    whole_seconds = settled.changed - settled.changed % second
    assert not settled._replace(changed=whole_seconds).is_settled(now)


def test_of_a_tensor_that_was_read_nothing_is_kept_but_its_hash() -> None:
    """Models have hundreds, and all of it would be there until the last one is loaded."""
    data = memoryview(bytes(BLOCK + 1000))
    tensors = {str(n): SimpleNamespace(start=0, stop=len(data)) for n in range(100)}
    hashing = ContentHash(KEY, cast(Checkpoint, SimpleNamespace(tensors=tensors)))
    tracemalloc.start()
    try:
        for name in tensors:
            hashing.see(name, 0, data[:500])
            hashing.see(name, 500, data[500:])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500 * len(tensors)
