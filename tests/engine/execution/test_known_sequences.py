"""What an executor knows of sequences follows from plans alone."""

from __future__ import annotations

import pytest

from inferno.engine.execution.known_sequences import KnownSequences
from inferno.engine.scheduling.step_cost import StepWork
from inferno.engine.step_plan import (
    NewSequence,
    NextTokens,
    ScheduledChunk,
    SequenceId,
    StepPlan,
    TableChange,
)
from inferno.requests import SamplingParams

A, B = SequenceId("a", 0), SequenceId("b", 1)


def new(sequence_id: SequenceId) -> NewSequence:
    """Return one of three tokens and a block of two groups."""
    params = SamplingParams(seed=7)
    return NewSequence(sequence_id, params, frozenset({1}), ((2,),), 2, (5, 6, 7), ((1,), (2,)))


def chunk(
    sequence_id: SequenceId,
    new_token_ids: tuple[int, ...] = (),
    new_blocks: tuple[tuple[int, ...], ...] = (),
    num_left: tuple[int, ...] = (0, 0),
) -> ScheduledChunk:
    return ScheduledChunk(sequence_id, 0, 1, new_token_ids, new_blocks, num_left, True, False)


def plan(
    *chunks: ScheduledChunk,
    epoch: int = 1,
    gone: tuple[SequenceId, ...] = (),
    new: tuple[NewSequence, ...] = (),
) -> StepPlan:
    return StepPlan(epoch, gone, new, chunks, StepWork())


def test_a_new_sequence_is_known_by_all_that_the_plan_says() -> None:
    sequences = KnownSequences()
    _, (known,) = sequences.follow(plan(chunk(A), new=(new(A),)))
    assert (known.token_ids, known.block_tables) == ([5, 6, 7], ([1], [2]))
    assert (known.seed, known.num_prompt_tokens) == (7, 2)
    assert (known.eos_token_ids, known.bad_words_ids) == (frozenset({1}), ((2,),))
    assert sequences.ids == (A,)


def test_chunks_extend_their_own_sequences() -> None:
    sequences = KnownSequences()
    sequences.follow(plan(chunk(A), chunk(B), new=(new(A), new(B))))
    _, (b, a) = sequences.follow(plan(chunk(B, (8, 9), ((3, 4), (5, 6))), chunk(A, (10,))))
    assert (b.token_ids, b.block_tables) == ([5, 6, 7, 8, 9], ([1, 3, 4], [2, 5, 6]))
    assert (a.token_ids, a.block_tables) == ([5, 6, 7, 10], ([1], [2]))


def test_blocks_that_a_window_has_left_are_cleared() -> None:
    sequences = KnownSequences()
    sequences.follow(plan(chunk(A), new=(new(A),)))
    sequences.follow(plan(chunk(A, new_blocks=((3, 4), (5, 6)), num_left=(0, 1))))
    _, (known,) = sequences.follow(plan(chunk(A, num_left=(0, 2))))
    assert known.block_tables == ([1, 3, 4], [0, 0, 6])


def test_who_is_gone_is_forgotten_and_may_come_back() -> None:
    sequences = KnownSequences()
    sequences.follow(plan(chunk(A, (8,)), chunk(B), new=(new(A), new(B))))
    back = plan(chunk(A), gone=(A, B), new=(new(A),))
    assert sequences.gone(back) == (A, B)
    _, (known,) = sequences.follow(back)
    assert known.token_ids == [5, 6, 7]
    assert sequences.ids == (A,)


def test_a_new_epoch_forgets_all() -> None:
    sequences = KnownSequences()
    sequences.follow(plan(chunk(A), chunk(B), new=(new(A), new(B))))
    anew = plan(chunk(A), epoch=2, new=(new(A),))
    assert sequences.gone(anew) == (A, B)
    sequences.follow(anew)
    assert sequences.ids == (A,)
    assert sequences.gone(plan(chunk(A), epoch=2)) == ()


def test_an_unknown_sequence_is_our_own_mistake() -> None:
    sequences = KnownSequences()
    with pytest.raises(KeyError):
        sequences.follow(plan(chunk(A)))
    sequences.follow(plan(chunk(A), new=(new(A),)))
    with pytest.raises(AssertionError, match="known already"):
        sequences.follow(plan(chunk(A), new=(new(A),)))


def test_plans_that_go_on_move_all_chunks_and_tell_what_changes() -> None:
    sequences = KnownSequences()
    first, known = sequences.follow(plan(chunk(A), chunk(B), new=(new(A), new(B))))
    same = known
    for step in (1, 2):
        changes = (TableChange(1, ((3,), (4,)), (0, step)),) if step == 2 else ()
        going_on = StepPlan(1, (), (), (), StepWork(), next=NextTokens(2, changes))
        chunks, known = sequences.follow(going_on)
        assert known is same
        assert list(chunks) == [each._replace(start=each.start + step) for each in first]
    a, b = known
    assert (a.block_tables, b.block_tables) == (([1], [2]), ([1, 3], [0, 0]))
    assert b.num_left == (0, 2)


def test_tokens_that_were_computed_meanwhile_count_as_told() -> None:
    sequences = KnownSequences()
    begun = chunk(A)._replace(start=2)  # its last token
    _, (known,) = sequences.follow(plan(begun, new=(new(A),)))
    known.token_ids += [8]
    for token_id in (9, 10):
        sequences.follow(StepPlan(1, (), (), (), StepWork(), next=NextTokens(1, ())))
        known.token_ids += [token_id]
    # The step from position 4 on was the last: token 10 follows it, and that one is told.
    sequences.follow(plan(begun._replace(start=5, new_token_ids=(9, 11))))
    assert known.token_ids == [5, 6, 7, 8, 9, 11]
