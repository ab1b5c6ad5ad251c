"""Steps on a device that computes on its own: the same bits, one wait and one copy a step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.engine import Engine
from inferno.engine.execution import runner, static_batcher
from inferno.engine.execution.executor import LaunchedStep
from inferno.engine.execution.static_batcher import PADDED_SIZES, StaticBatcher, padded_size
from inferno.engine.step_plan import LaterChunks, StepPlan
from inferno.ops import Batch, NoRoomForGraph
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.engine import test_steps_ahead as ahead
from tests.engine.fake_device import POISON, Device, FakeCapture, WaitedFor
from tests.engine.local import executor_of
from tests.engine.simulation import chunks_of
from tests.engine.test_steps_ahead import END, VOCAB_SIZE, Outcome, folder, streams_that_go_on

__all__ = ["folder", "streams_that_go_on"]  # fixtures

Outcomes = dict[ahead.Key, Outcome]

# The device draws these by itself.
PLAIN: list[dict[str, Any]] = [
    {"temperature": 0.0, "ignore_eos": True},
    {"temperature": 1.2},
    {"n": 3, "top_p": 0.9, "top_k": 20},
    {"min_p": 0.02, "min_tokens": 6},
    {"temperature": 0.8, "stop_token_ids": [5, 6, 7, 8, 9, 10, 11]},
    {"temperature": 1.0, "max_tokens": 1},
]
# Of these it changes logits first, or tells more of them.
DEMANDING: list[dict[str, Any]] = [
    {"temperature": 1.2, "logprobs": 2},
    {"logit_bias": {7: 3.0, 8: 3.0}, "temperature": 1.5, "logprobs": 0},
    {"frequency_penalty": 0.4, "repetition_penalty": 1.3, "min_tokens": 3},
    {"presence_penalty": 1.1, "temperature": 0.0, "logprobs": 5, "n": 2},
    {"allowed_token_ids": [END, *range(0, 96, 2)], "temperature": 2.0, "frequency_penalty": 1.0},
    {"repetition_penalty": 1e-30, "temperature": 0.0, "ignore_eos": True},
]
# For these the step must wait for the one before it.
OTHERS: list[dict[str, Any]] = [
    {"temperature": 1.2, "logprobs": 2, "logprob_token_ids": [5, 6]},
    {"prompt_logprobs": 1, "temperature": 1.0},
]


def requests_of(kinds: Sequence[dict[str, Any]]) -> Callable[[int], list[Request]]:
    def requests(seed: int) -> list[Request]:
        generator = random.Random(seed)
        shuffled = generator.sample(kinds, len(kinds))
        common = [generator.randrange(VOCAB_SIZE) for _ in range(12)]
        return [
            Request(
                request_id=f"request {number}",
                prompt_token_ids=(
                    *common[: generator.randint(0, 12)],
                    *(generator.randrange(VOCAB_SIZE) for _ in range(generator.randint(1, 9))),
                ),
                params=SamplingParams(
                    **{"max_tokens": generator.randint(9, 22), "seed": 7, **kind}
                ),
                priority=number // 2,
                eos_token_ids=frozenset({END}),
                bad_words_ids=((4,), (11,)) if generator.random() < 0.3 else (),
            )
            for number, kind in enumerate(shuffled)
        ]

    return requests


KINDS = {
    "plain": PLAIN,
    "demanding": PLAIN[:3] + DEMANDING,
    "mixed": PLAIN[:3] + DEMANDING[:3] + OTHERS,
}


def on_the_cpu(folder: Path, seed: int, *, masked: bool = False) -> Outcomes:
    return ahead.run(ahead.build(folder, masked=masked), seed)


def on_a_device(folder: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[Engine, Device]:
    device = Device()
    monkeypatch.setitem(ops.BACKENDS, "cpu", device)
    engine = ahead.build(folder, depth=1, **how)
    return engine, device


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("guesses", ["none", "known"])
@pytest.mark.parametrize("kinds", list(KINDS))
@pytest.mark.parametrize("seed", range(2))
def test_tokens_are_those_of_steps_one_after_the_other(
    folder: Path,
    seed: int,
    kinds: str,
    guesses: str,
    masked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "requests", requests_of(KINDS[kinds]))
    expected = on_the_cpu(folder, seed, masked=masked)
    proposer = None if guesses == "none" else ahead.KnownAnswers(expected)
    engine, device = on_a_device(folder, monkeypatch, proposer=proposer, masked=masked)
    ahead.same(ahead.run(engine, seed), expected)
    assert engine._scheduler.num_preemptions
    assert device.num_replays > device.num_captures > 0
    if not masked:
        assert device.num_waits, "the device drew no token by itself"


def test_attention_that_no_kernel_takes_is_not_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference takes a step's lengths on the host, which a graph would repeat for others."""
    paged_attention = pytest.importorskip("inferno.ops.cuda.paged_attention")
    monkeypatch.setattr(ahead, "requests", requests_of(PLAIN))
    monkeypatch.setattr(paged_attention, "_takes", lambda *_: False)
    monkeypatch.setattr(ops.BACKENDS["cpu"], "attention", paged_attention.attention)
    expected = on_the_cpu(folder, 0)
    engine, device = on_a_device(folder, monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: device.is_capturing)
    ahead.same(ahead.run(engine, 0), expected)
    assert device.num_captures == 0


