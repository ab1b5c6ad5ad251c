"""Philox against its published vectors, a scalar copy in Python's integers, and statistics."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inferno.ops.drawing import Purpose
from inferno.ops.reference.philox import philox4x32, uniform
from tests.engine.sampling.chi_square import chi_square_limit, chi_square_statistic

# Random123's kat_vectors, philox4x32 10: counter, key, result.
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
words = st.integers(0, 2**32 - 1)
seeds = st.integers(-(2**63), 2**63 - 1)
indices = st.integers(0, 2**31 - 1)


def hex_words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def scalar_philox(counter: list[int], key: list[int]) -> list[int]:
    """The paper's round function, one number at a time."""
    (r0, l0, r1, l1), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * r0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * r1, 2**32)
        r0, l0, r1, l1 = high1 ^ l0 ^ k0, low1, high0 ^ l1 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [r0, l0, r1, l1]


def one(seed: int, sample: int, position: int, purpose: int, lane: int) -> float:
    return float(uniform(seed, sample, position, cast(Purpose, purpose), lane))


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_published_vectors_come_out(counter: str, key: str, expected: str) -> None:
    result = philox4x32(
        np.array(hex_words(counter), np.uint64), np.array(hex_words(key), np.uint64)
    )
    assert result.tolist() == hex_words(expected)


@given(st.lists(st.tuples(*[words] * 6), min_size=1, max_size=5))
def test_rows_equal_the_scalar_function(rows: list[tuple[int, ...]]) -> None:
    inputs = np.array(rows, np.uint64)
    result = philox4x32(inputs[:, :4], inputs[:, 4:])
    assert result.tolist() == [scalar_philox(list(row[:4]), list(row[4:])) for row in rows]


@given(seeds, indices, indices, words, words)
def test_a_number_is_53_bits_of_the_words_of_its_counter(
    seed: int, sample: int, position: int, purpose: int, lane: int
) -> None:
    low_first = [seed % 2**32, seed // 2**32 % 2**32]
    first, second, *_ = scalar_philox([sample, position, purpose, lane], low_first)
    expected = ((first // 2**5) * 2**26 + second // 2**6) / 2**53
    assert one(seed, sample, position, purpose, lane) == expected
    assert 0.0 <= expected < 1.0


@pytest.mark.parametrize("changed", range(5))
def test_every_input_makes_another_stream(changed: int) -> None:
    inputs = [7, 0, 5, 0, 0]
    other = list(inputs)
    other[changed] += 1

    def number(values: list[int]) -> float:
        seed, sample, position, purpose, lane = values
        return one(seed, sample, position, purpose, lane)

    assert number(inputs) != number(other)


def test_seeds_that_differ_above_32_bits_differ() -> None:
    assert one(1, 0, 0, Purpose.SAMPLE, 0) != one(1 + 2**32, 0, 0, Purpose.SAMPLE, 0)


@pytest.mark.parametrize("running", range(3))
def test_numbers_are_uniform_over_positions_samples_and_seeds(running: int) -> None:
    inputs: list[NDArray[np.int64] | int] = [3, 3, 3]
    inputs[running] = np.arange(20_000)
    seed, sample, position = inputs
    counts = np.bincount((uniform(seed, sample, position, Purpose.SAMPLE) * 100).astype(int))
    assert chi_square_statistic(counts, np.full(100, 0.01)) < chi_square_limit(99)


@pytest.mark.parametrize("neighbour", [(3, 0, 1), (3, 1, 0), (4, 0, 0)])
def test_neighbouring_positions_samples_and_seeds_are_independent(
    neighbour: tuple[int, int, int],
) -> None:
    positions = np.arange(20_000)
    seed, sample, offset = neighbour
    base = uniform(3, 0, positions, Purpose.SAMPLE)
    other = uniform(seed, sample, positions + offset, Purpose.SAMPLE)
    counts = np.bincount((base * 10).astype(int) * 10 + (other * 10).astype(int))
    assert chi_square_statistic(counts, np.full(100, 0.01)) < chi_square_limit(99)
