"""Engines on a GPU that is emulated: all that a step reads is on the GPU, and graphs copy nothing.

`INFERNO_EMULATED_GPU=1 pytest tests/ops/cuda` has this folder's other tests believe in it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.process.serve import facts_of
from inferno.ops.cuda import paged_attention
from inferno.ops.cuda.elementwise import silu_mul
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.requests import Request, SamplingParams, TokenEvent
from tests.engine.fake_device import WaitedFor
from tests.ops.cuda.emulated_gpu import CUDA, Emulation, emulated_gpu, on_cuda
from tests.ops.cuda.interpreted_products import needs_interpreter
from tests.ops.cuda.test_whole_models import MODELS, SIZES
from tests.tiny import expected_logits, save_tiny

pytestmark = [pytest.mark.gpu, needs_interpreter, pytest.mark.usefixtures("only_listed_forms")]

FEW = {"max_num_batched_tokens": 16, "max_num_seqs": 2}  # a step of experts takes seconds
ASKED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 3, "logprobs": 1},
    {"top_p": 0.9, "top_k": 5, "seed": 1},
    {"temperature": 0.0, "frequency_penalty": 0.5, "logit_bias": {5: 2.0}, "min_tokens": 3},
    {"prompt_logprobs": 1, "logprobs": 2, "seed": 2},
    {"logprobs": 1, "logprob_token_ids": [3, 4], "seed": 4},
]
TEXT = [5, 17, 80, 3, 44, 44, 9, 61]


def answers(engine: Engine, asked: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in events(engine, asked):
        found.setdefault(event.request_id, []).extend(event.token_ids)
    return found


def events(engine: Engine, asked: list[dict[str, Any]]) -> Iterator[TokenEvent]:
    for number, params in enumerate(asked):
        engine.add_request(
            Request(
                request_id=str(number),
                prompt_token_ids=tuple(range(3, 8 + number)),
                params=SamplingParams(max_tokens=4, ignore_eos=True, **params),
            )
        )
    while engine.has_work:
        for event in engine.step():
            assert event.error is None, event.error
            yield event


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "changed", "num_asked"),
    [
        ("qwen3", {}, 6),
        (
            "qwen3",
            {"quantize": "int4", "kv_dtype": "int8", "num_blocks": 6, "preemption": "swap"},
            6,
        ),
        ("qwen3_moe", {}, 2),
        ("gpt_oss", {"speculative": "early", **FEW}, 1),
        ("mixtral in FP8", {}, 2),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of rows without numbers
def test_an_engine_has_all_that_it_reads_on_its_gpu(
    model: str, changed: dict[str, Any], num_asked: int, tmp_path: Path
) -> None:
    MODELS[model](tmp_path)
    with emulated_gpu() as counts:
        options: dict[str, Any] = {
            "dtype": "float16",
            "num_blocks": 32,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "max_model_len": 64,
            "swap_space": 0.01,
            "speculative": "off",
        }
        engine = build_engine(
            EngineOptions(model=tmp_path, device="cuda", **{**options, **changed})
        )
        found = answers(engine, ASKED[:num_asked])
        engine.logits([5, 6, 7])
        engine.close()
    assert [len(tokens) for tokens in found.values()] == [4] * num_asked
    assert counts.num_captures > 0 or "speculative" in changed


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_step_waits_for_what_it_copies(tmp_path: Path) -> None:
    """Its one wait is for an event, where the tokens of the step before it are read."""
    MODELS["qwen3"](tmp_path)
    with emulated_gpu() as gpu:
        engine = build(tmp_path, max_num_seqs=4)
        waits = []
        gpu.hidden_waits.clear()
        for event in events(engine, ASKED[:4]):
            waits += [(event.request_id, *gpu.hidden_waits)] if gpu.hidden_waits else []
            gpu.hidden_waits.clear()
        assert waits == []
        answers(engine, [{"prompt_logprobs": 1}])
        assert gpu.hidden_waits, "which reads logits on the host"
        engine.close()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_cache_that_nobody_sized_has_room_for_all_that_may_run(tmp_path: Path) -> None:
    MODELS["qwen3"](tmp_path)
    with emulated_gpu():
        engine = build(tmp_path, num_blocks=None, graphs=False, gpu_memory_utilization=0.7)
        found = engine.footprint.kv_cache_bytes
        assert len(answers(engine, ASKED[:1])["0"]) == 4
        engine.close()
    # Two requests of 64 tokens and the scratch block, for which a gibibyte suffices by far.
    shape = read_shape(tmp_path)
    options = EngineOptions(model=tmp_path, device="cuda", dtype="float16", num_blocks=8)
    assert found == make_plan(shape, options, 1 << 34, gpu_total=1 << 34).cache_bytes


# Caches in FP8


def build(folder: Path, **changed: Any) -> Engine:
    options: dict[str, Any] = {
        "dtype": "float16",
        "num_blocks": 32,
        "max_num_seqs": 2,
        "max_num_batched_tokens": 16,
        "max_model_len": 64,
        "swap_space": 0.01,
        "speculative": "off",
    }
    return build_engine(EngineOptions(model=folder, device="cuda", **{**options, **changed}))


def test_a_cache_in_fp8_errs_as_its_codes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside plain PyTorch, over the same codes and over keys and values that nobody rounded."""
    exact_TV = expected_logits(MODELS["qwen3"](tmp_path), TEXT)
    with emulated_gpu():
        engine = build(tmp_path, kv_dtype="fp8", graphs=False)
        found_TV = engine.logits(TEXT).cpu()
        monkeypatch.setattr(paged_attention, "_takes", lambda *_: False)
        same_codes_TV = engine.logits(TEXT).cpu()
        engine.close()
    largest = exact_TV.abs().max()
    assert (found_TV - same_codes_TV).abs().max() < 2e-3 * largest
    assert 2e-3 * largest < (found_TV - exact_TV).abs().max() < 0.1 * largest


