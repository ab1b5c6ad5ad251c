"""Preempted sequences that keep their blocks in host memory give the same bits as all others."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import LLM, ops
from inferno.config.decoder import KVSpec
from inferno.engine import build as building
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.executor import LaunchedStep
from inferno.engine.execution.first_layers import FirstLayers
from inferno.engine.kv.kv_cache import HostCache, KVLayout, allocate, tensors_of
from inferno.engine.proposers.early_layers import EarlyLayersProposer
from inferno.engine.sampling.sampler import Sampler
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.step_plan import BlockCopies, StepPlan
from inferno.errors import InvalidRequest, NotEnoughMemory
from inferno.options import EngineOptions
from inferno.requests import FinishReason, SamplingParams, TokenEvent
from tests.engine.fake_device import Device
from tests.engine.local import executor_of
from tests.engine.simulation import always
from tests.engine.test_fake_device import KINDS, requests_of
from tests.engine.test_steps_ahead import (
    VOCAB_SIZE,
    KnownAnswers,
    Outcome,
    RandomGuesses,
    Shifting,
    note,
    run,
    same,
)
from tests.engine.wire import WiredExecutor
from tests.tiny import save_tiny

Key = tuple[str, int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a model lies, one of whose layers sees a window only."""
    folder = tmp_path_factory.mktemp("model")
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    }
    save_tiny(folder, "qwen3", head_dim=16, vocab_size=VOCAB_SIZE, **windows)
    return folder


class CountingExecutor(WiredExecutor):
    """Counts the copies that plans ask for."""

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        self.num_copied: Counter[str] = Counter()

    def launch(self, plan: StepPlan) -> LaunchedStep:
        self.num_copied += Counter(out=len(plan.copies.out), back=len(plan.copies.back))
        return super().launch(plan)


def build(folder: Path, *, depth: int = 0, masked: bool = False, **options: Any) -> Engine:
    chosen: dict[str, Any] = {
        "threads": 1,
        "block_size": 4,
        "num_blocks": 20,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 24,
        "max_model_len": 48,
        "step_target_ms": 0,
        "preemption": "swap",
        "swap_space": 0.01,
        "speculative": "off",
        **options,
    }
    engine = build_engine(EngineOptions(model=folder, **chosen))
    executor_of(engine)._depth = depth
    engine._executor = CountingExecutor(engine._executor)
    engine._scheduler._constrain = Shifting if masked else None
    return engine


def num_copied(engine: Engine) -> Counter[str]:
    assert isinstance(engine._executor, CountingExecutor)
    return engine._executor.num_copied


@cache
def plain(folder: Path, seed: int, masked: bool = False, **options: Any) -> dict[Key, Outcome]:
    """Return what becomes of the requests where there are blocks for all."""
    engine = build(
        folder, num_blocks=400, max_num_seqs=20, preemption="recompute", masked=masked, **options
    )
    outcomes = run(engine, seed)
    assert not engine.occupancy.num_preemptions
    return outcomes


def check(engine: Engine, *, came_back: bool = True) -> None:
    """Check that sequences were swapped, and that nothing of it is left."""
    now = engine.occupancy
    assert 0 < now.num_swaps <= now.num_preemptions
    assert now.blocks_swapped == 0
    if came_back:
        assert num_copied(engine)["out"] >= num_copied(engine)["back"] > 0


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("guesses", ["none", "random", "known"])
@pytest.mark.parametrize("seed", range(2))
def test_swapped_sequences_go_on_with_the_same_bits(
    folder: Path, seed: int, guesses: str, depth: int, masked: bool
) -> None:
    expected = plain(folder, seed, masked)
    proposers = {"none": None, "random": RandomGuesses(), "known": KnownAnswers(expected)}
    engine = build(folder, depth=depth, masked=masked)
    engine._scheduler.speculation = always(proposers[guesses])
    same(run(engine, seed), expected)
    check(engine, came_back=guesses == "none")


