"""What preempted sequences keep in host memory, block by block, and when it is copied."""

from __future__ import annotations

import pytest

from inferno.engine.kv.block_manager import BlockManager, BlockTables
from inferno.engine.kv.offload import Offload, OffloadedTokens
from inferno.engine.scheduling.step_cost import StepCostModel, StepWork
from inferno.engine.step_plan import BlockCopies

BLOCK = 4


def computed(blocks: BlockManager, token_ids: list[int], salt: str = "") -> BlockTables:
    """Return the tables of a sequence of which all these tokens are computed."""
    tables = blocks.new_tables(blocks.new_root(salt))
    blocks.share(tables, blocks.find_prefix(tables, token_ids, len(token_ids) - 1))
    blocks.allocate(tables, len(token_ids))
    blocks.commit(tables, token_ids, len(token_ids))
    blocks.slide(tables, len(token_ids))
    return tables


def preempt(
    blocks: BlockManager, offload: Offload, tables: BlockTables, num_tokens: int
) -> OffloadedTokens:
    kept = offload.save(tables, num_tokens, None)
    assert kept is not None
    blocks.release(tables)
    return kept


def bring_back(
    blocks: BlockManager,
    offload: Offload,
    tables: BlockTables,
    token_ids: list[int],
    kept: OffloadedTokens,
) -> BlockCopies:
    """Let a sequence start again, and return the copies of a plan with its first chunk."""
    prefix = blocks.find_prefix(tables, token_ids, len(token_ids) - 1)
    prefix = offload.find(tables, token_ids, kept, prefix)
    found = offload.start(tables, prefix, kept)
    if found is not None:
        offload.take_back(found)
    return offload.copies()


def test_what_the_cache_still_finds_is_not_copied() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 10)
    token_ids = list(range(10))
    tables = computed(blocks, token_ids)
    before = list(tables.groups[0])
    kept = preempt(blocks, offload, tables, 10)
    assert offload.num_used == 3
    copies = bring_back(blocks, offload, tables, token_ids, kept)
    [(block, host)] = copies.out  # of the last, which isn't full
    assert block == before[2]
    assert copies.back == ((host, tables.groups[0][2]),)
    assert tables.groups[0][:2] == before[:2]
    assert offload.num_used == 0


def test_a_block_is_copied_when_it_is_evicted() -> None:
    blocks = BlockManager(4, BLOCK)
    offload = Offload(blocks, 10)
    token_ids = list(range(9))
    tables = computed(blocks, token_ids)
    before = list(tables.groups[0])
    kept = preempt(blocks, offload, tables, 9)
    assert [block for block, _ in offload.copies().out] == before[2:]
    other = computed(blocks, list(range(20, 36)), "another")
    copies = offload.copies()
    assert sorted(block for block, _ in copies.out) == sorted(before[:2])
    assert not copies.back
    blocks.release(other)
    copies = bring_back(blocks, offload, tables, token_ids, kept)
    assert not copies.out
    assert [block for _, block in copies.back] == tables.groups[0]


def test_a_block_that_is_computed_and_evicted_again_is_copied_once() -> None:
    blocks = BlockManager(4, BLOCK)
    offload = Offload(blocks, 10)
    token_ids = list(range(9))
    preempt(blocks, offload, computed(blocks, token_ids), 9)
    num_copied = 0
    for number in range(3):
        blocks.release(computed(blocks, list(range(20, 36)), f"other {number}"))
        blocks.release(computed(blocks, token_ids))
        num_copied += len(offload.copies().out)
    assert num_copied == 3


def test_sequences_that_share_a_block_have_one_copy_of_it() -> None:
    blocks = BlockManager(5, BLOCK)
    offload = Offload(blocks, 10)
    all_ids = [[*range(9), last] for last in (50, 51)]
    all_tables = [computed(blocks, token_ids) for token_ids in all_ids]
    both = [preempt(blocks, offload, tables, 10) for tables in all_tables]
    assert both[0].groups[0][:2] == both[1].groups[0][:2]
    assert offload.num_used == 4
    computed(blocks, list(range(20, 40)), "another")
    assert len(offload.copies().out) == 4
    offload.release(both[0])
    assert offload.num_used == 3
    offload.release(both[1])
    assert offload.num_used == 0


