"""Steer constrained outputs to an end within their budgets, so that no output is cut off.

A constraint knows how few tokens make an output whole. Whatever is drawn stands as long as the
output can still be made whole in the tokens that are left; else the token is banned and the row is
drawn again, with the same random number. After MOST_BANNED bans only the token of a shortest way to
the end is left. So a budget that is enough at the start, which `new_sequences` checks, is enough
always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from inferno.engine.sampling.constraints import (
    Constraint,
    Mask,
    MaskKey,
    empty_mask,
    first_position,
    masks_of,
    set_bit,
)
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.step_plan import ScheduledChunk, StepResult
from inferno.requests import FinishReason

MOST_BANNED = 2

# Ends one sequence whose constraint raised.
_Fail = Callable[[SequenceState, Exception], None]


def follow(
    sequence: SequenceState, token_ids: Sequence[int], reason: FinishReason | None
) -> FinishReason | None:
    """Let a sequence's constraint follow its new tokens; return why it ended, if it did.

    reason      why the sequence ended by its tokens alone. A whole output that uses up its budget
                isn't cut off.
    """
    constraint = sequence.constraint
    if constraint is None or reason is FinishReason.STOP:
        return reason
    constraint.accept(token_ids)
    is_whole = reason is FinishReason.LENGTH and constraint.is_complete
    return FinishReason.STOP if is_whole else reason


class Steering:
    """The constraints of one step: its masks, and what of its results must be drawn again."""

    def __init__(
        self, sequences: Iterable[SequenceState], chunks: Iterable[ScheduledChunk], fail: _Fail
    ) -> None:
        self._chunks = [
            (index, sequence, chunk, sequence.constraint)
            for index, (sequence, chunk) in enumerate(zip(sequences, chunks, strict=True))
            if sequence.constraint is not None and chunk.wants_token
        ]
        self._fail = fail
        self._masks: dict[MaskKey, Mask] = {}
        self._num_banned: dict[MaskKey, int] = {}

    def masks(self, vocab_size: int) -> Mapping[MaskKey, Mask]:
        """Return the mask of each row; a constraint that fails ends its sequence."""
        for _, sequence, chunk, constraint in self._chunks:
            if sequence.status is not Status.FINISHED:
                try:
                    self._masks |= masks_of(constraint, chunk, vocab_size)
                except Exception as problem:
                    self._fail(sequence, problem)
        return self._masks

    def masks_to_redraw(
        self, results: Sequence[StepResult], vocab_size: int
    ) -> dict[MaskKey, Mask]:
        """Return masks of all rows of the chunks that must be drawn again; empty if no chunk must.

        results     the results of all the step's chunks so far.
        """
        masks: dict[MaskKey, Mask] = {}
        for index, sequence, chunk, constraint in self._chunks:
            if sequence.status is Status.FINISHED or not results[index].token_ids:
                continue
            try:
                self._ban_overrun(sequence, chunk, constraint, results[index].token_ids, vocab_size)
            except _Overrun:
                masks |= {
                    key: mask for key, mask in self._masks.items() if key[0] == chunk.sequence_id
                }
            except Exception as problem:
                self._fail(sequence, problem)
        return masks

    def _ban_overrun(
        self,
        sequence: SequenceState,
        chunk: ScheduledChunk,
        constraint: Constraint,
        token_ids: Sequence[int],
        vocab_size: int,
    ) -> None:
        """Forbid a token after which too few are left for an end, and raise _Overrun then."""
        room = sequence.max_length - len(sequence.token_ids)
        num_accepted = 0
        try:
            for index, token_id in enumerate(token_ids):
                if token_id in sequence.stop_token_ids:
                    return
                constraint.accept((token_id,))
                num_accepted += 1
                key = chunk.sequence_id, first_position(chunk) + index
                if self._num_banned.get(key, 0) > MOST_BANNED:
                    continue  # its row has no other token; if none fits, the output is cut off
                if not constraint.fits(room - num_accepted):
                    constraint.rollback(1)
                    num_accepted -= 1
                    self._forbid(key, token_id, constraint, vocab_size)
                    raise _Overrun
        finally:
            if num_accepted:
                constraint.rollback(num_accepted)

    def _forbid(self, key: MaskKey, token_id: int, constraint: Constraint, vocab_size: int) -> None:
        self._num_banned[key] = self._num_banned.get(key, 0) + 1
        mask = self._masks[key]
        set_bit(mask, token_id, is_allowed=False)
        if self._num_banned[key] >= MOST_BANNED or not mask.any():
            self._num_banned[key] = MOST_BANNED + 1
            following = constraint.next_to_end()
            if following >= 0:
                mask[:] = empty_mask(vocab_size)
            set_bit(mask, following if following >= 0 else token_id, is_allowed=True)


class _Overrun(Exception):
    """A token was drawn after which no whole output fits."""
