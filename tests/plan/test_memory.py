"""A plan's weights and cache are, to the byte, what an engine has allocated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import LLM, ops
from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.options import EngineOptions
from inferno.plan import memory
from inferno.plan.choices import choose_num_host_blocks
from inferno.plan.memory import make_plan
from inferno.plan.report import memory_table
from inferno.plan.shape import read_shape
from inferno.quantization import INT8
from inferno.weights import staging
from tests.gguf.convert import write_gguf
from tests.models.test_against_transformers import GPT_OSS
from tests.tiny import save_tiny


@pytest.mark.parametrize(
    ("quantize", "kv_dtype"), [("none", "auto"), ("int8", "auto"), ("int4", "int8")]
)
def test_a_plan_is_what_an_engine_allocates(quantize: str, kv_dtype: str) -> None:
    options = EngineOptions(
        model=MODEL_FOLDERS["demo"],
        quantize=quantize,
        kv_dtype=kv_dtype,
        max_num_seqs=2,
        max_model_len=128,
    )
    plan = make_plan(read_shape(options.model), options, 2**34)
    with LLM(
        "demo", quantize=quantize, kv_dtype=kv_dtype, max_num_seqs=2, max_model_len=128
    ) as llm:
        actual = llm.footprint
    assert (plan.dtype, plan.kv_dtype) == (actual.dtype, actual.kv_dtype)
    assert (plan.weights_bytes, plan.cache_bytes) == (actual.weights_bytes, actual.kv_cache_bytes)


def test_a_bound_leaves_room_for_log_probabilities_beside_penalties() -> None:
    shape = read_shape(MODEL_FOLDERS["demo"])
    shape = replace(shape, decoder=replace(shape.decoder, vocab_size=152_000))
    options = EngineOptions(model=MODEL_FOLDERS["demo"], memory="340MB", max_num_seqs=64)
    plan = make_plan(shape, options, 2**34)
    copied = 64 * 152_000 * 4
    assert plan.total_bytes < 340e6 - 2 * copied
    assert plan.total_bytes > 340e6 - 3 * copied


@pytest.mark.parametrize("is_bound", [True, False])
def test_swap_space_is_counted_beside_the_cache(is_bound: bool) -> None:
    bound = {"memory": "3GiB"} if is_bound else {}
    model = MODEL_FOLDERS["demo"]
    plain = EngineOptions(model=model, block_size=64, **bound)  # type: ignore[arg-type]
    swapping = replace(plain, preemption="swap", swap_space=2.0)
    without, beside = (make_plan(read_shape(model), each, 2**33) for each in (plain, swapping))
    assert not without.swap_bytes
    assert 0 <= 2**31 - beside.swap_bytes < beside.cache.block_bytes
    assert beside.total_bytes - beside.cache_bytes >= without.total_bytes - without.cache_bytes + (
        beside.swap_bytes
    )
    lines = list(memory_table(beside))
    assert any(line.startswith("swap space") and "2." in line for line in lines)
    assert not any(line.startswith("swap space") for line in memory_table(without))
    too_much = replace(swapping, swap_space=9.0)
    assert not make_plan(read_shape(model), too_much, 2**33).fits


def test_host_blocks_are_bounded_however_much_space_there_is() -> None:
    def count(preemption: str, space: float, size: int, **others: Any) -> int:
        return choose_num_host_blocks(preemption, space, size, **{"is_cuda": True, **others})

    assert count("auto", 1.0, 2**20) == count("swap", 1.0, 2**20) == 1024
    assert count("recompute", 1.0, 2**20) == 0
    assert count("auto", 1.0, 2**20, is_cuda=False) == 0
    assert count("swap", 1.0, 2**20, is_cuda=False) == 1024
    assert count("auto", 4.0, 2**20, free_bytes=2**30) == 512
    # Of 7 GiB half is 3.5, and what is more than 2 is pinned as 4.
    assert count("auto", 4.0, 2**20, free_bytes=7 * 2**30) == 2048
    assert count("auto", 1.5, 2**20, free_bytes=7 * 2**30) == 1536
    assert count("auto", 4.0, 2**20, free_bytes=7 * 2**30, is_cuda=False) == 0
    assert count("swap", 4.0, 2**20, free_bytes=7 * 2**30, is_cuda=False) == 3584
    assert count("auto", 4.0, 2**20, free_bytes=0) == 0
    assert count("swap", 65_536, 16) == 2**18
    assert count("swap", 0.5, 2**30) == 0


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


@pytest.mark.skipif(not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here")
@pytest.mark.parametrize("are_experts_apart", [False, True])
def test_experts_of_several_types_are_counted_as_the_floats_that_they_become(
    are_experts_apart: bool, tmp_path: Path
) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_local_experts": 16,
    }
    model = save_tiny(tmp_path / "hf", "mixtral", **sizes)
    path = write_gguf(
        tmp_path / "model.gguf",
        model,
        blocks={"ffn_gate_exps": "Q4_K", "ffn_up_exps": "Q5_K", "ffn_down_exps": "Q6_K"},
        are_experts_apart=are_experts_apart,
    )
    options = EngineOptions(model=path, num_blocks=8)
    plan = make_plan(read_shape(path), options, 2**34)
    assert build_engine(options).footprint.weights_bytes == plan.weights_bytes
    assert plan.unpacked.keys() == {"Q4_K", "Q5_K"}
    assert "q6_k" in plan.weights


@pytest.mark.skipif(not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here")
@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_experts_that_lie_transposed_are_counted_as_what_they_become(
    quantize: str, tmp_path: Path
) -> None:
    sizes = {"hidden_size": 80, "intermediate_size": 112, "head_dim": 32}
    save_tiny(tmp_path, "gpt_oss", **{**GPT_OSS, **sizes})
    options = EngineOptions(model=tmp_path, quantize=quantize, num_blocks=8)
    plan = make_plan(read_shape(tmp_path), options, 2**34)
    actual = build_engine(options).footprint
    router_rows = 3 * (16 - GPT_OSS["num_local_experts"])  # that fill its panels
    padding = 4 * sizes["hidden_size"] * router_rows
    assert plan.weights_bytes + padding == actual.weights_bytes


def test_the_chunk_that_is_counted_is_the_one_that_is_read() -> None:
    assert memory.CHUNK_BYTES == staging.CHUNK_BYTES
