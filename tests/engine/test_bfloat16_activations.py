"""Quantized weights that meet bfloat16: near to int8's logits, and refused where it can't be."""

from __future__ import annotations

import logging
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import LLM, SamplingParams, ops
from inferno.engine.build import build_engine
from inferno.errors import InvalidRequest
from inferno.options import EngineOptions
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import expected_logits, save_tiny_model

TEXT = [index * 37 % 90 for index in range(40)]
GREEDY = SamplingParams(temperature=0, max_tokens=60)
MISSING = ops.why_no_bfloat16_activations(torch.device("cpu"), torch.float32)
needs_matrix_registers = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def logits(folder: Path, **options: Any) -> Tensor:
    engine = build_engine(EngineOptions(model=folder, threads=1, num_blocks=8, **options))
    return engine.logits(TEXT)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def median_error(found: Tensor, expected: Tensor) -> float:
    return median(map(error, found, expected))


@needs_matrix_registers
def test_experts_in_mxfp4_are_nearer_than_with_int8_to_transformers(tmp_path: Path) -> None:
    expected = expected_logits(save_tiny_mxfp4(tmp_path), TEXT)
    by_int8, by_bfloat16 = logits(tmp_path), logits(tmp_path, activations="bfloat16")
    # By the median row: where two experts are nearly equal a token may get the other one.
    assert median_error(by_bfloat16, expected) < 0.5 * median_error(by_int8, expected) < 0.05


@needs_matrix_registers
def test_weights_in_int8_are_nearer_than_with_int8_to_transformers(tmp_path: Path) -> None:
    expected = expected_logits(save_tiny_model(tmp_path), TEXT)
    by_int8 = logits(tmp_path, quantize="int8")
    by_bfloat16 = logits(tmp_path, quantize="int8", activations="bfloat16")
    assert error(by_bfloat16, expected) < error(by_int8, expected) < 0.05


@needs_matrix_registers
def test_weights_in_int4_give_nearly_the_logits_of_int8(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    by_int8 = logits(tmp_path, quantize="int4")
    by_bfloat16 = logits(tmp_path, quantize="int4", activations="bfloat16")
    assert 0 < error(by_bfloat16, by_int8) < 0.05


@needs_matrix_registers
def test_floats_are_computed_as_ever(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    assert torch.equal(logits(tmp_path, activations="bfloat16"), logits(tmp_path))


@needs_matrix_registers
def test_an_llm_and_its_draft_model_take_it() -> None:
    with LLM("demo", quantize="int8", activations="bfloat16", threads=1) as llm:
        alone = llm.logits(TEXT, [39])
        [answer] = llm.generate("Once upon a time", GREEDY)
    assert answer.text
    with LLM(
        "demo",
        quantize="int8",
        activations="bfloat16",
        threads=1,
        speculative_model=Path("demo-draft"),
    ) as llm:
        assert torch.equal(llm.logits(TEXT, [39]), alone)
        [drafted] = llm.generate("Once upon a time", GREEDY)
    assert drafted.text == answer.text


@needs_matrix_registers
def test_the_log_tells_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_tiny_model(tmp_path)
    with caplog.at_level(logging.INFO, logger="inferno"):
        logits(tmp_path, activations="bfloat16")
    assert "cpu in float32, bfloat16 beside quantized weights, attention" in caplog.text


def test_kernels_without_matrix_registers_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_model(tmp_path)
    reason = "the kernels that run are avx2"
    monkeypatch.setattr(ops.BACKENDS["cpu"], "why_no_bfloat16_activations", lambda dtype: reason)
    with pytest.raises(InvalidRequest, match=f"matrix registers .*, but {reason}; leave") as caught:
        logits(tmp_path, activations="bfloat16")
    assert caught.value.param == "activations"


def test_plain_pytorch_refuses_it(tmp_path: Path, reference_kernels: None) -> None:
    save_tiny_model(tmp_path)
    with pytest.raises(InvalidRequest, match="but products are computed in plain PyTorch here"):
        logits(tmp_path, activations="bfloat16")


@needs_matrix_registers
def test_float16_refuses_it(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    with pytest.raises(InvalidRequest, match="and dtype float32 or bfloat16, but products are"):
        logits(tmp_path, dtype="float16", activations="bfloat16")


def test_it_is_a_choice_of_the_cpu_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="and device is cuda: leave one of them out"):
        EngineOptions(model=tmp_path, device="cuda", activations="bfloat16")
    with pytest.raises(InvalidRequest, match="activations"):
        EngineOptions(model=tmp_path, activations="float16")
