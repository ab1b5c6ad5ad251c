"""An engine on a GPU keeps to its share of the memory, and who has the rest is told in figures."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import ops
from inferno.config.families import read_model_config
from inferno.demo import MODEL_FOLDERS
from inferno.engine import build
from inferno.engine.build import build_engine, read_hf_config
from inferno.engine.execution.gpu import gpu_memory
from inferno.engine.kv import kv_cache
from inferno.engine.kv.kv_cache import KVLayout
from inferno.engine.planning import (
    blocks_on_gpu,
    log_actual_on_gpu,
    log_draft_on_gpu,
    naming_gpu_memory,
    plan_on_gpu,
)
from inferno.errors import EngineError, NotEnoughMemory
from inferno.options import EngineOptions
from inferno.plan.memory import DraftPlan, Plan
from inferno.quantization import INT8, RowRange
from inferno.weights import allocate as allocation
from tests.engine.execution.gpus import GIB, FakeGpus, fake_gpus

DEMO = MODEL_FOLDERS["demo"]
HF_CONFIG = read_hf_config(DEMO)
CONFIG = read_model_config(HF_CONFIG)
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeGpus:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return fake_gpus(monkeypatch)


def options(**given: Any) -> EngineOptions:
    return EngineOptions(model=DEMO, **{"device": "cuda", "max_num_seqs": 4096, **given})


def planned(asked: EngineOptions) -> Plan:
    return plan_on_gpu(asked, HF_CONFIG, CONFIG, DEVICE)


def test_the_engine_may_take_nine_tenths_of_the_whole(gpus: FakeGpus) -> None:
    gpus.total, gpus.free = 10 * GIB, 10 * GIB - gpu_memory(DEVICE).own
    plan = planned(options())
    assert plan.room == int(9 * GIB)
    assert plan.is_bound
    assert plan.total_bytes <= plan.room


def test_a_gpu_that_others_fill_is_refused_with_figures(gpus: FakeGpus) -> None:
    gpus.free = 20_000_000
    with pytest.raises(NotEnoughMemory) as refused:
        planned(options())
    message = str(refused.value)
    first = message.splitlines()[0]
    assert "doesn't fit in cuda:0's 85.9 GB: 20 MB are free, other processes hold 85.4 GB" in first
    assert "the engine may take 77.3 GB (--gpu-memory-utilization 0.9)" in first
    for part in ("weights, bfloat16", "workspace", "CUDA, PyTorch", "free on the GPU"):
        assert part in message
    assert "what would fit:" in message


def test_a_share_that_was_asked_for_is_not_cut_down(gpus: FakeGpus) -> None:
    gpus.free = 20 * GIB
    with pytest.raises(NotEnoughMemory) as refused:
        planned(options(gpu_memory_utilization=0.8))
    words = str(refused.value)
    assert (
        "gpu_memory_utilization 0.8 asks for more than cuda:0's 85.9 GB: 21.5 GB are free" in words
    )
    assert "other processes hold 63.9 GB" in words
    assert "lower it to 0.25, or end those processes" in words
    assert planned(options(gpu_memory_utilization=0.25)).is_bound


def test_a_smaller_cache_for_others_sake_is_a_warning(
    gpus: FakeGpus, caplog: pytest.LogCaptureFixture
) -> None:
    gpus.free = 20 * GIB
    with caplog.at_level(logging.WARNING, logger="inferno"):
        plan = planned(options())
    assert plan.fits
    [record] = caplog.records
    assert "smaller than it could be" in record.getMessage()
    assert "other processes hold 63.9 GB" in record.getMessage()


def test_what_the_model_took_decides_the_blocks(gpus: FakeGpus) -> None:
    asked = options(gpu_memory_utilization=0.5)
    gpus.total, gpus.free = 4 * GIB, 3 * GIB
    plan = planned(asked)
    gpus.free, gpus.reserved = 3 * GIB - (64 << 20), 64 << 20
    left = 2 * GIB - gpu_memory(DEVICE).own
    for has_graphs, workspace in ((False, 100 << 20), (True, 100 << 20), (True, 400 << 20)):
        found = blocks_on_gpu(asked, plan, DEVICE, workspace, has_graphs=has_graphs)
        room = left - workspace * (2 if has_graphs else 1)
        assert found == room // plan.cache.block_bytes - 1
    assert blocks_on_gpu(replace(asked, num_blocks=7), plan, DEVICE, GIB, has_graphs=True) == 7


def test_what_is_free_bounds_the_blocks_too(gpus: FakeGpus) -> None:
    plan = planned(options())
    gpus.free, gpus.reserved = GIB, 60 * GIB
    found = blocks_on_gpu(options(), plan, DEVICE, GIB // 2, has_graphs=False)
    assert found == (GIB // 2) // plan.cache.block_bytes - 1


def test_no_room_for_a_cache_is_told_with_the_steps_memory(gpus: FakeGpus) -> None:
    plan = planned(options())
    gpus.free, gpus.reserved = GIB, 70 * GIB
    with pytest.raises(NotEnoughMemory) as refused:
        blocks_on_gpu(options(), plan, DEVICE, GIB, has_graphs=False)
    words = str(refused.value)
    assert "no KV cache fits beside the model: steps take 1.07 GB of cuda:0's 85.9 GB" in words
    assert "lower --max-num-batched-tokens" in words


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        torch.AcceleratorError("CUDA error: out of memory"),
        EngineError("a step of the engine failed: memory ran out (CUDA out of memory)"),
        MemoryError(),
    ],
    ids=repr,
)
def test_a_start_without_memory_names_the_figures(gpus: FakeGpus, problem: Exception) -> None:
    plan = planned(options())
    gpus.free, gpus.reserved = GIB, 30 * GIB
    with (
        pytest.raises(NotEnoughMemory) as refused,
        naming_gpu_memory(plan, DEVICE, options()),
    ):
        raise problem
    words = str(refused.value)
    assert "memory ran out on cuda:0's 85.9 GB: 1.07 GB are free" in words
    assert "other processes hold 52.1 GB" in words
    assert "the engine has 32.7 GB" in words
    assert "the weights were to take 7.87 MB" in words
    assert "end those processes" in words


def test_what_could_not_be_allocated_is_named_with_the_figures(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, layout = planned(options()), KVLayout(specs=CONFIG.kv_specs(torch.float16), block_size=16)

    def allocate_nothing(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(ops, "empty_cache", allocate_nothing)
    monkeypatch.setattr(ops, "allocate", allocate_nothing)
    model = torch.nn.Linear(64, 32)
    ranges = [RowRange(32, INT8)]
    for allocate, said in (
        (lambda: kv_cache.allocate(layout, 8, DEVICE), "(the KV cache of 8 blocks takes"),
        (
            lambda: allocation.allocate_packed(model, "weight", DEVICE, torch.float16, ranges),
            "(the weights need",
        ),
    ):
        with (
            pytest.raises(NotEnoughMemory) as refused,
            naming_gpu_memory(plan, DEVICE, options()),
        ):
            allocate()
        words = str(refused.value)
        assert said in words
        assert "memory ran out on cuda:0's 85.9 GB" in words
        assert "--gpu-memory-utilization" in words


def test_a_lack_of_host_memory_is_not_laid_to_the_gpu(
    gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, layout = planned(options()), KVLayout(specs=CONFIG.kv_specs(torch.float16), block_size=4)
    kv = kv_cache.allocate(layout, 8, torch.device("cpu"))

    def allocate_nothing(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch, "empty", allocate_nothing)
    with (
        pytest.raises(NotEnoughMemory, match=r"^swap_space: .* lower --swap-space$"),
        naming_gpu_memory(plan, DEVICE, options()),
    ):
        kv_cache.HostCache(kv, 4)


def test_a_refusal_of_a_start_stays_what_it_is(gpus: FakeGpus) -> None:
    plan = planned(options())
    with (
        pytest.raises(NotEnoughMemory, match=r"^no KV cache fits$"),
        naming_gpu_memory(plan, DEVICE, options()),
    ):
        raise NotEnoughMemory("no KV cache fits")


def test_other_errors_of_a_start_stay_what_they_are(gpus: FakeGpus) -> None:
    plan = planned(options())
    with pytest.raises(RuntimeError, match="shapes"), naming_gpu_memory(plan, DEVICE, options()):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_the_memory_is_logged_after_a_load_and_growth_is_a_warning(
    gpus: FakeGpus, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planned(options())
    with caplog.at_level(logging.INFO, logger="inferno"):
        gpus.reserved = plan.weights_bytes
        log_actual_on_gpu(plan, DEVICE, options())
        assert [record.levelno for record in caplog.records] == [logging.INFO]
        assert caplog.messages[-1].startswith(
            "the model: planned 508 MB, took 508 MB of cuda:0's 85.9 GB"
        )
        gpus.reserved = plan.weights_bytes + GIB
        log_actual_on_gpu(plan, DEVICE, options())
    assert caplog.records[-1].levelno == logging.WARNING
    assert "memory grew unexpectedly" in caplog.messages[-1]


def test_a_drafts_memory_is_logged_too(gpus: FakeGpus, caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(options())
    draft = DraftPlan(
        dtype="float16",
        kv_dtype="float16",
        weights={"float16": GIB},
        cache=plan.cache,
        num_blocks=GIB // plan.cache.block_bytes,
        buffers=0,
        workspace=0,
    )
    plan = replace(plan, draft=draft)
    before = gpu_memory(DEVICE).own
    with caplog.at_level(logging.INFO, logger="inferno"):
        for gpus.reserved, level in ((2 * GIB, logging.INFO), (5 * GIB, logging.WARNING)):
            log_draft_on_gpu(plan, DEVICE, options(), before)
            assert caplog.records[-1].levelno == level
    assert caplog.messages[0].startswith("the draft model: planned 2.15 GB, took 2.15 GB of")


def test_a_share_of_a_gpu_needs_no_gpu_to_be_checked() -> None:
    assert options().gpu_share == 0.9
    assert options(gpu_memory_utilization=0.5).gpu_share == 0.5


def test_the_fullest_steps_run_in_a_small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, with the CPU in its place."""
    asked = EngineOptions(model=DEMO, threads=1, max_num_seqs=3, max_model_len=64, block_size=4)
    made = []

    def connect(num_blocks: int) -> Any:
        engine = build_engine(replace(asked, num_blocks=num_blocks))
        made.append((num_blocks, engine))
        return engine

    def peak_of(_: torch.device, function: Any) -> int:
        function()
        return 123 + (63 // 4 + 3) * layout.block_bytes

    monkeypatch.setattr(build, "peak_of", peak_of)
    layout = KVLayout(specs=CONFIG.kv_specs(torch.float32), block_size=4)
    peak = build._try_fullest_steps(connect, asked, layout, 64, torch.device("cpu"))
    [(num_blocks, engine)] = made
    assert peak == 123
    assert num_blocks == 63 // 4 + 2
    assert engine.occupancy.batch_size == 3
    assert engine.occupancy.num_preemptions == 0
    assert not engine.has_work
