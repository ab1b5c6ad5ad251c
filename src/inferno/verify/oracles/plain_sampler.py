"""Choose the token that a request's parameters make of its logits, by definition, in float64.

Penalties, biases and bans change logits, which are float32, and what float32 rounds there counts.
After that everything is exact, and `Draw.allows` knows by how much the engine's weights may be off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_UNIT_32 = 2.0**-24
_MASK = 0xFFFFFFFF
_ROUNDS, _MULTIPLIERS, _INCREMENTS = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)

Logits = NDArray[np.float32]


class Params(Protocol):
    """The sampling parameters of a request, as in SamplingParams."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def logit_bias(self) -> Mapping[int, float]: ...
    @property
    def allowed_token_ids(self) -> Sequence[int] | None: ...


def processed_logits(
    logits: Logits, params: Params, history: Sequence[int], num_prompt: int
) -> Logits:
    """Return logits after biases and bans, then penalties for tokens of the history."""
    result = logits.astype(np.float32)
    for token, bias in params.logit_bias.items():
        result[token] += np.float32(bias)
    if params.allowed_token_ids is not None:
        is_banned = np.ones(len(result), dtype=bool)
        is_banned[list(params.allowed_token_ids)] = False
        result[is_banned] = -np.inf
    repetition = np.float32(params.repetition_penalty)
    frequency, presence = np.float32(params.frequency_penalty), np.float32(params.presence_penalty)
    counts = Counter(history[num_prompt:])
    for token in set(history):
        logit, count = result[token], np.float32(counts[token])
        logit = logit / repetition if logit > 0 else logit * repetition
        result[token] = logit - (count * frequency + presence * np.float32(count > 0))
    return result


@dataclass(frozen=True, slots=True)
class Draw:
    """A row of processed logits and how its token is drawn, for any random number.

    tokens   in the order in which they share out the interval from 0 to 1.
    ends     where each one's share ends, from the first on; the likeliest token's share is 1.
    err      how far off each end may be.
    counts   how many of the tokens may be those that top-k and top-p leave.
    """

    tokens: NDArray[np.int64]
    ends: NDArray[np.float64]
    err: float
    counts: tuple[int, ...]

    @classmethod
    def of(cls, logits: Logits, params: Params) -> Draw:
        """Apply temperature, min-p, top-k, top-p, in this order; ranks go by logit, then by id."""
        size, is_cut = len(logits), params.top_k > 0 or params.top_p < 1
        if params.temperature == 0 or params.top_k == 1:
            return cls(np.array([int(logits.argmax())]), np.ones(1), 0.0, (1,))
        tokens = np.lexsort((np.arange(size), -logits)) if is_cut else np.arange(size)
        z = (logits[tokens].astype(np.float64) - float(logits.max())) / params.temperature
        weights = np.exp(z)
        # A difference, a quotient and an exponential in float32, then a whole number of units.
        unit = 2.0 ** (53 - size.bit_length())
        errors = weights * (4 * np.abs(np.maximum(z, -1e4)) + 16) * _UNIT_32 + 1 / unit
        is_clear = np.abs(weights - params.min_p) > errors
        errors = np.where(is_clear, errors, errors + weights)
        weights = np.where(weights >= params.min_p, weights, 0.0)
        errors = np.where(is_clear & (weights == 0) & (params.min_p > 0), 0.0, errors)
        most = min(params.top_k, size) if params.top_k > 0 else size
        ends = np.cumsum(weights[:most])
        err = float(errors.sum()) + size * 2.0**-50 * float(ends[-1])
        least = params.top_p * ends[-1]
        first, last = (int(np.searchsorted(ends, least + side)) for side in (-2 * err, 2 * err))
        if params.top_p == 1:
            first = last = most - 1
        counts = tuple(range(first + 1, min(last + 1, most) + 1))
        return cls(tokens[:most], ends, err, counts)

    def allows(self, token: int, uniform: float) -> bool:
        """Return whether that may be the token, by this random number."""
        places = np.flatnonzero(self.tokens == token)
        if not len(places):
            return False
        place = int(places[0])
        start, end = (self.ends[place - 1] if place else 0.0), self.ends[place]
        return any(
            start - 2 * self.err <= uniform * self.ends[count - 1] <= end + 2 * self.err
            for count in self.counts
            if place < count
        )

    def due(self, uniform: float) -> int:
        """Return the token that exact maths draws."""
        mass = self.ends[self.counts[0] - 1]
        place = int(np.searchsorted(self.ends, uniform * mass, side="right"))
        return int(self.tokens[min(place, self.counts[0] - 1)])


def uniform(seed: int, position: int) -> float:
    """Return the random number, of 53 bits, of a request's first sequence at a position.

    Philox4x32-10 (Salmon and others, SC'11): the key is the seed, the counter (sequence 0,
    position, 0, 0), lower words first.
    """
    counter = (0, position & _MASK, 0, 0)
    low, high = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_ROUNDS):
        first, second = counter[0] * _MULTIPLIERS[0], counter[2] * _MULTIPLIERS[1]
        counter = (
            (second >> 32) ^ counter[1] ^ low,
            second & _MASK,
            (first >> 32) ^ counter[3] ^ high,
            first & _MASK,
        )
        low, high = (low + _INCREMENTS[0]) & _MASK, (high + _INCREMENTS[1]) & _MASK
    return ((counter[0] >> 5) * 2.0**26 + (counter[1] >> 6)) * 2.0**-53
