"""Sequences whose blocks wait in host memory: how much is kept of them, and where they go on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.kv.offload import Offload
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.scheduling.sequence import SequenceState, Status
from inferno.engine.scheduling.speculation import Proposer
from inferno.requests import FinishReason
from tests.engine.simulation import (
    Device,
    Guesser,
    Ledger,
    always,
    check_invariants,
    commit,
    fail,
    make_request,
    oracle,
)

BLOCK = 4
NUM_BLOCKS = 8
MAX_LEN = 30
PROMPT = (1, 2, 3, 4, 1, 2, 3, 4, 2)


def make(
    *, proposer: Proposer | None = None, max_num_batched_tokens: int = 64
) -> tuple[Scheduler, Device]:
    blocks = BlockManager(NUM_BLOCKS, BLOCK, (None,), enable_prefix_cache=False)
    scheduler = Scheduler(
        blocks,
        max_num_seqs=4,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=MAX_LEN,
        speculation=always(proposer),
        offload=Offload(blocks, 2 * NUM_BLOCKS),
    )
    return scheduler, Device(BLOCK, (None,), shares_between_requests=False)


def step(scheduler: Scheduler, device: Device, ledger: Ledger | None = None) -> list[str]:
    """Plan a step and take it in; return what it computed."""
    plan = scheduler.plan()
    events = commit(scheduler, plan, device.run(plan))
    check_invariants(scheduler, device)
    if ledger is not None:
        ledger.note(events)
    return [f"{chunk.request_id} {chunk.start}" for chunk in plan.chunks]


def the_only(sequences: Sequence[SequenceState]) -> SequenceState:
    (sequence,) = sequences
    return sequence


def drive_out(scheduler: Scheduler) -> None:
    """Add a request that outranks all others and needs all blocks."""
    scheduler.add(make_request("first", range(3, 2 + MAX_LEN), priority=1, max_tokens=1))


@pytest.mark.parametrize("num_right", [0, 1, 3])
def test_of_proposals_in_flight_nothing_is_kept(num_right: int) -> None:
    """Nobody knows yet which of them stand, and the keys of the others are of no use."""
    guesser = Guesser((None,), sizes=lambda: 3, hits=lambda: num_right)
    scheduler, device = make(proposer=guesser)
    request = make_request("a", PROMPT, max_tokens=12, ignore_eos=True)
    scheduler.add(request)
    ledger = Ledger()
    step(scheduler, device, ledger)
    sequence = the_only(scheduler._running)
    proposed = scheduler.plan()
    (chunk,) = proposed.chunks
    assert len(chunk.proposed_token_ids) == 3
    results = device.run(proposed)  # its results come later
    drive_out(scheduler)
    taking = scheduler.plan()
    assert sequence.status is Status.PREEMPTED
    assert sequence.offloaded is not None
    assert sequence.offloaded.num_tokens == len(sequence.token_ids) == len(PROMPT) + 1
    later = device.run(taking)
    ledger.note(commit(scheduler, proposed, results))
    ledger.note(commit(scheduler, taking, later))
    assert step(scheduler, device, ledger)[0] == f"a {len(PROMPT) + 1}"
    while scheduler.has_work:
        step(scheduler, device, ledger)
    assert (ledger.tokens["a", 0], FinishReason.LENGTH) == oracle(request, 0, (None,), MAX_LEN)
    assert device.num_copied["back"] > 0


@pytest.mark.parametrize("is_swapped", [True, False])
def test_a_prompts_log_probabilities_are_told_once_however_it_was_interrupted(
    is_swapped: bool,
) -> None:
    """Those before the interruption stay with what is kept, and are gathered anew without it."""
    scheduler, device = make(max_num_batched_tokens=5)
    scheduler.add(make_request("a", PROMPT, max_tokens=1, prompt_logprobs=0))
    assert step(scheduler, device) == ["a 0"]
    drive_out(scheduler)
    ledger = Ledger()
    while "first" in str(scheduler._requests) or not scheduler._requests:
        assert step(scheduler, device, ledger)
        if not is_swapped:
            scheduler.resend()  # which makes void what the host has
    assert step(scheduler, device, ledger) == ["a 5" if is_swapped else "a 0"]
    while scheduler.has_work:
        step(scheduler, device, ledger)
    told = ledger.endings["a", 0].prompt_logprobs
    assert told is not None
    assert [None if one is None else one.token_id for one in told] == [None, *PROMPT[1:]]


def test_who_was_about_to_take_blocks_back_computes_again_after_a_failure() -> None:
    """It runs, but its first step waits for the copy that a plan in flight makes; which fails."""
    scheduler, device = make()
    request = make_request("a", PROMPT, max_tokens=6, ignore_eos=True)
    scheduler.add(request)
    ledger = Ledger()
    step(scheduler, device, ledger)
    sequence = the_only(scheduler._running)
    drive_out(scheduler)
    copying = scheduler.plan()
    assert copying.copies.out
    device.run(copying)
    scheduler.abort("first")
    assert not scheduler.plan().chunks
    assert scheduler._running == [sequence]
    assert sequence.offloaded is not None
    device.host.clear()  # no copy was made
    ledger.note(fail(scheduler, copying, "planted"))
    assert scheduler._waiting == [sequence]
    assert not sequence.offloaded
    assert scheduler.offload.num_used == 0
    check_invariants(scheduler, device)
    assert step(scheduler, device, ledger) == ["a 0"]
    while scheduler.has_work:
        step(scheduler, device, ledger)
    assert (ledger.tokens["a", 0], FinishReason.LENGTH) == oracle(request, 0, (None,), MAX_LEN)
    assert device.num_copied["back"] == 0
