"""A plan's weights and cache are, to the byte, what an engine has allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import LLM, ops
from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.options import EngineOptions
from inferno.plan import memory
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.quantization import INT8
from inferno.weights import staging
from tests.gguf.convert import write_gguf
from tests.tiny import save_tiny


@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_a_plan_is_what_an_engine_allocates(quantize: str) -> None:
    options = EngineOptions(
        model=MODEL_FOLDERS["demo"], quantize=quantize, max_num_seqs=2, max_model_len=128
    )
    plan = make_plan(read_shape(options.model), options, 2**34)
    with LLM("demo", quantize=quantize, max_num_seqs=2, max_model_len=128) as llm:
        actual = llm.footprint
    assert (plan.dtype, plan.kv_dtype) == (actual.dtype, actual.kv_dtype)
    assert (plan.weights_bytes, plan.cache_bytes) == (actual.weights_bytes, actual.kv_cache_bytes)


def test_a_plan_that_leaves_no_block_does_not_fit() -> None:
    options = EngineOptions(model=MODEL_FOLDERS["demo"])
    assert not make_plan(read_shape(options.model), options, 1000).fits


@pytest.mark.skipif(not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here")
def test_blocks_of_a_gguf_file_are_counted_as_they_stay(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 16}
    model = save_tiny(tmp_path / "hf", "qwen3", **sizes)
    blocks = {"attn_q": "Q4_K", "ffn_gate": "Q6_K", "ffn_down": "Q5_K", "token_embd": "Q8_0"}
    path = write_gguf(tmp_path / "model.gguf", model, blocks=blocks)
    options = EngineOptions(model=path, num_blocks=8)
    plan = make_plan(read_shape(path), options, 2**34)
    assert {"q4_k", "q5_k", "q6_k", "q8_0"} <= plan.weights.keys()
    actual = build_engine(options).footprint
    assert (plan.weights_bytes, plan.cache_bytes) == (actual.weights_bytes, actual.kv_cache_bytes)


def test_the_chunk_that_is_counted_is_the_one_that_is_read() -> None:
    assert memory.CHUNK_BYTES == staging.CHUNK_BYTES
