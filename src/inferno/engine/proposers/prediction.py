"""Propose from a client's prediction of the output, such as the file being edited.

The prediction is proposed from its beginning. Where the output goes another way, its last tokens
are looked for in the prediction: near the place that was reached before they count for less, since
an edit is short. Of the tokens that edited files of this repository share with the old ones as
difflib finds them, 98 % stand so, at 7 to 14 tokens a step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inferno.engine.scheduling.sequence import SequenceState
from inferno.plan.choices import SMALL_STEP
from inferno.requests import PREDICTION

# A place is trusted when so many tokens before it were right; until then the search goes on from
# the one that was trusted before.
_TRUSTED = 4
# One told token alone finds a place that is at most so many tokens behind that one.
_NEAR = 4
# An output that went its own way for so many tokens is found again by three of them only: it may be
# reasoning, in which chance finds shorter ones, and who guesses badly is asked less.
_FAR = 32
# Proposals after a place that one token found, or two.
_AFTER_ONE, _AFTER_TWO = 2, 8
_LONGEST = 3  # tokens that are looked for
_PLACE_BITS = 22
_HASH_SIZE = 2199023255531  # a prime below 2**41: with a place, a hash fits 63 bits
_FACTORS = 0x2C1B3C6D, 0x297A2D39, 0x165667B1


class PredictionProposer:
    """A proposer of what requests predict their outputs to be; see Request.prediction_ids."""

    name = PREDICTION
    takes_passes = False

    def __init__(self) -> None:
        self._predictions: dict[str, _Prediction] = {}  # by request
        self._sequences: dict[SequenceState, _Reading] = {}
        self._may_index = False  # one prediction a step: 4,000 tokens take half a millisecond

    @property
    def num_bytes(self) -> int:
        """Return the memory that the tables of predictions take."""
        return sum(prediction.num_bytes for prediction in self._predictions.values())

    def serves(self, sequence: SequenceState) -> bool:
        """Return whether a sequence's request has a prediction."""
        return bool(sequence.request.prediction_ids)

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        """Return how each sequence's prediction goes on, where the output follows it."""
        self._may_index = True
        return [self._propose(*pair) for pair in zip(sequences, most, strict=True)]

    def forget(self, sequence: SequenceState) -> None:
        """Let go of a sequence's place in its prediction."""
        if self._sequences.pop(sequence, None) is not None:
            request_id = sequence.request.request_id
            prediction = self._predictions[request_id]
            prediction.num_readings -= 1
            if not prediction.num_readings:
                del self._predictions[request_id]

    def clear(self) -> None:
        """Forget all sequences."""
        self._sequences.clear()
        self._predictions.clear()

    def _propose(self, sequence: SequenceState, most: int) -> Sequence[int]:
        if not sequence.request.prediction_ids:
            return ()
        reading = self._sequences.get(sequence) or self._begin(sequence)
        reading.take(sequence.token_ids)
        if reading.place is None and not reading.prediction.is_indexed and self._may_index:
            self._may_index = False
            reading.prediction.index()
            reading.search(sequence.token_ids, len(sequence.token_ids))
        return reading.proposal(min(most, SMALL_STEP))

    def _begin(self, sequence: SequenceState) -> _Reading:
        request = sequence.request
        prediction = self._predictions.get(request.request_id)
        if prediction is None:
            prediction = _Prediction(request.prediction_ids[: (1 << _PLACE_BITS) - 1])
            self._predictions[request.request_id] = prediction
        prediction.num_readings += 1
        reading = _Reading(prediction, sequence.num_prompt_tokens, sequence.num_prompt_tokens)
        self._sequences[sequence] = reading
        return reading


class _Prediction:
    """The tokens of a prediction, and the places of each one, two and three of them.

    Places are those of the token that follows. They are listed when an output first differs.
    """

    def __init__(self, token_ids: tuple[int, ...]) -> None:
        self.token_ids = token_ids
        self.num_readings = 0
        self._entries: list[array[int]] = []  # by number of tokens: sorted hashes with places

    @property
    def num_bytes(self) -> int:
        return sum(8 * len(entries) for entries in self._entries)

    @property
    def is_indexed(self) -> bool:
        return bool(self._entries)

    def index(self) -> None:
        """List the places, so that they are found."""
        ids = np.array(self.token_ids, np.int64)
        self._entries = [_sorted_places(ids, size) for size in range(1, _LONGEST + 1)]

    def find(self, told: Sequence[int], low: int) -> int | None:
        """Return the first place from `low` on that follows what was told, else the last one."""
        if not self._entries:
            return None
        size = len(told)
        entries = self._entries[size - 1]
        key = _hash(told) << _PLACE_BITS
        index = bisect_left(entries, key + low)
        for each in (index, index - 1):
            if 0 <= each < len(entries):
                place = entries[each] & ((1 << _PLACE_BITS) - 1)
                if self.token_ids[place - size : place] == tuple(told):
                    return place
        return None


def _sorted_places(ids: NDArray[np.int64], size: int) -> array[int]:
    """Return the places that follow so many tokens, sorted by these tokens' hash."""
    num_places = max(0, len(ids) - size + 1)
    hashes = np.zeros(num_places, np.int64)
    for i in range(size):
        hashes += ids[i : i + num_places] * _FACTORS[i]
    entries = ((hashes % _HASH_SIZE) << _PLACE_BITS) + np.arange(size, size + num_places)
    entries.sort()
    return array("q", entries.tobytes())


def _hash(token_ids: Sequence[int]) -> int:
    return sum(map(int.__mul__, token_ids, _FACTORS)) % _HASH_SIZE


@dataclass(slots=True)
class _Reading:
    """The place that an output has reached in its prediction.

    first       place of the output's first token in the sequence.
    length      tokens of the sequence that were taken in.
    place       of the prediction's token that is expected next; None where it isn't known.
    num_right   tokens before it that were as predicted.
    trusted     the last place that was surely reached, and how many tokens were told since.
    """

    prediction: _Prediction
    first: int
    length: int
    place: int | None = 0
    num_right: int = _TRUSTED
    trusted: int = 0
    num_since: int = 0

    def take(self, token_ids: Sequence[int]) -> None:
        """Take in the sequence's new tokens."""
        predicted = self.prediction.token_ids
        for end in range(self.length + 1, len(token_ids) + 1):
            place = len(predicted) if self.place is None else self.place
            if place < len(predicted) and predicted[place] == token_ids[end - 1]:
                self._reach(place + 1, self.num_right + 1)
            else:
                self.num_since += 1
                self.search(token_ids, end)
        self.length = len(token_ids)

    def proposal(self, most: int) -> Sequence[int]:
        """Return what the prediction has next; little where the place isn't sure."""
        if self.place is None:
            return ()
        if self.num_right < _LONGEST:
            most = min(most, _AFTER_ONE if self.num_right < 2 else _AFTER_TWO)
        return self.prediction.token_ids[self.place : self.place + most]

    def search(self, token_ids: Sequence[int], end: int) -> None:
        """Look for the told tokens up to `end` in the prediction."""
        self.place = None
        self.num_right = 0
        low = self.trusted + 1
        least = 1 if self.num_since <= _FAR else _LONGEST
        for size in range(min(_LONGEST, end - self.first), least - 1, -1):
            place = self.prediction.find(token_ids[end - size : end], low)
            if place is not None and (size > 1 or low <= place <= low + _NEAR):
                self.place, self.num_right = place, size
                return

    def _reach(self, place: int, num_right: int) -> None:
        self.place, self.num_right = place, num_right
        if num_right >= _TRUSTED:
            self.trusted, self.num_since = place, 0
        else:
            self.num_since += 1