@pytest.mark.parametrize("window", [1, 3, 4, 5, 9])
def test_what_a_window_has_left_is_not_kept(window: int) -> None:
    blocks = BlockManager(20, BLOCK, (None, window))
    offload = Offload(blocks, 20)
    token_ids = list(range(19))
    tables = computed(blocks, token_ids)
    kept = preempt(blocks, offload, tables, 19)
    seen = {position // BLOCK for position in range(max(0, 19 - window + 1), 19)}
    num_seen = max(len(seen), 1)  # the next token's own block is there too
    assert list(map(len, kept.groups)) == [5, num_seen]
    bring_back(blocks, offload, tables, token_ids, kept)
    assert tables.num_left == (0, 5 - num_seen)
    assert all(tables.groups[0])
    assert [bool(block) for block in tables.groups[1]] == [False] * (5 - num_seen) + [
        True
    ] * num_seen


def test_without_room_nothing_is_kept_and_nothing_reserved() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 3)
    tables = computed(blocks, list(range(13)))
    assert offload.save(tables, 13, None) is None
    assert offload.save(tables, 0, None) is None
    assert offload.num_used == 0
    assert offload.save(tables, 12, None) is not None
    assert offload.num_used == 3


@pytest.mark.parametrize(
    ("recompute_seconds", "is_kept"), [(None, False), (5.9, False), (6.0, False), (6.1, True)]
)
def test_tokens_are_kept_where_both_copies_take_less_time(
    recompute_seconds: float | None, is_kept: bool
) -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 10, seconds_per_block=1.0)
    tables = computed(blocks, list(range(10)))
    assert (offload.save(tables, 10, recompute_seconds) is not None) == is_kept


def test_an_aborted_sequence_takes_its_copies_along() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 10)
    kept = preempt(blocks, offload, computed(blocks, list(range(10))), 10)
    was_due = offload.has_due
    offload.release(kept)
    assert (was_due, offload.has_due) == (True, False)
    assert offload.copies() == BlockCopies()


def test_what_a_plan_in_flight_copies_is_not_taken_back_before_its_end() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 1)
    token_ids = [1, 2, 3]
    tables = computed(blocks, token_ids)
    offload.release(preempt(blocks, offload, tables, 3))
    first = preempt(blocks, offload, computed(blocks, token_ids), 3)
    early = offload.copies()
    offload.release(first)  # and its host block is another's, while the copy is in flight
    tables = computed(blocks, token_ids)
    kept = preempt(blocks, offload, tables, 3)
    late = offload.copies()
    prefix = offload.find(tables, token_ids, kept, blocks.find_prefix(tables, token_ids, 2))
    assert offload.start(tables, prefix, kept) is kept
    assert not offload.can_take_back(kept)
    offload.settle(early)
    assert not offload.can_take_back(kept)
    offload.settle(late)
    assert offload.can_take_back(kept)


def test_one_plan_may_copy_a_block_there_and_back() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 1)
    token_ids = [1, 2, 3]
    tables = computed(blocks, token_ids)
    kept = preempt(blocks, offload, tables, 3)
    copies = bring_back(blocks, offload, tables, token_ids, kept)
    assert [host for _, host in copies.out] == [host for host, _ in copies.back] == [0]
    assert offload.num_used == 0


def test_a_longer_prefix_in_the_cache_is_used_in_place_of_what_is_kept() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 10)
    token_ids = list(range(14))
    tables = computed(blocks, token_ids[:6])
    kept = preempt(blocks, offload, tables, 6)
    computed(blocks, token_ids)
    copies = bring_back(blocks, offload, tables, token_ids, kept)
    assert copies == BlockCopies()
    assert len(tables.groups[0]) == 3
    assert offload.num_used == 0


def test_forgetting_frees_all_host_blocks() -> None:
    blocks = BlockManager(10, BLOCK)
    offload = Offload(blocks, 4)
    for _ in range(3):
        preempt(blocks, offload, computed(blocks, list(range(13))), 13)
        assert offload.num_used == 4
        offload.forget()
        assert offload.num_used == 0
        assert offload.copies() == BlockCopies()


def test_recomputing_is_expected_to_take_what_its_tokens_add_to_steps() -> None:
    """Of a machine on which a step takes 10 ms, and a token 1 ms more."""
    costs = StepCostModel()
    assert costs.expect_more(100, None) is None
    for number in range(60):
        work = StepWork()
        work.add(0, num_tokens := 1 + 37 * number % 300)
        costs.observe(work, 0.010 + 0.001 * num_tokens)
    found = costs.expect_more(200, None)
    assert found is not None
    assert found == pytest.approx(0.2, rel=0.1)
