"""Whole models through CUDA's backend: logits beside `transformers`, and the same bits in a batch.

On the CPU the kernels are interpreted, so the models are tiny; heads have a size that kernels take.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import ops
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.ops import reference
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.fp8 import save_tiny_fp8
from tests.mxfp4 import SIZES as GPT_OSS
from tests.mxfp4 import save_tiny_mxfp4
from tests.ops.cuda.interpreted_products import in_order
from tests.tiny import expected_logits, save_tiny

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("only_listed_forms")]

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
MODELS: dict[str, Callable[[Path], Any]] = {
    "llama": lambda folder: save_tiny(folder, "llama", **SIZES),
    "qwen3": lambda folder: save_tiny(folder, "qwen3", **SIZES),
    "qwen3_moe": lambda folder: save_tiny(
        folder,
        "qwen3_moe",
        **SIZES,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        norm_topk_prob=True,
    ),
    "qwen3 in FP8": lambda folder: save_tiny_fp8(folder, "qwen3", **SIZES),
    "mixtral in FP8": lambda folder: save_tiny_fp8(
        folder, "mixtral", **SIZES, num_local_experts=3, num_experts_per_tok=2
    ),
    "gpt_oss": lambda folder: save_tiny_mxfp4(
        folder, sliding_window=5, head_dim=64, num_hidden_layers=2
    ),
}
# What is quantized to int8 when it is loaded, by what its config has besides.
INT8_SIZES = {
    "llama": SIZES,
    "qwen3": SIZES,
    "gpt_oss": {**GPT_OSS, "head_dim": 64, "num_hidden_layers": 1},
}
FP8_MODELS = ["qwen3", "qwen3 in FP8"]
FP8_ERRORS = {"fp8": 0.15, "fp8-dynamic": 0.2}  # at most, of the largest logit
TEXT = [5, 17, 80, 3, 44, 44, 9, 61]


# What needs a GPU's own memory and streams.
OF_THE_DEVICE = ("is_asynchronous", "new_upload", "new_download", "graph_capture")
CUDA = ops.BACKENDS["cuda"]  # itself, for who watches the table's would see each call twice


class Interpreted:
    """CUDA's backend on the CPU: its kernels, with memory that is not a GPU's."""

    __name__ = "interpreted"

    def __getattr__(self, name: str) -> Any:
        return getattr(reference if name in OF_THE_DEVICE else CUDA, name)


@pytest.fixture(params=MODELS)
def saved(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Path, Any]:
    """A model's folder and the model of `transformers`; engines of this test use the backend."""
    if device.type == "cpu":
        monkeypatch.setitem(ops.BACKENDS, "cpu", Interpreted())
    return tmp_path, MODELS[request.param](tmp_path)


def build(folder: Path, device: torch.device, quantize: str = "none", **others: Any) -> Engine:
    options = EngineOptions(
        model=folder,
        device=str(device),
        dtype="float16" if quantize == "none" else "float32",
        quantize=quantize,
        num_blocks=32,
        block_size=16,
        max_num_seqs=8,
        speculative="off",
        **others,
    )
    return build_engine(options)


def test_logits_are_those_of_transformers(saved: tuple[Path, Any], device: torch.device) -> None:
    folder, model = saved
    engine = build(folder, device)
    logits_TV = engine.logits(TEXT)
    engine.close()
    expected_TV = expected_logits(model, TEXT)
    error = (logits_TV - expected_TV).abs().max() / expected_TV.abs().max()
    assert error < 1e-2, error


@pytest.mark.parametrize("family", INT8_SIZES)
def test_floats_are_quantized_to_int8(
    family: str, tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type == "cpu":
        monkeypatch.setitem(ops.BACKENDS, "cpu", Interpreted())
    model = save_tiny(tmp_path, family, **INT8_SIZES[family])
    engine = build(tmp_path, device, "int8")
    logits_TV = engine.logits(TEXT)
    engine.close()
    expected_TV = expected_logits(model, TEXT)
    error = (logits_TV - expected_TV).abs().max() / expected_TV.abs().max()
    assert 1e-4 < error < 5e-2, error


@pytest.mark.parametrize("saved", FP8_MODELS, indirect=True)
@pytest.mark.parametrize("quantize", FP8_ERRORS)
def test_fp8_is_made_of_floats_and_of_activations(
    saved: tuple[Path, Any], quantize: str, device: torch.device
) -> None:
    folder, model = saved
    engine = build(folder, device, quantize)
    logits_TV = engine.logits(TEXT)
    engine.close()
    expected_TV = expected_logits(model, TEXT)
    error = (logits_TV - expected_TV).abs().max() / expected_TV.abs().max()
    assert 1e-4 < error < FP8_ERRORS[quantize], error


@pytest.mark.parametrize("saved", ["qwen3", "qwen3_moe", "qwen3 in FP8"], indirect=True)
def test_tokens_are_the_same_alone_and_together(
    saved: tuple[Path, Any], device: torch.device
) -> None:
    folder, _ = saved
    # Eight rows, for which products have one tile: the interpreter rounds by a tile's width.
    prompts = [TEXT[:3], TEXT[2:6], TEXT[5:6]]
    engine = build(folder, device)
    alone = [generate(engine, [prompt])[0] for prompt in prompts]
    together = generate(engine, prompts)
    engine.close()
    assert together == alone


class SeenWeights:
    """The weights that products meet."""

    def __init__(self) -> None:
        self.weights: list[Any] = []

    def wants(self, op: str) -> bool:
        return op in ("linear", "gated_linear")

    def see(self, op: str, arguments: dict[str, Any], result: Any) -> None:
        self.weights.append(arguments["weight_OI"])


def generate(engine: Engine, prompts: list[list[int]]) -> list[list[tuple[int, float]]]:
    """Each prompt's drawn tokens with their log-probabilities."""
    told: dict[str, list[tuple[int, float]]] = {}
    for number, prompt in enumerate(prompts):
        params = SamplingParams(
            temperature=0.8, seed=prompt[0], max_tokens=2, logprobs=0, ignore_eos=True
        )
        request = Request(request_id=str(number), prompt_token_ids=tuple(prompt), params=params)
        told[request.request_id] = []
        engine.add_request(request)
    while engine.has_work:
        for event in engine.step():
            assert event.error is None, event.error
            told[event.request_id] += [(each.token_id, each.logprob) for each in event.logprobs]
    return list(told.values())


@pytest.mark.parametrize("saved", ["qwen3", "qwen3_moe"], indirect=True)
def test_batch_invariant_tokens_are_the_same_beside_many_others(
    saved: tuple[Path, Any], device: torch.device
) -> None:
    """Steps of 36 rows, of 4, of 3 and of 20, and prompts in other chunks."""
    folder, _ = saved
    prompts = [TEXT[:3], TEXT[5:6], TEXT * 4]
    with in_order():
        engine = build(folder, device, batch_invariant=True, max_num_batched_tokens=128)
        seen = SeenWeights()
        with ops.observing(seen):
            together = generate(engine, prompts)
        assert seen.weights
        assert not any(isinstance(weight, torch.Tensor) for weight in seen.weights)
        alone = generate(engine, prompts[:1])
        engine.close()
        assert together[:1] == alone
        engine = build(folder, device, batch_invariant=True, max_num_batched_tokens=20)
        assert generate(engine, prompts) == together
        engine.close()
