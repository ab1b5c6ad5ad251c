"""Metadata of GGUF files: what is honoured, and what is refused by the file's name."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from inferno.engine.build import build_engine
from inferno.errors import ConfigError, UnknownArchitecture, WeightsMismatch
from inferno.hub.facts import Tensor
from inferno.model_files import model_files
from inferno.options import EngineOptions
from inferno.plan.shape import make_shape, read_shape
from tests.fuzz.gguf_parts import take_apart
from tests.gguf.convert import rewrite, write_gguf
from tests.gguf.files import ARRAY, STRING, text
from tests.models.test_against_transformers import QWEN_MOE, YARN
from tests.models.test_config import LLAMA
from tests.tiny import save_tiny
from tests.weights.test_gguf import IDS, logits


@pytest.mark.parametrize("kind", ["clip", "bert", None])
def test_architectures_that_are_not_read_are_named(kind: str | None, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", kind or "llama")
    if kind is None:
        writer.add_type("adapter")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnknownArchitecture, match=kind or "adapter"):
        build_engine(EngineOptions(model=tmp_path / "x.gguf", device="cpu"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("llama.rope.dimension_count", 4, "dimension_count is 4, and heads have a size of 12"),
        ("llama.attention.value_length", 8, "value_length is 8"),
        ("llama.attention.head_count", 0, "head_count must be an integer of at least 1"),
        ("llama.expert_count", 8, "lacks llama.expert_used_count"),
        ("llama.expert_count", "eight", "llama.expert_count must be a number, not eight"),
        ("llama.expert_used_count", 2, "llama.expert_used_count is 2, expected 0"),
        ("llama.rope.scaling.type", "longrope", "longrope.*expected none, linear or yarn"),
        ("llama.rope.scaling.yarn_log_multiplier", 2, "yarn_log_multiplier"),
        ("llama.rope.scaling.factor", 1e30, r"factor must be .* at most 65536, not 1\.0.*e\+30"),
        ("llama.rope.scaling.factor", math.inf, "factor must be .* at most 65536, not inf"),
        ("llama.rope.scaling.factor", -2.0, "factor must be a finite number above 0"),
        ("llama.attention.key_length", 3, "heads have a size of 3"),
        ("llama.block_count", "five", "block_count must be a number, not five"),
        ("llama.context_length", None, "lacks llama.context_length"),
    ],
)
def test_metadata_that_changes_the_maths_is_refused(
    name: str, value: Any, words: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {name: value})
    with pytest.raises(ConfigError, match=words) as problem:
        build_engine(EngineOptions(model=path, device="cpu"))
    assert str(path) in str(problem.value)


def test_no_experts_are_a_number_of_them(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {"llama.expert_count": 0, "llama.expert_used_count": 0})
    assert torch.equal(logits(path, IDS), logits(tmp_path / "hf", IDS))


def test_no_shared_experts_are_a_size_of_them(tmp_path: Path) -> None:
    # So converters write Qwen3-Coder.
    model = save_tiny(tmp_path / "hf", "qwen3_moe", **{**QWEN_MOE, "norm_topk_prob": True})
    path = write_gguf(tmp_path / "m.gguf", model)
    size = "qwen3moe.expert_shared_feed_forward_length"
    rewrite(path, {size: 0, "qwen3moe.expert_shared_count": 0})
    assert torch.equal(logits(path, IDS), logits(tmp_path / "hf", IDS))
    rewrite(path, {size: 64})
    with pytest.raises(ConfigError, match=f"{size} is 64, expected 0"):
        build_engine(EngineOptions(model=path, device="cpu"))


def test_a_list_in_the_place_of_a_number_is_counted(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    parts = take_apart(path.read_bytes())
    for one in parts.entries:
        if one.key == b"llama.block_count":
            one.type, one.value = ARRAY, struct.pack("<IQ", STRING, 3) + text(b"x" * 1000) * 3
    path.write_bytes(parts.content())
    with pytest.raises(ConfigError, match="must be a number, not 3 values"):
        build_engine(EngineOptions(model=path, device="cpu"))


def test_a_scaling_factor_without_a_type_is_linear(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "factor": 4.0}
    model = save_tiny(tmp_path / "hf", "llama", rope_parameters=linear)
    path = write_gguf(tmp_path / "m.gguf", model)
    rewrite(path, {"llama.rope.scaling.type": None})
    assert torch.equal(logits(path, IDS), logits(tmp_path / "hf", IDS))


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        ({"type": "yarn", "original_context_length": 64}, {"rope_type": "yarn", "factor": 1.0}),
        ({"type": "linear", "factor": None}, {"rope_type": "linear", "factor": 1.0}),
        ({"type": "linear", "factor": 0.0}, {"rope_type": "linear", "factor": 1.0}),
        ({"type": "none", "scale": 4.0}, None),
        ({"type": "yarn", "scale": 4.0}, {"rope_type": "yarn", "factor": 4.0}),
    ],
)
def test_scaling_that_is_said_in_part_means_what_it_does_in_llama_cpp(
    changed: dict[str, Any], due: dict[str, Any] | None, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    older = {"llama.rope.scale_linear": changed.pop("scale", None)}
    rewrite(path, {f"llama.rope.scaling.{key}": value for key, value in changed.items()} | older)
    config = model_files(path).json("config.json", error=ConfigError)
    assert (
        "rope_scaling" not in config
        if due is None
        else (due.items() <= config["rope_scaling"].items())
    )


@pytest.mark.parametrize(("factor", "part"), [(4.0, 0.8782488562869419), (1.0, 1.25)])
def test_a_part_of_yarns_temperature_is_honoured(
    factor: float, part: float, tmp_path: Path
) -> None:
    rope = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 64}
    temperature = np.float64(part) * (1 + 0.1 * np.log(np.float64(factor)))
    whole = {**rope, "attention_factor": float(temperature)}
    model = save_tiny(tmp_path / "hf", "qwen3", rope_parameters=rope)
    save_tiny(tmp_path / "due", "qwen3", rope_parameters=whole)
    path = write_gguf(tmp_path / "m.gguf", model)
    rewrite(path, {"qwen3.rope.scaling.attn_factor": part})
    found, due = logits(path, IDS), logits(tmp_path / "due", IDS)
    assert (found - due).abs().max() <= 1e-5 * due.abs().max()
    assert (found - logits(tmp_path / "hf", IDS)).abs().max() > 1e-3 * due.abs().max()


def test_what_llama_cpp_does_not_read_of_yarn_changes_nothing(tmp_path: Path) -> None:
    """It reads rope.scaling.attn_factor for all models, and the other for Grok's and Laguna's."""
    model = save_tiny(tmp_path / "hf", "qwen3", rope_parameters=YARN)
    path = write_gguf(tmp_path / "m.gguf", model)
    due = logits(path, IDS)
    rewrite(path, {"qwen3.rope.scaling.yarn_attn_factor": 0.8782488562869419})
    assert torch.equal(logits(path, IDS), due)


def test_a_part_of_a_temperature_without_yarn_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {"llama.rope.scaling.attn_factor": 0.5})
    with pytest.raises(ConfigError, match=r"attn_factor is 0\.5, expected 1"):
        logits(path, IDS)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_without_a_number_of_key_heads_there_are_as_many_as_of_queries(
    kind: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", kind, num_key_value_heads=4))
    rewrite(path, {f"{kind}.attention.head_count_kv": None})
    assert torch.equal(logits(path, IDS), logits(tmp_path / "hf", IDS))


def test_unreadable_types_are_named_by_the_plan_and_when_loading(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        save_tiny(tmp_path / "hf", "llama", hidden_size=256, head_dim=16),
        types={"ffn_up": "TQ2_0"},
    )
    words = r"\.gguf: has 3 tensors in TQ2_0, .*up_proj.*take another file .*Q4_K_M.*IQ4_XS"
    for read in (read_shape, lambda path: build_engine(EngineOptions(model=path, device="cpu"))):
        with pytest.raises(WeightsMismatch, match=words) as problem:
            read(path)
        assert str(path) in str(problem.value)
        assert "config.json" not in str(problem.value)


@pytest.mark.parametrize("type_name", ["IQ3_XXS", "IQ1_S", "Q8_1", "NVFP4", "I8"])
def test_a_plan_takes_no_model_in_a_type_that_is_not_read(type_name: str) -> None:
    config = {**LLAMA, "torch_dtype": "bfloat16"}
    names = ["token_embd.weight", "blk.0.attn_q.weight"]
    tensors = [Tensor(name, type_name, (100, 64), "m.gguf") for name in names]
    with pytest.raises(WeightsMismatch, match=f"OWNER/NAME: has 2 tensors in {type_name}"):
        make_shape(config, tensors, place="OWNER/NAME", tokenizer_bytes=0, is_gguf=True)


def test_metadata_that_makes_no_config_is_told_with_the_files_name(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {"llama.attention.layer_norm_rms_epsilon": float("nan")})
    for read in (read_shape, lambda path: build_engine(EngineOptions(model=path, device="cpu"))):
        with pytest.raises(ConfigError) as problem:
            read(path)
        assert str(problem.value).startswith(f"{path}: its metadata: rms_norm_eps must be a ")


def test_tensors_of_another_model_are_told_without_config_json(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {"llama.feed_forward_length": 7})
    with pytest.raises(WeightsMismatch, match="its metadata needs") as problem:
        build_engine(EngineOptions(model=path, device="cpu"))
    assert "config.json" not in str(problem.value)


def test_unknown_metadata_is_taken_where_the_user_allows_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {"llama.rope.scaling.yarn_log_multiplier": 2, "llama.novelty": [1, 2]})
    options = EngineOptions(model=path, device="cpu", dtype="float32", threads=1, num_blocks=32)
    for read in (
        lambda options: read_shape(path, allow_unknown=options.allow_unknown_config),
        build_engine,
    ):
        with pytest.raises(ConfigError, match=r"llama\.novelty, .*--allow-unknown-config"):
            read(options)
        assert read(replace(options, allow_unknown_config=True))
    engine = build_engine(replace(options, allow_unknown_config=True))
    assert torch.equal(engine.logits(IDS), logits(tmp_path / "hf", IDS))


def test_the_layout_that_older_converters_name_is_that_of_all_files(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {"llama.tensor_data_layout": "Meta AI original pth"})
    assert torch.equal(logits(path, IDS), logits(tmp_path / "hf", IDS))
    rewrite(path, {"llama.tensor_data_layout": "reference"})
    with pytest.raises(ConfigError, match="tensor_data_layout"):
        logits(path, IDS)
