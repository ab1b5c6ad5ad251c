"""Speculative decoding: guesses of what follows a stream's tokens, computed with them in one step.

A guess stands while it is what the sequence draws anyway, so guesses change how many tokens a step
gives and never which. `StepPlan` carries them, the executor compares, and `Scheduler.commit` takes
as many as stand.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Protocol

from inferno.engine.scheduling.sequence import SequenceState

# Tokens of one sequence that are proposed since they are forced; more would hold up other streams.
MOST_FORCED = 32

_logger = logging.getLogger("inferno")


class Proposer(Protocol):
    """Guesses the tokens that follow sequences."""

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        """Return token ids of the model that may follow each sequence: at most so many, or none."""
        ...


def propose(
    proposer: Proposer | None, shares: Mapping[SequenceState, int], num_tokens: int
) -> dict[SequenceState, tuple[int, ...]]:
    """Return proposals for the streams among those that have a share of a step.

    What a constraint forces is proposed before all guesses, for it stands for sure.

    proposer    guesses for the others; None guesses nothing.
    num_tokens  room that the step has left for all of them together.
    """
    most = dict(_open_sequences(shares, num_tokens))
    if proposer is None:
        most = {sequence: room for sequence, room in most.items() if sequence.constraint}
    if not most:
        return {}
    found = {sequence: _forced(sequence, room) for sequence, room in most.items()}
    others = [sequence for sequence, forced in found.items() if not forced]
    try:
        if proposer is not None and others:
            guesses = proposer.propose(others, [most[each] for each in others])
            found |= zip(others, guesses, strict=True)
    except Exception:  # without guesses nothing is lost but speed
        _logger.exception("no tokens are proposed")
    proposals = {}
    for sequence, proposed in found.items():
        room = min(most[sequence], num_tokens)
        taken = tuple(_before_a_stop(proposed[:room], sequence.stop_token_ids))
        num_tokens -= len(taken)
        if taken:
            proposals[sequence] = taken
    return proposals


def _forced(sequence: SequenceState, most: int) -> Sequence[int]:
    """Return the tokens that a sequence's constraint makes certain, beginning with its next."""
    if sequence.constraint is None:
        return ()
    return sequence.constraint.forced(min(most, MOST_FORCED))


def _open_sequences(
    shares: Mapping[SequenceState, int], num_tokens: int
) -> Iterable[tuple[SequenceState, int]]:
    """Yield the streams all of whose tokens are known, and how many proposals each could use."""
    for sequence, share in shares.items():
        is_whole = share == sequence.num_uncomputed_tokens and not sequence.num_pending_tokens
        most = min(num_tokens, sequence.max_length - len(sequence.token_ids) - 1)
        if sequence.is_stream and is_whole and most > 0:
            yield sequence, most


def _before_a_stop(proposed: Sequence[int], stop_token_ids: Collection[int]) -> Iterable[int]:
    """Return the proposals up to one that would end the output: nothing could follow it."""
    return takewhile(lambda token_id: token_id not in stop_token_ids, proposed)