@pytest.mark.parametrize("num_captured", [0, 3])
def test_steps_run_without_graphs_that_memory_does_not_suffice_for(
    folder: Path,
    num_captured: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ahead, "requests", requests_of(PLAIN))
    expected = on_the_cpu(folder, 0)
    capture = FakeCapture.capture
    out_of_memory = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
    freed: list[BaseException] = []
    monkeypatch.setattr(runner, "free_after", freed.append)

    def capture_some(self: FakeCapture, function: Any) -> Any:
        captured = capture(self, function)
        if self._device.num_captures > num_captured:
            try:
                raise out_of_memory
            except torch.OutOfMemoryError as problem:
                raise NoRoomForGraph from problem
        return captured

    monkeypatch.setattr(FakeCapture, "capture", capture_some)
    engine, device = on_a_device(folder, monkeypatch)
    found = ahead.run(engine, 0)
    ahead.same(found, expected)
    assert device.num_captures == num_captured + 1, "it was tried again and again"
    assert (device.num_replays > 0) is (num_captured > 0)
    assert f"the graph of a step after {num_captured} others" in caplog.text
    assert freed == [out_of_memory], "whose frames hold what the pass had computed"


@pytest.mark.parametrize("failing_step", [2, 5, 6, 11, 17])
def test_who_was_not_in_a_failed_step_goes_on(
    folder: Path, failing_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "requests", requests_of(PLAIN))
    expected = on_the_cpu(folder, 0)
    engine, _ = on_a_device(folder, monkeypatch)
    launch, plans = engine._executor.launch, iter(range(1000))
    planned: set[str] = set()

    def fail_once(plan: StepPlan) -> LaunchedStep:
        if next(plans) == failing_step:
            chunks = chunks_of(engine._scheduler, plan)
            planned.update(chunk.request_id for chunk in chunks)
            raise RuntimeError("planted")
        return launch(plan)

    engine._executor.launch = fail_once  # type: ignore[method-assign]
    found = ahead.run(engine, 0)
    ahead.same(found, expected, may_fail=True)
    failed = {key[0] for key, one in found.items() if one.ending and one.ending[0] == "error"}
    assert failed == planned


def stream(number: int, **params: Any) -> Request:
    return Request(
        request_id=f"stream {number}",
        prompt_token_ids=tuple(range(1 + number, 8 + 2 * number)),
        params=SamplingParams(**{"max_tokens": 25, "seed": number, "ignore_eos": True, **params}),
    )


STREAMS = {
    "plain": [
        stream(0, temperature=0.0),
        stream(1, temperature=1.0, top_p=0.9),
        stream(2, min_p=0.1),
    ],
    "demanding": [
        stream(0, temperature=0.0, logit_bias={5: 4.0, 9: -90.0}, min_tokens=25, logprobs=3),
        stream(1, temperature=1.0, top_p=0.9, frequency_penalty=0.5, repetition_penalty=1.4),
        stream(2, min_p=0.1, allowed_token_ids=list(range(4, 90)), logprobs=0),
    ],
}


