"""Models whose weights stay in GGUF's blocks: right ones pass, mistakes are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from inferno import ops
from inferno.engine.execution import loading
from inferno.ops import RowRanges
from inferno.ops.reference import moe
from inferno.quantization import INT8
from tests.gguf.convert import write_gguf
from tests.models.test_against_transformers import GPT_OSS, QWEN_MOE
from tests.mxfp4 import SIZES
from tests.tiny import save_tiny
from tests.verify.faults_quantized import coarse_inputs
from tests.verify.tiny_models import verified

pytestmark = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no compiled kernels run here"
)
MIXED = {
    "attn_q": "Q4_K",
    "attn_k": "Q5_K",
    "attn_v": "Q6_K",
    "attn_output": "Q4_K",
    "ffn_gate": "Q4_0",
    "ffn_up": "Q5_1",
    "ffn_down": "Q6_K",
    "token_embd": "Q6_K",
}


KEPT_OTHERWISE = {
    "attn_q": "Q3_K",
    "attn_k": "IQ4_NL",
    "attn_v": "Q2_K",
    "attn_output": "MXFP4",
    "ffn_gate": "IQ4_XS",
    "ffn_up": "Q2_K",
    "ffn_down": "IQ4_XS",
    "token_embd": "MXFP4",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
    return write_gguf(
        folder / "model.gguf", save_tiny(folder / "hf", "qwen3", **sizes), blocks=MIXED
    )


def test_right_ones_pass(path: Path) -> None:
    report = verified(path)
    assert report.passed, report.verdict


def test_right_ones_that_are_kept_in_other_formats_pass(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
    model = save_tiny(tmp_path / "hf", "llama", **sizes)
    report = verified(write_gguf(tmp_path / "model.gguf", model, blocks=KEPT_OTHERWISE))
    assert report.passed, report.verdict


@pytest.mark.parametrize("experts", ["MXFP4", "Q8_0"])
def test_gpt_oss_passes(experts: str, tmp_path: Path) -> None:
    config = {**GPT_OSS, **SIZES, "swiglu_limit": 7.0}
    model = save_tiny(tmp_path / "hf", "gpt_oss", **config)
    report = verified(write_gguf(tmp_path / "model.gguf", model, types={"_exps": experts}))
    assert report.passed, report.verdict


MOE: dict[str, Any] = {
    **QWEN_MOE,
    "norm_topk_prob": True,
    "hidden_size": 256,
    "moe_intermediate_size": 256,
}


@pytest.mark.parametrize("up", ["IQ4_XS", "Q2_K"])
@pytest.mark.parametrize("gate", ["Q4_K", "same"])
def test_experts_of_several_types_pass(gate: str, up: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "qwen3_moe", **MOE)
    blocks = {"ffn_gate_exps": up if gate == "same" else gate, "ffn_up_exps": up}
    report = verified(write_gguf(tmp_path / "model.gguf", model, blocks=blocks))
    assert report.passed, report.verdict


@pytest.fixture(scope="module")
def half_packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experts whose first product is of floats in float16, beside a second one in MXFP4."""
    folder = tmp_path_factory.mktemp("half packed")
    types = {"gate_exps": "Q8_0", "up_exps": "Q8_0", "down_exps": "MXFP4"}
    return write_gguf(
        folder / "model.gguf", save_tiny(folder / "hf", "qwen3_moe", **MOE), types=types
    )


def test_mxfp4_behind_a_product_of_floats_passes(half_packed: Path) -> None:
    report = verified(half_packed, dtype="float16")
    assert report.passed, report.verdict


def test_a_wrong_product_of_mxfp4_behind_one_of_floats_is_found(
    half_packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = moe.multiply

    def wrong(x: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
        product = right(x, weight, bias)
        return product if isinstance(weight, torch.Tensor) else 1.02 * product

    monkeypatch.setattr(moe, "multiply", wrong)
    report = verified(half_packed, dtype="float16")
    assert not report.passed
    assert "down_proj" in report.verdict


def test_inputs_that_are_rounded_too_much_are_found(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarse_inputs(monkeypatch)
    assert not verified(path).passed


@pytest.mark.parametrize("module", ["self_attn.qkv_proj", "mlp.down_proj"])
def test_a_weight_that_is_not_the_files_is_found(
    module: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = cast(Any, loading).load_weights

    def load_wrongly(model: Any, *given: Any, **how: Any) -> None:
        load(model, *given, **how)
        owner = model.get_submodule(f"model.layers.1.{module}")
        weight = vars(owner)["weight"]
        part: Any = weight.parts[-1] if isinstance(weight, RowRanges) else weight
        codes, _scales = part.serialize().parts
        codes[7] ^= 1

    monkeypatch.setattr(loading, "load_weights", load_wrongly)
    report = verified(path)
    assert not report.passed
    assert module.rpartition(".")[2][:4] in report.verdict or "layers.1" in report.verdict
