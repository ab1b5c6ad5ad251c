"""Proposes what followed a sequence's last tokens where they stood before: prompt lookup.

No model is asked. It pays where an output repeats its prompt or itself: edits, quotes, code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inferno.engine.scheduling.sequence import SequenceState

# Of so many last tokens an earlier place is looked for: fewer recur by chance.
_MATCHED = 3
# Tokens of one proposal at most: a small step has no more.
_MOST = 64


@dataclass(slots=True)
class _Text:
    """Where each run of tokens stood last.

    num_indexed     tokens of the sequence whose runs are in `places`; the newest run is not.
    """

    num_indexed: int = 0
    places: dict[tuple[int, ...], int] = field(default_factory=dict)


class NgramProposer:
    """Proposes what followed the latest earlier place of a sequence's last tokens."""

    name = "ngram"
    takes_passes = False

    def __init__(self) -> None:
        self._texts: dict[SequenceState, _Text] = {}

    @property
    def num_bytes(self) -> int:
        return sum(200 * len(text.places) for text in self._texts.values())

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        return [self._follow(*pair) for pair in zip(sequences, most, strict=True)]

    def forget(self, sequence: SequenceState) -> None:
        self._texts.pop(sequence, None)

    def clear(self) -> None:
        self._texts.clear()

    def _follow(self, sequence: SequenceState, most: int) -> Sequence[int]:
        text = self._texts.setdefault(sequence, _Text())
        token_ids = sequence.token_ids
        length = len(token_ids)
        for end in range(max(text.num_indexed, _MATCHED), length):
            text.places[tuple(token_ids[end - _MATCHED : end])] = end
        text.num_indexed = max(text.num_indexed, length)
        place = text.places.get(tuple(token_ids[-_MATCHED:]))
        return () if place is None else token_ids[place : place + min(most, _MOST)]
