"""The sequences that an executor knows: what plans have said of each, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferno.engine.step_plan import (
    LaterChunks,
    NewSequence,
    NextTokens,
    ScheduledChunk,
    SequenceId,
    StepPlan,
)
from inferno.requests import SamplingParams


@dataclass(slots=True, eq=False)
class KnownSequence:
    """An executor's own record of a sequence, to which it appends the tokens that it draws.

    The fields are those of NewSequence; num_left is that of ScheduledChunk. Of token_ids, plans
    have told the first num_told; the executor drew the others itself. If the step in flight draws a
    token of the sequence that nobody has read yet, it is row pending_row of that draw.
    """

    sequence_id: SequenceId
    params: SamplingParams
    seed: int
    eos_token_ids: frozenset[int]
    bad_words_ids: tuple[tuple[int, ...], ...]
    num_prompt_tokens: int
    token_ids: list[int]
    num_told: int
    block_tables: tuple[list[int], ...]
    num_left: tuple[int, ...]
    pending_row: int = 0


class KnownSequences:
    """The owner of the records of sequences, from the plan that adds one to that which drops it."""

    def __init__(self) -> None:
        self._epoch = 0
        self._known: dict[SequenceId, KnownSequence] = {}
        # Of the last plan that told chunks one by one, and how many have gone on like it since.
        self._chunks: tuple[ScheduledChunk, ...] = ()
        self._sequences: list[KnownSequence] = []
        self._num_next = 0

    @property
    def ids(self) -> tuple[SequenceId, ...]:
        """Return the ids of all known sequences."""
        return tuple(self._known)

    def clear(self) -> None:
        """Forget all sequences."""
        self._known.clear()
        self._chunks, self._sequences, self._num_next = (), [], 0

    def gone(self, plan: StepPlan) -> tuple[SequenceId, ...]:
        """Return the sequences that `follow` will forget, so that others can forget them before."""
        return plan.gone if plan.epoch == self._epoch else self.ids

    def follow(self, plan: StepPlan) -> tuple[Sequence[ScheduledChunk], list[KnownSequence]]:
        """Forget, add and extend sequences as a plan says; return its chunks, and whose they are.

        The list is the one that was returned last where the plan goes on like the last one.
        """
        if plan.next is not None:
            return self._go_on(plan.next), self._sequences
        if self._num_next:  # the tokens that were computed count as told
            for sequence, chunk in zip(self._sequences, self._chunks, strict=True):
                sequence.num_told = chunk.start + self._num_next
            self._num_next = 0
        known = self._known
        for sequence_id in self.gone(plan):
            del known[sequence_id]
        self._epoch = plan.epoch
        for new in plan.new:
            assert new.sequence_id not in known, f"{new.sequence_id} is known already"
            known[new.sequence_id] = _record(new)
        sequences = []
        for chunk in plan.chunks:
            sequence = known[chunk.sequence_id]
            if told := chunk.new_token_ids:
                first = sequence.num_told
                sequence.num_told = first + len(told)
                sequence.token_ids[first : sequence.num_told] = told  # in place of those it drew
            if chunk.new_blocks:
                _lengthen(sequence, chunk.new_blocks)
            if chunk.num_left != sequence.num_left:
                _slide(sequence, chunk.num_left)
            sequences.append(sequence)
        self._chunks, self._sequences = plan.chunks, sequences
        return plan.chunks, sequences

    def _go_on(self, next_tokens: NextTokens) -> LaterChunks:
        """Change tables as a plan says that goes on like the last one; return its chunks."""
        assert next_tokens.num_chunks == len(self._chunks), "a plan goes on like another one"
        self._num_next += 1
        for change in next_tokens.changes:
            sequence = self._sequences[change.place]
            if change.new_blocks:
                _lengthen(sequence, change.new_blocks)
            if change.num_left != sequence.num_left:
                _slide(sequence, change.num_left)
        return LaterChunks(self._chunks, self._num_next)


def _record(new: NewSequence) -> KnownSequence:
    assert new.params.seed is not None, "the engine draws a seed at admission"
    return KnownSequence(
        sequence_id=new.sequence_id,
        params=new.params,
        seed=new.params.seed,
        eos_token_ids=new.eos_token_ids,
        bad_words_ids=new.bad_words_ids,
        num_prompt_tokens=new.num_prompt_tokens,
        token_ids=list(new.token_ids),
        num_told=len(new.token_ids),
        block_tables=tuple(map(list, new.block_tables)),
        num_left=(0,) * len(new.block_tables),
    )


def _lengthen(sequence: KnownSequence, new_blocks: tuple[tuple[int, ...], ...]) -> None:
    for table, blocks in zip(sequence.block_tables, new_blocks, strict=True):
        table += blocks


def _slide(sequence: KnownSequence, num_left: tuple[int, ...]) -> None:
    """Clear the entries of blocks that windows have left: others may use these now."""
    for table, before, left in zip(sequence.block_tables, sequence.num_left, num_left, strict=True):
        table[before:left] = [0] * (left - before)
    sequence.num_left = num_left
