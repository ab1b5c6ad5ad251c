"""The shape that a plan reads of a config is the one that the strict reader of models reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from inferno.config.families import read_model_config
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.kv.kv_cache import KVLayout
from inferno.errors import CheckpointError, ModelNotFound
from inferno.options import EngineOptions
from inferno.plan.cache import CacheShape
from inferno.plan.memory import make_plan
from inferno.plan.shape import LayerCache, read_shape
from tests.tiny import edit_config, save_tiny

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "truncate": False,
    },
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("windows", [(None,) * 3, (8, None, 8), (8, 8, 16, None), (4,) * 2])
def test_blocks_are_those_of_the_engine(dtype: str, windows: tuple[int | None, ...]) -> None:
    config = {**SIZES, "architectures": ["LlamaForCausalLM"]}
    decoder = read_model_config(config, allow_unknown=True)
    specs = tuple(
        spec
        for window in windows
        for spec in decoder.kv_specs(getattr(torch, dtype))[:1]
        for spec in [type(spec)(num_kv_heads=2, head_dim=16, window=window, dtype=spec.dtype)]
    )
    layout = KVLayout(specs=specs, block_size=16)
    cache = CacheShape(tuple(LayerCache(2, 16, window) for window in windows), dtype, 16)
    assert cache.block_bytes == layout.block_bytes
    assert cache.windows == layout.group_windows
    blocks = BlockManager(64, 16, layout.group_windows)
    for num_tokens in (1, 15, 16, 17, 100, 500):
        assert cache.num_blocks(num_tokens, 32) == blocks.num_peak_blocks(num_tokens, 32)


def test_the_longest_request_is_the_last_that_fits(tmp_path: Path) -> None:
    save_tiny(tmp_path, "mistral", sliding_window=24)
    options = EngineOptions(model=tmp_path, num_blocks=3, max_num_batched_tokens=16)
    plan = make_plan(read_shape(tmp_path), options, None)
    blocks = BlockManager(3, 16, plan.cache.windows)
    fits = [n for n in range(1, 257) if blocks.num_peak_blocks(n, 16) <= 3]
    assert plan.longest == max(fits)


def test_files_that_are_not_loaded_are_not_counted(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    before = read_shape(tmp_path)
    (tmp_path / "consolidated.safetensors").write_bytes(
        (tmp_path / "model.safetensors").read_bytes()
    )
    assert read_shape(tmp_path).tensors == before.tensors


def test_a_tied_embedding_counts_under_either_name(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", tie_word_embeddings=True)
    before = read_shape(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    save_file({**tensors, "lm_head.weight": embedding.clone()}, tmp_path / "model.safetensors")
    assert read_shape(tmp_path).tensors == before.tensors
    del tensors["model.embed_tokens.weight"]
    save_file({**tensors, "lm_head.weight": embedding}, tmp_path / "model.safetensors")
    assert sorted(read_shape(tmp_path).tensors, key=str) == sorted(before.tensors, key=str)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    (tmp_path / "model.safetensors").unlink()
    edit_config(tmp_path, head_dim=None)
    with pytest.raises(ModelNotFound, match=r"has neither model\.safetensors nor"):
        read_shape(tmp_path)


@pytest.mark.parametrize("length", [1, 300, 5000])
def test_a_missing_shard_is_refused_whatever_its_name(length: int, tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    shard = "x" * length
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match=f"{shard[:200]}.*is missing"):
        read_shape(tmp_path)


@pytest.mark.parametrize("shards", [{"a": {}}, {"a": ["model-1.safetensors"]}, {"a": 1}])
def test_an_index_of_no_files_lists_no_weights(tmp_path: Path, shards: dict[str, Any]) -> None:
    save_tiny(tmp_path, "llama")
    (tmp_path / "model.safetensors").rename(tmp_path / "model-1.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(CheckpointError, match="holds no weights"):
        read_shape(tmp_path)
