"""The sequences that an executor knows: what plans have said of each, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from inferno.engine.step_plan import NewSequence, ScheduledChunk, SequenceId, StepPlan
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

    @property
    def ids(self) -> tuple[SequenceId, ...]:
        """Return the ids of all known sequences."""
        return tuple(self._known)

    def clear(self) -> None:
        """Forget all sequences."""
        self._known.clear()

    def gone(self, plan: StepPlan) -> tuple[SequenceId, ...]:
        """Return the sequences that `follow` will forget, so that others can forget them before."""
        return plan.gone if plan.epoch == self._epoch else self.ids

    def follow(self, plan: StepPlan) -> list[KnownSequence]:
        """Forget, add and extend sequences as a plan says; return one for each chunk."""
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
                for table, blocks in zip(sequence.block_tables, chunk.new_blocks, strict=True):
                    table += blocks
            if chunk.num_left != sequence.num_left:
                _slide(sequence, chunk)
            sequences.append(sequence)
        return sequences


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


def _slide(sequence: KnownSequence, chunk: ScheduledChunk) -> None:
    """Clear the entries of blocks that windows have left: others may use these now."""
    for table, before, left in zip(
        sequence.block_tables, sequence.num_left, chunk.num_left, strict=True
    ):
        table[before:left] = [0] * (left - before)
    sequence.num_left = chunk.num_left
