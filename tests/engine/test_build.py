"""The engine's log line says what really computes, and in what."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import ops
from inferno.compiled_kernels import why_not
from inferno.engine.build import build_engine
from inferno.engine.process.serve import facts_of
from inferno.errors import InvalidRequest
from inferno.options import EngineOptions
from tests.tiny import save_tiny_model

COMPILED = f"compiled ({ops.isa(torch.device('cpu'))})"
FLASH = "flash, in plain PyTorch"
BY_LENGTH = "flash from 65536 scores a head on, all scores at once below, in plain PyTorch"
needs_kernels = pytest.mark.skipif(why_not() is not None, reason="no compiled kernels here")


@needs_kernels
@pytest.mark.parametrize(
    ("options", "attention", "kv_dtype"),
    [
        ({}, COMPILED, "float32"),
        ({"dtype": "bfloat16"}, COMPILED, "bfloat16"),
        ({"kv_dtype": "int8"}, COMPILED, "int8"),
        ({"kv_dtype": "float16"}, COMPILED, "float16"),
        ({"dtype": "float16"}, f"{BY_LENGTH}, as kernels take bfloat16 and float32", "float16"),
        ({"attention": "flash"}, FLASH, "float32"),
        (
            {"attention": "reference", "kv_dtype": "bfloat16"},
            "reference, in plain PyTorch",
            "bfloat16",
        ),
    ],
    ids=str,
)
def test_the_log_line_says_what_runs(
    options: dict[str, Any],
    attention: str,
    kv_dtype: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    save_tiny_model(tmp_path)
    asked = EngineOptions(model=tmp_path, threads=1, num_blocks=4, **options)
    with caplog.at_level(logging.INFO, logger="inferno"):
        engine = build_engine(asked)
    dtype = options.get("dtype", "float32")
    assert f"cpu in {dtype}, attention {attention}, keys and values in {kv_dtype}, 4 blocks" in (
        caplog.text
    )
    assert engine.footprint.kv_dtype == kv_dtype
    facts = facts_of(engine, asked, lambda: None)
    assert (facts.attention, facts.kv_dtype) == (attention, kv_dtype)


def test_keys_in_fp8_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InvalidRequest, match=r"^kv_dtype=fp8 needs kernels that only CUDA"):
        build_engine(EngineOptions(model=tmp_path, kv_dtype="fp8", num_blocks=4))


@needs_kernels
def test_kernels_take_what_they_are_said_to_take() -> None:
    cpu = torch.device("cpu")
    assert ops.isa(cpu, torch.bfloat16) == ops.isa(cpu) != "reference"
    assert ops.isa(cpu, torch.float16) == "reference"


@needs_kernels
def test_the_cpu_is_batch_invariant_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_tiny_model(tmp_path)
    asked = EngineOptions(model=tmp_path, threads=1, num_blocks=4, batch_invariant=True)
    with caplog.at_level(logging.INFO, logger="inferno"):
        build_engine(asked).close()
    assert f"attention {COMPILED}" in caplog.text


def test_plain_pytorch_is_not_batch_invariant(tmp_path: Path, reference_kernels: None) -> None:
    save_tiny_model(tmp_path)
    asked = EngineOptions(model=tmp_path, threads=1, num_blocks=4, batch_invariant=True)
    with pytest.raises(InvalidRequest, match="on cpu here: it would be computed in plain PyTorch"):
        build_engine(asked)


def test_attention_by_name_is_not_batch_invariant(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="goes with attention auto, not with flash"):
        EngineOptions(model=tmp_path, batch_invariant=True, attention="flash")
