"""Weights in FP8: out of checkpoints of Qwen's kind and of compressed-tensors, against float64."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.errors import CheckpointError, WeightsMismatch
from inferno.ops import StoredRows
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.quantization import FP8
from inferno.weights.open import open_checkpoint
from tests.fp8 import decode, random_codes, random_scales, save_tiny_fp8
from tests.tiny import edit_config, expected_logits
from tests.verify.tiny_models import verified
from tests.weights.files import SINGLE

# Rows and inputs end amid blocks, and q, k and v end amid what is packed at once.
SIZES: dict[str, Any] = {"hidden_size": 192, "intermediate_size": 160, "head_dim": 40}
TEXT = [5, 17, 80, 3, 44, 44, 9, 61]


def logits(folder: Path, **options: Any) -> Tensor:
    engine = build_engine(EngineOptions(model=folder, threads=1, num_blocks=32, **options))
    try:
        return engine.logits(TEXT)
    finally:
        engine.close()


VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("qwen3", "fp8", {}),
    ("qwen2", "fp8", {"tie_word_embeddings": True}),
    ("llama", "channel", {}),
    ("mistral", "tensor", {}),
    (
        "qwen3_moe",
        "fp8",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 136},
    ),
    ("mixtral", "fp8", {"num_local_experts": 3, "num_experts_per_tok": 2}),
    ("mixtral", "channel", {"num_local_experts": 3, "num_experts_per_tok": 2}),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: " ".join(one[:2]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logits_are_those_of_the_values_in_transformers(
    variant: tuple[str, str, dict[str, Any]], dtype: torch.dtype, tmp_path: Path
) -> None:
    family, kind, sizes = variant
    if family in ("qwen2", "llama", "mistral", "mixtral"):
        sizes = {"hidden_size": 160, "head_dim": 40} | sizes
    model = save_tiny_fp8(tmp_path, family, kind, dtype, **{**SIZES, **sizes})
    expected = expected_logits(model, TEXT)
    error = (logits(tmp_path, dtype="float32") - expected).abs().max() / expected.abs().max()
    assert error < 2e-5, error


def test_in_16_bits_values_are_rounded_once(tmp_path: Path) -> None:
    model = save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    expected = expected_logits(model, TEXT)
    error = (logits(tmp_path, dtype="bfloat16") - expected).abs().max() / expected.abs().max()
    assert 1e-4 < error < 4e-2, error


def test_int8_may_be_made_of_it(tmp_path: Path) -> None:
    model = save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    expected = expected_logits(model, TEXT)
    error = (logits(tmp_path, quantize="int8") - expected).abs().max() / expected.abs().max()
    assert 1e-4 < error < 0.1, error


def test_int8_of_other_scales_is_not_taken_out_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    folder = tmp_path / "model"
    save_tiny_fp8(folder, "qwen3", **SIZES)
    first = logits(folder, quantize="int8")
    assert torch.equal(logits(folder, quantize="int8"), first)
    tensors = load_file(folder / SINGLE)
    tensors["model.layers.2.mlp.up_proj.weight_scale_inv"] *= 2
    save_file(tensors, folder / SINGLE, metadata={"format": "pt"})
    assert not torch.equal(logits(folder, quantize="int8"), first)


def test_a_plan_counts_what_stays_and_what_becomes_floats(tmp_path: Path) -> None:
    save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    tensors = load_file(tmp_path / SINGLE)
    shapes = [one.shape for one in tensors.values() if one.dtype == torch.float8_e4m3fn]
    num_values = sum(map(math.prod, shapes))
    shape, options = read_shape(tmp_path), EngineOptions(model=tmp_path, dtype="bfloat16")
    on_cpu = make_plan(shape, options, None)
    assert "fp8" not in on_cpu.weights
    assert on_cpu.unpacked["F8_E4M3"].file_bytes == num_values
    assert on_cpu.unpacked["F8_E4M3"].kept_bytes == 2 * num_values
    on_gpu = make_plan(shape, options, None, gpu_total=80 << 30)
    # Elements and scales of whole groups of 128 inputs.
    filled = [math.prod(leading) * -(-width // 128) * 132 for *leading, width in shapes]
    assert on_gpu.weights["fp8"] == sum(filled)
    assert not on_gpu.unpacked


def test_a_plan_says_of_what_stays_that_it_does(tmp_path: Path) -> None:
    """Quantized activations change no weight."""
    save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    shape = read_shape(tmp_path)
    kept, changed = (
        make_plan(
            shape,
            EngineOptions(model=tmp_path, dtype="bfloat16", device="cuda", quantize=quantize),
            None,
            gpu_total=80 << 30,
        )
        for quantize in ("fp8-dynamic", "int8")
    )
    assert not kept.unpacked
    assert changed.unpacked["F8_E4M3"].kept_as == "int8"


def test_loading_counts_the_bytes_of_elements_and_scales(tmp_path: Path) -> None:
    save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    reports: list[tuple[int, int]] = []
    options = EngineOptions(model=tmp_path, threads=1, num_blocks=32, dtype="float32")
    build_engine(options, lambda done, total: reports.append((done, total))).close()
    size = sum(tensor.nbytes for tensor in load_file(tmp_path / SINGLE).values())
    assert reports[-1] == (size, size)
    assert reports == sorted(reports)


@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_products_are_those_of_the_values_in_float64(family: str, tmp_path: Path) -> None:
    """As `inferno verify` computes them, from elements and scales by its own rules."""
    sizes = {**SIZES, "num_hidden_layers": 1}
    if family == "mixtral":
        sizes |= {"hidden_size": 160, "num_local_experts": 3, "num_experts_per_tok": 2}
    save_tiny_fp8(tmp_path, family, **sizes)
    report = verified(tmp_path)
    assert report.passed, report.verdict
    names = {measure.name for row in report.rows for measure in row.products}
    assert any("down_proj" in name for name in names)


@pytest.mark.parametrize("kind", ["block", "channel", "tensor"])
@pytest.mark.parametrize("shape", [(300, 200), (128, 384), (5, 7)])
def test_rows_are_read_as_values_and_as_elements(
    kind: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    codes, scales = random_codes(*shape, seed=1), random_scales(shape, kind, seed=2)
    end = "_scale_inv" if kind == "block" else "_scale"
    save_file({"a.weight": codes, f"a.weight{end}": scales}, tmp_path / SINGLE)
    expected = torch.from_numpy(decode(codes, scales))
    first, count = shape[0] // 3, shape[0] - shape[0] // 3
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.stored["a.weight"].format == FP8
        assert checkpoint.scales == {f"a.weight{end}"}
        assert checkpoint.scales is checkpoint.scales  # it is asked for each tensor
        values = torch.empty(count, shape[1])
        checkpoint.read_rows_into("a.weight", first, values)
        rows = StoredRows.empty(FP8, (count, shape[1]))
        checkpoint.read_packed_into("a.weight", first, rows)
    assert rows.shape == (count, shape[1])
    assert torch.equal(rows.parts[0], codes.view(torch.uint8)[first:])
    for found in (values, rows.unpack(torch.float32)):
        torch.testing.assert_close(found.double(), expected[first:], rtol=1e-7, atol=0)


def test_scales_may_lie_in_another_file(tmp_path: Path) -> None:
    model = save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    tensors = load_file(tmp_path / SINGLE)
    (tmp_path / SINGLE).unlink()
    places = {
        name: f"model-0000{1 + name.endswith('_inv')}-of-00002.safetensors" for name in tensors
    }
    for place in {*places.values()}:
        save_file({n: t for n, t in tensors.items() if places[n] == place}, tmp_path / place)
    index = {"metadata": {}, "weight_map": places}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    expected = expected_logits(model, TEXT)
    error = (logits(tmp_path, dtype="float32") - expected).abs().max() / expected.abs().max()
    assert error < 2e-5, error


@pytest.mark.parametrize(
    ("end", "scales"),
    [
        ("_scale_inv", torch.zeros(2, 2)),
        ("_scale_inv", torch.zeros(3, 2, 1)),
        ("_scale_inv", torch.zeros(3, 2, dtype=torch.float64)),
        ("_scale_inv", torch.zeros(3, 2).to(torch.float8_e4m3fn)),
        ("_scale", torch.zeros(300)),
        ("_scale", torch.zeros(300, 2)),
        ("_scale", torch.zeros(1, dtype=torch.uint8)),
    ],
)
def test_scales_that_do_not_fit_are_refused_by_name(
    end: str, scales: Tensor, tmp_path: Path
) -> None:
    codes = random_codes(300, 200, seed=1)
    save_file({"a.weight": codes, f"a.weight{end}": scales}, tmp_path / SINGLE)
    with pytest.raises(CheckpointError, match=f"a.weight{end}"):
        open_checkpoint(tmp_path)


def test_elements_without_scales_are_refused_by_name(tmp_path: Path) -> None:
    save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    tensors = load_file(tmp_path / SINGLE)
    lost = "model.layers.1.mlp.up_proj.weight"
    del tensors[f"{lost}_scale_inv"]
    save_file(tensors, tmp_path / SINGLE, metadata={"format": "pt"})
    with pytest.raises(WeightsMismatch, match=rf"{lost}.*expected float32.*found F8_E4M3"):
        logits(tmp_path)


def test_weights_that_only_seem_tied_are_refused(tmp_path: Path) -> None:
    save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    tensors = load_file(tmp_path / SINGLE)
    shape = tensors["lm_head.weight"].shape
    codes = random_codes(*shape, seed=5)
    for name in ("lm_head", "model.embed_tokens"):
        scales = random_scales(tuple(shape), "block", seed=len(name))
        tensors |= {f"{name}.weight": codes.clone(), f"{name}.weight_scale_inv": scales}
    save_file(tensors, tmp_path / SINGLE, metadata={"format": "pt"})
    edit_config(tmp_path, tie_word_embeddings=True)
    with pytest.raises(WeightsMismatch, match="two that differ"):
        logits(tmp_path)
    tensors["lm_head.weight_scale_inv"] = tensors["model.embed_tokens.weight_scale_inv"].clone()
    save_file(tensors, tmp_path / SINGLE, metadata={"format": "pt"})
    assert logits(tmp_path).isfinite().all()