@pytest.mark.parametrize("kinds", ["plain", "mixed"])
@pytest.mark.parametrize("seed", range(4))
def test_sequences_are_swapped_while_a_device_computes_on_its_own(
    folder: Path, seed: int, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is in flight; requests come and one goes at random, and blocks are few or fewer."""
    requests = requests_of(KINDS[kinds])(seed)
    expected: dict[Key, Outcome] = {}
    engine = build(folder, num_blocks=400, max_num_seqs=20, preemption="recompute")
    for request in requests:
        engine.add_request(request)
    while engine.has_work:
        note(engine.step(), expected)

    device, generator = Device(), random.Random(seed)
    monkeypatch.setitem(ops.BACKENDS, "cpu", device)
    engine = build(
        folder,
        depth=1,
        num_blocks=generator.randint(18, 20),
        max_num_seqs=generator.randint(2, 4),
        prefix_cache=generator.random() < 0.5,
    )
    found: dict[Key, Outcome] = {}
    waiting, most_in_flight = list(requests), 0
    while waiting or engine.has_work:
        while waiting and generator.random() < 0.4:
            engine.add_request(waiting.pop(0))
        if waiting and generator.random() < 0.03:
            engine.abort(requests[0].request_id)
        note(engine.step(), found)
        most_in_flight = max(most_in_flight, len(engine._in_flight))
    same(found, expected)
    check(engine)
    assert most_in_flight == 1
    assert device.num_replays > 0
    assert engine._scheduler.pool.num_available == engine._scheduler.pool.num_blocks


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_every_kind_of_cache_comes_back(
    folder: Path, block_size: int, prefix_cache: bool, kv_dtype: str
) -> None:
    """The scales of int8 are copied too, and blocks of any size."""
    options: dict[str, Any] = {
        "kv_dtype": kv_dtype,
        "block_size": block_size,
        "prefix_cache": prefix_cache,
    }
    expected = plain(folder, 0, **options)
    engine = build(folder, num_blocks={1: 80, 3: 30, 16: 8}[block_size], **options)
    same(run(engine, 0), expected)
    check(engine)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("seed", range(2))
def test_layers_that_run_ahead_of_a_step_spoil_no_block_that_is_to_be_copied(
    folder: Path, seed: int, depth: int
) -> None:
    engine = build(folder, depth=depth)
    executor = executor_of(engine)
    executor._first_layers = FirstLayers(
        executor._batcher, executor._runner, num_layers=2, num_tokens=24
    )
    proposer = EarlyLayersProposer(
        executor._first_layers,
        Sampler(VOCAB_SIZE, torch.device("cpu")),
        executor._kernels,
        VOCAB_SIZE,
    )
    engine._scheduler.speculation = Speculation([proposer], num_tokens=4)
    same(run(engine, seed), plain(folder, seed))
    check(engine)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("failing_step", [5, 9, 14, 20, 27])
def test_a_failed_step_makes_others_compute_again_what_was_swapped(
    folder: Path, failing_step: int, depth: int
) -> None:
    """Nobody knows which copies were made; here none was, and the host's bytes are lost."""
    engine = build(folder, depth=depth)
    executor = executor_of(engine)
    forward, steps = executor._runner.forward, iter(range(10_000))
    host = executor._host_cache
    assert host is not None

    def fail_once(*arguments: Any) -> Any:
        if next(steps) == failing_step:
            for _, on_host in host._parts:
                on_host.fill_(255)
            raise RuntimeError("planted")
        return forward(*arguments)

    runner: Any = executor._runner
    runner.forward = fail_once
    found = run(engine, 0)
    same(found, plain(folder, 0), may_fail=True)
    assert FinishReason.ERROR in {one.ending[0] for one in found.values() if one.ending}
    check(engine, came_back=False)  # how much is still swapped after the failure, time decides


def test_an_engine_may_let_go_of_memory_while_sequences_are_swapped(folder: Path) -> None:
    engine = build(folder)
    release, step = engine.release_memory, engine.step
    num_swapped = 0

    def sometimes_released_step() -> list[TokenEvent]:
        nonlocal num_swapped
        if engine._scheduler._epoch < 9 and engine.occupancy.blocks_swapped:
            num_swapped += 1
            release()
            assert not engine.occupancy.blocks_swapped
        return step()

    engine.step = sometimes_released_step  # type: ignore[method-assign]
    same(run(engine, 1), plain(folder, 1))
    assert num_swapped > 1


def test_without_room_on_the_host_tokens_are_computed_again(folder: Path) -> None:
    engine = build(folder)
    host = executor_of(engine)._host_cache
    assert host is not None
    block_bytes = sum(part.shape[1] for part, _ in host._parts)
    engine = build(folder, swap_space=3 * block_bytes / 2**30)
    assert engine._scheduler.offload.num_host_blocks == 3
    same(run(engine, 1), plain(folder, 1))
    assert engine.occupancy.num_preemptions > engine.occupancy.num_swaps


@pytest.mark.parametrize(("seconds_per_block", "is_worth_it"), [(1e-9, True), (1e3, False)])
def test_tokens_are_swapped_where_copies_are_measured_to_be_quicker(
    folder: Path, seconds_per_block: float, is_worth_it: bool
) -> None:
    engine = build(folder)
    engine._scheduler.offload._seconds_per_block = seconds_per_block
    same(run(engine, 1), plain(folder, 1))
    assert engine.occupancy.num_preemptions
    assert bool(engine.occupancy.num_swaps) == is_worth_it


def test_nothing_is_swapped_on_a_cpu_unless_it_is_asked_for(folder: Path) -> None:
    engine = build(folder, preemption="auto")
    same(run(engine, 0), plain(folder, 0))
    assert engine.occupancy.num_preemptions
    assert not engine.occupancy.num_swaps
    assert not num_copied(engine)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"swap_space": 0}, "swap_space is 0"),
        ({"swap_space": 1e-9}, r"swap_space of 1e-09 GiB.* holds no block"),
        ({"swap_space": -1}, "swap_space must be a number from 0"),
        ({"swap_space": 1e9}, "swap_space must be a number from 0"),
        ({"swap_space": float("nan")}, "swap_space must be a number"),
        ({"preemption": "drop"}, "preemption must be one of auto, recompute, swap, not 'drop'"),
    ],
)
def test_hostile_bounds_are_refused_by_name(
    folder: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        build(folder, **options)


def test_swap_space_that_the_machine_lacks_is_refused_with_a_table(folder: Path) -> None:
    with pytest.raises(NotEnoughMemory, match="swap space"):
        build(folder, swap_space=65_536, memory="1GB", block_size=1024)


def test_the_library_gives_the_same_text_with_little_room() -> None:
    """Of the demo model, whose requests share a beginning and come n at a time."""
    params = SamplingParams(temperature=0.7, seed=3, max_tokens=40, n=3, ignore_eos=True)
    prompts = ["Once upon a time there was a fox", "Once upon a time there was", "A story"]
    texts = []
    for options in ({"num_blocks": 100}, {"num_blocks": 9, "preemption": "swap"}):
        with LLM("demo", **options, max_model_len=80) as llm:
            completions = llm.generate(prompts, params)
            texts.append([one.token_ids for one in completions])
            if "preemption" in options:
                assert llm._client._engine.occupancy.num_swaps
    assert texts[0] == texts[1]


# The copies themselves


def spec(num_kv_heads: int, head_dim: int, window: int | None, dtype: torch.dtype) -> KVSpec:
    return KVSpec(num_kv_heads=num_kv_heads, head_dim=head_dim, window=window, dtype=dtype)


def filled(layout: KVLayout, num_blocks: int) -> Any:
    kv = allocate(layout, num_blocks, torch.device("cpu"))
    for number, tensor in enumerate(tensors_of(kv)):
        generator = torch.Generator().manual_seed(number)
        values = torch.randint(-100, 100, tensor.shape, generator=generator)
        tensor.copy_(values.to(tensor.dtype))
    return kv


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
def test_blocks_are_copied_whole_in_the_order_of_a_plan(dtype: torch.dtype) -> None:
    layout = KVLayout(specs=(spec(2, 8, None, dtype), spec(1, 16, 5, dtype)), block_size=4)
    kv = filled(layout, 9)
    tensors = tensors_of(kv)
    before = [tensor.clone() for tensor in tensors]
    host = HostCache(kv, 5)
    out = ((1, 3), (2, 4), (7, 0), (3, 1))
    back = ((4, 9), (3, 2), (0, 8), (1, 1))
    host.copy(BlockCopies(out, back))
    sources = {target: {host_block: block for block, host_block in out}[h] for h, target in back}
    for tensor, old in zip(tensors, before, strict=True):
        for block in range(10):
            assert torch.equal(tensor[block], old[sources.get(block, block)]), block


def test_a_measurement_leaves_all_blocks_as_they_were() -> None:
    layout = KVLayout(specs=(spec(2, 8, None, torch.float32),), block_size=4)
    kv = filled(layout, 9)
    before = [tensor.clone() for tensor in tensors_of(kv)]
    assert HostCache(kv, 5).measure_seconds_per_block() > 0
    assert all(map(torch.equal, tensors_of(kv), before))


@pytest.mark.parametrize(("preemption", "seconds"), [("auto", 0.125), ("swap", 0.0)])
def test_the_measured_cost_of_a_copy_decides_what_is_swapped(
    preemption: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Any, ...]] = []
    monkeypatch.setattr(building, "Offload", lambda *arguments: given.append(arguments))
    layout = KVLayout(specs=(spec(2, 8, None, torch.float32),), block_size=4)
    host = HostCache(filled(layout, 9), 5)
    monkeypatch.setattr(HostCache, "measure_seconds_per_block", lambda _: 0.125)
    blocks: Any = object()
    building._offload(EngineOptions(model=Path(), preemption=preemption), blocks, host)
    assert given == [(blocks, 5, seconds)]
