"""The published models with experts: their configs, names and sizes, and random weights in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from inferno.config.decoder import DecoderConfig
from inferno.config.families import read_model_config
from inferno.engine.build import build_engine
from inferno.engine.execution.device import choose_dtype
from inferno.layers.decoder import CausalLM
from inferno.models import find_model
from inferno.ops import ClampedSwiGLU
from inferno.options import EngineOptions
from inferno.quantization import MXFP4
from inferno.weights.allocate import num_bytes
from inferno.weights.pieces import find_pieces
from tests.data import data_path
from tests.tiny import edit_config, save_tiny


def real_config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(data_path("hf", name, "config.json").read_text())
    return config


def build_on_meta(hf_config: dict[str, Any]) -> tuple[CausalLM, DecoderConfig]:
    config = read_model_config(hf_config)
    with torch.device("meta"):
        return find_model(hf_config).build(config), config


def names_in_checkpoint(hf_config: dict[str, Any]) -> list[str]:
    model, config = build_on_meta(hf_config)
    fused = find_model(hf_config).fused_weights(config)
    return [
        f"{piece.name}{suffix}"
        for name, _ in model.named_parameters()
        for piece in find_pieces(name, fused)
        for suffix in ([part.suffix for part in piece.format.parts] if piece.format else [""])
    ]


def test_the_real_gpt_oss_has_exactly_the_names_and_the_size_of_its_index() -> None:
    index = json.loads(data_path("hf", "gpt-oss-20b", "model.safetensors.index.json").read_text())
    hf_config = real_config("gpt-oss-20b")
    assert sorted(names_in_checkpoint(hf_config)) == sorted(index["weight_map"])
    model, config = build_on_meta(hf_config)
    fused = find_model(hf_config).fused_weights(config)
    assert num_bytes(model, torch.bfloat16, fused=fused) == index["metadata"]["total_size"]


def test_the_real_gpt_oss_config_is_read() -> None:
    config = read_model_config(real_config("gpt-oss-20b"))
    assert config.windows == (128, None) * 12
    assert config.max_model_len == 131072
    assert config.mixture is not None
    assert (config.mixture.num_experts, config.mixture.num_chosen) == (32, 4)
    assert config.mixture.activation == ClampedSwiGLU(alpha=1.702, limit=7.0)
    assert config.mixture.format is MXFP4


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Qwen3-30B-A3B", {}),
        ("Qwen3-30B-A3B", {"decoder_sparse_step": 3, "mlp_only_layers": [5, 47]}),
        ("gpt-oss-20b", {"quantization_config": None}),
        (
            "gpt-oss-20b",
            {
                "quantization_config": None,
                "num_local_experts": 128,
                "num_hidden_layers": 36,
                "layer_types": None,
            },
        ),
    ],
    ids=str,
)
def test_real_models_have_as_many_parameters_as_in_transformers(
    name: str, changes: dict[str, Any]
) -> None:
    hf_config = {key: value for key, value in {**real_config(name), **changes}.items() if value}
    model, _ = build_on_meta(hf_config)
    family = hf_config["model_type"]
    read = AutoConfig.for_model(
        family, **{key: value for key, value in hf_config.items() if key != "model_type"}
    )
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(read)
    found, expected = (
        sum(parameter.numel() for parameter in each.parameters()) for each in (model, theirs)
    )
    assert found == expected


def test_the_real_qwen3_moe_names_every_expert() -> None:
    names = names_in_checkpoint(real_config("Qwen3-30B-A3B"))
    assert len(names) == len(set(names)) == 48 * (2 + 6 + 1 + 3 * 128) + 3
    for name in ("gate.weight", "experts.127.up_proj.weight", "experts.0.down_proj.weight"):
        assert f"model.layers.47.mlp.{name}" in names


def test_names_of_saved_mixtures_are_all_expected(tmp_path: Path) -> None:
    """What `transformers` saves loads, in shards too; see test_against_transformers for values."""
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "num_experts_per_tok": 2}
    for family in ("qwen3_moe", "mixtral", "gpt_oss"):
        folder = tmp_path / family
        save_tiny(folder, family, head_dim=16, shard_size="40KB", num_local_experts=4, **sizes)
        assert len(list(folder.glob("*.safetensors"))) > 1
        build_engine(EngineOptions(model=folder, num_blocks=4))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["gpt-oss-20b", "Qwen3-30B-A3B"])
def test_dummy_weights_in_real_shapes_run(tmp_path: Path, name: str, dtype: str) -> None:
    """Fewer layers, experts and tokens than the real ones: those take 14 GB and more."""
    (tmp_path / "config.json").write_text(json.dumps(real_config(name)))
    edit_config(
        tmp_path,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"] if "gpt" in name else None,
        vocab_size=500,
        **({"num_local_experts": 5} if "gpt" in name else {"num_experts": 9}),
    )
    options = EngineOptions(model=tmp_path, load_format="dummy", dtype=dtype, num_blocks=32)
    engine = build_engine(options)
    hf_config = json.loads((tmp_path / "config.json").read_text())
    model, config = build_on_meta(hf_config)
    fused = find_model(hf_config).fused_weights(config)
    expected = num_bytes(model, getattr(torch, dtype), fused=fused)
    # Kernels fill weights up to whole panels of 16 outputs.
    assert expected <= engine.footprint.weights_bytes <= 1.01 * expected
    logits = engine.logits(range(20))
    assert logits.isfinite().all()
    assert 0.01 < logits.std() < 100


def test_the_real_gpt_oss_is_computed_in_the_type_of_its_floats() -> None:
    """Its config names no dtype; on a GPU float32 would take 3.6 GB more."""
    hf_config = real_config("gpt-oss-20b")
    assert choose_dtype("auto", hf_config, torch.device("cuda")) is torch.bfloat16
    assert choose_dtype("auto", {}, torch.device("cuda")) is torch.float32
