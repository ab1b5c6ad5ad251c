"""Make random numbers that depend only on seed, sequence, position and purpose.

Philox4x32-10 is a keyed bijection on 128-bit counters: Salmon, Moraes, Dror and Shaw, "Parallel
random numbers: as easy as 1, 2, 3", SC'11. There is no state: the same counter and key give the
same words in any batch and on any day. It runs in numpy, since its inputs are on the host.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inferno.ops.drawing import Purpose

NUM_ROUNDS = 10
MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], dtype=np.uint64)
INCREMENTS = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)  # golden ratio, sqrt(3) - 1
_WORD = np.uint64(32)
_MASK = np.uint64(0xFFFFFFFF)


def uniform(
    seeds: ArrayLike,
    sequence_index: ArrayLike,
    position: ArrayLike,
    purpose: Purpose,
    lane: ArrayLike = 0,
) -> NDArray[np.float64]:
    """Return one number in [0, 1), of 53 random bits, for each row of the broadcast arguments.

    The key is the seed's 64 bits (two's complement, low word first); the counter is (sequence
    index, position, purpose, lane), each modulo 2**32.
    """
    seed = np.asarray(seeds, dtype=np.int64)
    inputs = (seed, seed >> 32, sequence_index, position, int(purpose), lane)
    words = np.stack(np.broadcast_arrays(*inputs), axis=-1).astype(np.uint64) & _MASK
    random_words = philox4x32(counter=words[..., 2:], key=words[..., :2])
    high, low = random_words[..., 0] >> np.uint64(5), random_words[..., 1] >> np.uint64(6)
    return (high * 2.0**26 + low) * 2.0**-53


def philox4x32(counter: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Encrypt counters [..., 4] under keys [..., 2]; words are below 2**32, held in uint64."""
    even, odd = counter[..., 0::2], counter[..., 1::2]
    for _ in range(NUM_ROUNDS):
        product = (even * MULTIPLIERS)[..., ::-1]
        even, odd = (product >> _WORD) ^ odd ^ key, product & _MASK
        key = (key + INCREMENTS) & _MASK
    return np.stack((even, odd), axis=-1).reshape(counter.shape)