def test_a_plan_has_the_bytes_of_a_cache_in_fp8(tmp_path: Path) -> None:
    save_tiny(tmp_path, "qwen3", **SIZES)
    options = EngineOptions(
        model=tmp_path, device="cuda", dtype="float16", kv_dtype="fp8", num_blocks=32
    )
    with emulated_gpu():
        engine = build(tmp_path, kv_dtype="fp8", graphs=False)
        found, facts = engine.footprint, facts_of(engine, options, lambda: None)
        engine.close()
    plan = make_plan(read_shape(tmp_path), options, 1 << 34, gpu_total=1 << 34)
    assert plan.cache_bytes == found.kv_cache_bytes
    # 33 blocks of 16 tokens, with two heads of 64 codes and a scale, of keys and of values.
    assert found.kv_cache_bytes == 33 * 16 * 2 * 2 * (64 + 4)
    assert facts.kv_dtype == plan.kv_dtype == "float8_e4m3fn"
    assert facts.attention.startswith("flash, from")


def log_probabilities(engine: Engine, asked: list[dict[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for event in events(engine, asked):
        found.setdefault(event.request_id, []).extend(event.logprobs)
    return found


@pytest.mark.slow
def test_scales_and_codes_in_fp8_come_back_from_the_host(tmp_path: Path) -> None:
    """Bits are those of any batch, so whoever was swapped out says what it says alone."""
    MODELS["qwen3"](tmp_path)
    with emulated_gpu() as counts:
        shared: dict[str, Any] = {
            "kv_dtype": "fp8",
            "block_size": 2,
            "batch_invariant": True,
            "prefix_cache": False,
        }
        asked = [{"temperature": 0.0, "logprobs": 1}] * 2
        plain = build(tmp_path, **shared)
        expected = log_probabilities(plain, asked)
        plain.close()
        swapping = build(tmp_path, num_blocks=7, preemption="swap", **shared)
        found = log_probabilities(swapping, asked)
        num_swaps = swapping.occupancy.num_swaps
        swapping.close()
    assert found == expected
    assert num_swaps > 0
    assert counts.num_captures > 0


# The emulation itself: what it catches


@pytest.mark.parametrize(
    ("mix", "words"),
    [
        (lambda x, y: x + y, "two devices"),
        (lambda x, y: torch.cat((x, y)), "two devices"),
        (lambda x, y: torch.mm(x, y.T), "two devices"),
        (lambda x, y: torch.mm(y, x.T), "two devices"),
        (lambda x, y: x.numpy(), "can't convert"),
        (lambda x, y: silu_mul(y), "cannot be accessed from Triton"),
    ],
)
def test_who_mixes_devices_is_told(mix: Callable[[Tensor, Tensor], object], words: str) -> None:
    with emulated_gpu():
        x, y = torch.ones(2, 4, device=CUDA), torch.ones(2, 4)
        with pytest.raises((RuntimeError, TypeError, ValueError), match=words):
            mix(x, y)


def test_tensors_are_where_they_were_asked_for() -> None:
    with emulated_gpu():
        x, y = torch.ones(2, 4, device=CUDA), torch.ones(2, 4)
        with CUDA:
            made = [
                torch.zeros(2),
                x[0],
                x.new_empty(3),
                *torch.unbind(x),
                x.topk(2).values,
                y.to(CUDA),
            ]
            left = [torch.zeros(2, device="cpu"), x.cpu(), x.to("cpu"), y + 1]
        assert all(map(on_cuda, made))
        assert not any(map(on_cuda, left))
        assert [one.device.type for one in (made[0], left[0])] == ["cuda", "cpu"]
        assert x.cpu().data_ptr() != x.data_ptr()


def test_what_is_copied_while_a_graph_is_captured_is_told() -> None:
    with emulated_gpu() as counts, Emulation(counts):
        x = torch.ones(2, device=CUDA)
        counts.is_capturing = True
        try:
            x + 1
            with pytest.raises(WaitedFor):
                x.cpu()
            with pytest.raises(WaitedFor):
                torch.tensor([1, 2], device=CUDA)
        finally:
            counts.is_capturing = False
