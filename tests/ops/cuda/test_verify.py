"""`inferno verify` beside kernels that round activations to FP8: what passes, and what doesn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inferno import ops
from inferno.engine.execution import loading
from inferno.ops.cuda import fp8_products, products
from inferno.verify import case
from inferno.verify.checks.error_bounds import Bounded, Kernel, Rounds
from inferno.verify.checks.foundation import weight_problems
from inferno.verify.checks.products import values
from inferno.verify.options import VerifyOptions
from inferno.verify.outcome import Report
from inferno.verify.run import verify
from inferno.verify.runs import engine_run
from tests.fp8 import save_tiny_fp8
from tests.ops.cuda.interpreted_products import needs_interpreter
from tests.ops.cuda.test_fp8_products import random_weight
from tests.ops.cuda.test_whole_models import SIZES, Interpreted
from tests.tiny import save_tiny

pytestmark = pytest.mark.gpu


def test_only_rounded_rows_explain_a_product(device: torch.device) -> None:
    torch.manual_seed(3)
    weight_OI = random_weight(40, 320, device)
    x_TI = torch.randn(12, 320, device=device)
    x_TI[5, 128:256] = 0
    found_TO = products.linear(x_TI, weight_OI).cpu()
    for rounds, is_right in ((Rounds.TO_FP8, True), (Rounds.NOTHING, False)):
        kernel = Kernel(
            rounds=rounds, is_ours=True, on_cpu=True, dtype=torch.float32, out=torch.float32
        )
        due = kernel.multiply(Bounded.exactly(x_TI.cpu()), values(weight_OI), None)
        is_explained = (found_TO.double() - due.value).abs() <= due.radius
        assert is_explained.float().mean() == 1 if is_right else is_explained.float().mean() < 0.05


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens, for the interpreter takes its time, on its kernels."""
    monkeypatch.setitem(ops.BACKENDS, "cpu", Interpreted())
    monkeypatch.setattr(case, "_LEAST_TOKENS", 6)
    monkeypatch.setattr(case, "_NUM_NEW", 2)
    monkeypatch.setattr(engine_run, "draw_tokens", lambda *_: ([], []))


def verified(folder: Path) -> Report:
    options = VerifyOptions(model=folder, quantize="fp8-dynamic", dtype="float32", threads=1)
    return verify(options, lambda _: None)


@needs_interpreter
@pytest.mark.parametrize("family", ["qwen3", "mixtral"])
def test_right_products_pass(family: str, short: None, tmp_path: Path) -> None:
    """Of floats, and of a mixture in FP8, whose experts take activations as they are."""
    if family == "qwen3":
        save_tiny(tmp_path, family, **SIZES)
    else:
        save_tiny_fp8(tmp_path, family, **SIZES, num_local_experts=2, num_experts_per_tok=1)
    report = verified(tmp_path)
    assert report.passed, report.verdict
    assert sum(len(row.products) for row in report.rows) > 4


@needs_interpreter
@pytest.mark.parametrize("quantize", ["none", "fp8-dynamic"])
def test_weights_in_fp8_are_compared_as_they_are(
    quantize: str, short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 16 bits too: what is kept exactly was rounded to nothing before."""
    save_tiny_fp8(tmp_path, "qwen3", **SIZES)
    file, name = tmp_path / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    tensors = load_file(file)
    tensors[name].view(torch.uint8)[5] = 0  # an output of zeros, in a block whose scale is none
    save_file(tensors, file, metadata={"format": "pt"})
    options = VerifyOptions(model=tmp_path, dtype="float16", quantize=quantize, threads=1)
    with case.open_case(options, lambda _: None) as one:
        # Where there is a CPU it wants other types for quantized weights.
        monkeypatch.setattr(loading, "_quantization", lambda *_: one.quantize)
        given = one.engine, one.hf_config, one.config, torch.device("cpu"), torch.float16
        model = loading.load_model(*given, None)
        compared = one.weights, one.fused, one.quantize, lambda _: None
        assert weight_problems(model, *compared) == []
        wrong: Any = model.get_submodule("model.layers.0.mlp.down_proj")
        wrong.weight.scales[3] += 1
        [problem] = weight_problems(model, *compared)
    assert "down_proj.weight in memory is not what its file holds" in problem


@needs_interpreter
def test_a_scale_that_is_too_large_is_found(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fp8_products.quantize_rows

    def wrong(x_TI: Tensor) -> tuple[Tensor, Tensor]:
        codes_TI, scales_GT = right(x_TI)
        if x_TI.shape[1] == SIZES["intermediate_size"]:
            scales_GT[0] *= 1.05
        return codes_TI, scales_GT

    monkeypatch.setattr(fp8_products, "quantize_rows", wrong)
    save_tiny(tmp_path, "qwen3", **SIZES)
    report = verified(tmp_path)
    assert not report.passed
    assert "down_proj does not give what its own input makes due" in report.verdict