@pytest.mark.parametrize("reach", [1, 4, 12])
@pytest.mark.parametrize("kind", list(STREAMS))
def test_tables_grow_wider_while_steps_go_on(
    folder: Path, kind: str, reach: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step with a wider table is built anew, from chunks that the plan doesn't tell."""
    monkeypatch.setattr(static_batcher, "_LEAST_REACH", reach)
    expected: Outcomes = {}
    engine = ahead.build(folder, num_blocks=60)
    for request in STREAMS[kind]:
        engine.add_request(request)
    while engine.has_work:
        ahead.note(engine.step(), expected)

    engine, _ = on_a_device(folder, monkeypatch, num_blocks=60)
    built: list[object] = []
    build = StaticBatcher.build

    def noted(batcher: StaticBatcher, chunks: Any, *args: Any) -> Batch:
        built.append(chunks)
        return build(batcher, chunks, *args)

    monkeypatch.setattr(StaticBatcher, "build", noted)
    found: Outcomes = {}
    for request in STREAMS[kind]:
        engine.add_request(request)
    num_steps = 0
    while engine.has_work:
        ahead.note(engine.step(), found)
        num_steps += 1
    assert found == expected
    assert any(isinstance(chunks, LaterChunks) for chunks in built)
    assert len(built) < num_steps // 2


@pytest.mark.parametrize("kind", list(STREAMS))
def test_a_step_has_one_copy_to_the_device_and_one_wait_for_it(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three streams cross blocks, and one layer's window leaves them, while nobody looks.

    Lists of penalised tokens are copied besides, from new memory each time.
    """
    expected: Outcomes = {}
    engine = ahead.build(folder)
    for request in STREAMS[kind]:
        engine.add_request(request)
    while engine.has_work:
        ahead.note(engine.step(), expected)

    engine, device = on_a_device(folder, monkeypatch, num_blocks=60)
    found: Outcomes = {}
    for request in STREAMS[kind]:
        engine.add_request(request)
    for _ in range(6):
        ahead.note(engine.step(), found)
    assert all(outcome.tokens for outcome in found.values())
    for _ in range(14):
        before = replace(device)
        with device.watching():
            events = engine.step()
        ahead.note(events, found)
        assert len(events) == len(STREAMS[kind])
        assert device.num_waits == before.num_waits + 1
        assert device.num_copies == before.num_copies + 1
        assert device.num_early_waits == before.num_early_waits
        assert len(engine._in_flight) == 1, "a step is in flight"
    while engine.has_work:
        ahead.note(engine.step(), found)
    assert found == expected


@pytest.mark.parametrize("kinds", ["plain", "demanding"])
def test_no_step_of_a_whole_run_waits_twice(
    folder: Path, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where requests come, go, or are preempted either."""
    monkeypatch.setattr(ahead, "requests", requests_of(KINDS[kinds]))
    expected = on_the_cpu(folder, 0)
    engine, device = on_a_device(folder, monkeypatch)
    step = engine.step

    def watched_step() -> Any:
        num_waits = device.num_waits
        with device.watching():
            events = step()
        assert device.num_waits <= num_waits + 1
        return events

    monkeypatch.setattr(engine, "step", watched_step)
    ahead.same(ahead.run(engine, 0), expected)
    assert engine._scheduler.num_preemptions
    assert device.num_waits > 20


def test_a_sequence_that_ends_leaves_the_others_without_a_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, device = on_a_device(folder, monkeypatch, num_blocks=60)
    for number, max_tokens in enumerate((6, 9, 20)):
        engine.add_request(stream(number, temperature=0.0, max_tokens=max_tokens))
    for _ in range(5):
        engine.step()
    while engine.has_work:
        num_waits = device.num_waits
        with device.watching():
            engine.step()
        assert device.num_waits <= num_waits + 1


def test_an_output_ends_no_sooner_than_it_may(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tokens but one would end it, as soon as they may."""
    engine, _ = on_a_device(folder, monkeypatch)
    request = stream(0, temperature=0.0, min_tokens=4, ignore_eos=False)
    engine.add_request(replace(request, eos_token_ids=frozenset(range(VOCAB_SIZE)) - {5}))
    outcomes: Outcomes = {}
    while engine.has_work:
        ahead.note(engine.step(), outcomes)
    (outcome,) = outcomes.values()
    assert outcome.tokens[:4] == [5] * 4
    assert outcome.tokens[4:] != [5]
    assert len(outcome.tokens) == 5


def batches_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Return a list to which each batch is added that is run from now on."""
    batches: list[Batch] = []
    runner = executor_of(engine)._runner
    forward = runner.forward

    def noted(batch: Batch, *rest: Any) -> Tensor:
        batches.append(batch)
        return forward(batch, *rest)

    monkeypatch.setattr(runner, "forward", noted)
    return batches


def tensors(batch: Batch) -> list[Tensor]:
    of_groups = [t for group in batch.groups for t in (group.block_tables_RB, group.slots_T)]
    return [
        *(batch.token_ids_T, batch.positions_T, batch.query_starts_R, batch.context_lens_R),
        *of_groups,
    ]


def test_padded_steps_of_a_shape_lie_in_the_same_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "requests", requests_of(PLAIN))
    engine, _ = on_a_device(folder, monkeypatch)
    batches = batches_of(engine, monkeypatch)
    ahead.run(engine, 1)
    seen: dict[Any, Any] = {}
    for batch in batches:
        assert batch.is_fixed
        size = len(batch.token_ids_T)
        assert size == padded_size(sum(batch.query_lens))
        assert len(batch.context_lens_R) == size
        places = [(t.data_ptr(), t.shape, t.stride()) for t in tensors(batch)]
        width = batch.groups[0].block_tables_RB.shape[1]
        assert seen.setdefault((size, width, batch.longest_query), places) == places
        assert batch.longest_query is not None
        assert max(batch.query_lens) <= batch.longest_query
    assert len(seen) > 2


def test_padded_rows_touch_nothing_but_scratch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = on_a_device(folder, monkeypatch)
    kv = executor_of(engine)._runner._kv
    for layer in kv:
        layer.keys_NSKD.fill_(math.nan)
        layer.values_NSKD.fill_(math.nan)
    taken: set[int] = set()
    pool = engine._scheduler.pool
    take = pool.take

    def noted() -> int:
        block = take()
        taken.add(block)
        return block

    monkeypatch.setattr(pool, "take", noted)
    engine.add_request(stream(0, max_tokens=3))
    engine.add_request(stream(1, max_tokens=3))
    engine.add_request(stream(2, max_tokens=3))
    while engine.has_work:
        for event in engine.step():
            assert event.error is None
    others = [block for block in range(1, pool.num_blocks + 1) if block not in taken]
    assert others
    for layer in kv:
        assert bool(layer.keys_NSKD[others].isnan().all())
        assert bool(layer.values_NSKD[others].isnan().all())


def test_rows_without_numbers_end_their_sequence_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = on_a_device(folder, monkeypatch)
    runner = executor_of(engine)._runner
    logits_at = runner.logits_at

    def broken(hidden_TE: Tensor, rows_N: Tensor | None, num_rows: int) -> Tensor:
        logits_RV = logits_at(hidden_TE, rows_N, num_rows)
        if num_rows == 2:
            logits_RV[1, 5] = math.nan
        return logits_RV

    monkeypatch.setattr(runner, "logits_at", broken)
    engine.add_request(stream(0, temperature=1.0, max_tokens=8))
    engine.add_request(stream(1, temperature=1.0, max_tokens=8))
    endings: dict[str, TokenEvent] = {}
    while engine.has_work:
        for event in engine.step():
            if event.finish_reason is not None:
                endings[event.request_id] = event
    assert endings["stream 0"].finish_reason is FinishReason.LENGTH
    assert endings["stream 1"].finish_reason is FinishReason.ERROR
    assert "non-finite logits at position" in (endings["stream 1"].error or "")


def test_logits_of_a_text_are_those_of_the_cpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [5, 6, 7, 20, 21, 40, 3, 2, 1, 9, 8, 7, 7, 7]
    expected = ahead.build(folder).logits(ids)
    engine, _ = on_a_device(folder, monkeypatch)
    assert torch.equal(engine.logits(ids), expected)


def test_sizes_ascend_and_are_never_far_apart() -> None:
    assert list(PADDED_SIZES) == sorted(set(PADDED_SIZES))
    assert [padded_size(n) for n in (1, 2, 3, 9, 64, 65, 256)] == [1, 2, 4, 12, 64, 80, 256]
    assert all(larger <= 2 * smaller for smaller, larger in pairwise(PADDED_SIZES))


# The device itself: what it catches


def test_results_are_poison_until_they_are_waited_for() -> None:
    download = Device().new_download(4)
    fetched = download.fetch(torch.tensor([1, 2, 3]))
    assert fetched.target_N.tolist() == [POISON] * 3
    assert fetched.wait().tolist() == [1, 2, 3]


def test_memory_that_is_being_copied_may_not_be_written() -> None:
    device = Device()
    upload, download = device.new_upload(4), device.new_download(4)
    host_N = upload.begin()
    host_N[:2] = 7
    upload.send(2)
    host_N[1] = 8
    with pytest.raises(AssertionError, match="written while"):
        download.fetch(upload.device_N).wait()


def test_graphs_read_where_they_were_captured_and_spoil_each_other() -> None:
    device = Device()
    capture = device.graph_capture(ops.kernel_context(1))
    x, y = torch.ones(2), torch.ones(3)
    first, result = capture.capture(lambda: x + 1)
    second, _ = capture.capture(lambda: y + 1)
    assert bool(result.isnan().all()), "another graph was made"
    x.fill_(4)
    assert first.replay().tolist() == [5, 5]
    second.replay()
    assert bool(result.isnan().all())


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: float(x),
        lambda x: bool(x),
        lambda x: x.nonzero(),
        lambda x: torch.tensor([1]),
    ],
)
def test_whoever_waits_is_caught(read: Callable[[Tensor], object]) -> None:
    x = torch.ones(())
    with Device().watching(), pytest.raises(WaitedFor):
        read(x)
