"""Mixtral in GGUF: Llama's architecture with experts, in one tensor each or by older names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from typer.testing import CliRunner

from inferno import ops
from inferno.cli.app import app
from inferno.engine.build import build_engine
from inferno.errors import CheckpointError, ConfigError, UnknownArchitecture, WeightsMismatch
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.plan.speed import expected_speed
from inferno.quantization import INT8
from tests.cli.test_plan import FIGURES
from tests.fuzz.gguf_parts import take_apart
from tests.gguf.convert import rewrite, write_gguf
from tests.models.test_against_transformers import TOLERANCE
from tests.tiny import expected_logits, save_tiny
from tests.weights.test_gguf import IDS, logits

needs_kernels = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here"
)
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "head_dim": 32,
    "num_hidden_layers": 2,
    "num_local_experts": 3,
}
# Of the last, what goes down has more bits, as in files of "Q4_K_M".
TYPES: dict[str, dict[str, str]] = {
    "F16": {"attn": "F16", "exps": "F16", "token_embd": "F16", "output": "F16"},
    "Q8_0": {"attn": "Q8_0", "exps": "Q8_0", "token_embd": "Q8_0", "output": "Q8_0"},
    "Q4_K": {"attn_v": "Q6_K", "attn": "Q4_K", "down_exps": "Q6_K", "exps": "Q4_K"},
}


@pytest.fixture(params=[False, True], ids=["one tensor", "older names"])
def are_experts_apart(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("name", TYPES)
def test_logits_are_those_of_transformers(
    name: str, are_experts_apart: bool, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "hf", "mixtral", **SIZES)
    path = write_gguf(
        tmp_path / "m.gguf", model, blocks=TYPES[name], are_experts_apart=are_experts_apart
    )
    names = [tensor.name for tensor in gguf.GGUFReader(path).tensors]
    assert any(re.fullmatch(r"blk\.1\.ffn_up\.2\.weight", one) for one in names) == (
        are_experts_apart
    )
    found, due = logits(path, IDS), expected_logits(model, IDS)
    assert (found - due).abs().max() <= TOLERANCE * due.abs().max()


@needs_kernels
@pytest.mark.parametrize("name", TYPES)
def test_blocks_of_experts_stay_what_they_are(
    name: str, are_experts_apart: bool, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "hf", "mixtral", **SIZES)
    path = write_gguf(
        tmp_path / "m.gguf", model, blocks=TYPES[name], are_experts_apart=are_experts_apart
    )
    found, due = logits(path, IDS), expected_logits(model, IDS)
    assert (found - due).norm() <= 0.03 * due.norm()  # inputs are rounded to 8 bits
    # What is planned is what is kept, however the experts are named.
    options = EngineOptions(model=path, num_blocks=8)
    plan = make_plan(read_shape(path), options, 2**34)
    assert name == "F16" or name.lower() in plan.weights
    actual = build_engine(options).footprint
    assert plan.cache_bytes == actual.kv_cache_bytes
    padding = 2 * 13 * 256 * 4  # the router's rows are whole panels of 16
    assert plan.weights_bytes <= actual.weights_bytes <= plan.weights_bytes + padding
    other = write_gguf(tmp_path / "other.gguf", model, blocks=TYPES[name])
    speeds = [expected_speed(read_shape(one), plan, FIGURES) for one in (path, other)]
    one_speed, other_speed = speeds
    assert one_speed is not None
    assert other_speed is not None
    assert one_speed.decode == pytest.approx(other_speed.decode)
    assert one_speed.prefill == pytest.approx(other_speed.prefill)


def test_it_is_the_model_of_its_folder(are_experts_apart: bool, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "mixtral", num_local_experts=8)
    path = write_gguf(tmp_path / "m.gguf", model, are_experts_apart=are_experts_apart)
    assert torch.equal(logits(path, IDS), logits(tmp_path / "hf", IDS))
    shown = CliRunner().invoke(app, ["show", str(path), "--json"])
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    assert facts["architecture"] == "llama"
    assert facts["config"]["architectures"] == ["MixtralForCausalLM"]
    assert facts["config"]["num_local_experts"] == 8


def test_experts_that_are_missing_are_named(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "mixtral", num_local_experts=3)
    path = write_gguf(tmp_path / "m.gguf", model, are_experts_apart=True)
    parts = take_apart(path.read_bytes())
    [down] = [one for one in parts.tensors if one.name == b"blk.1.ffn_down.2.weight"]
    down.name = b"blk.1.ffn_down.3.weight"
    path.write_bytes(parts.content())
    with pytest.raises(WeightsMismatch, match=r"layers\.1\.block_sparse_moe\.experts\.2\.w2"):
        build_engine(EngineOptions(model=path, device="cpu"))


def test_an_expert_under_both_names_is_refused(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "mixtral", num_local_experts=3)
    path = write_gguf(tmp_path / "m.gguf", model)
    parts = take_apart(path.read_bytes())
    [norm] = [one for one in parts.tensors if one.name == b"blk.0.attn_norm.weight"]
    norm.name = b"blk.0.ffn_up.1.weight"
    path.write_bytes(parts.content())
    with pytest.raises(CheckpointError, match=r"experts\.1\.w3\.weight' twice"):
        build_engine(EngineOptions(model=path, device="cpu"))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("expert_used_count", None, "lacks llama.expert_used_count"),
        ("expert_used_count", 9, "num_experts_per_tok"),
        ("expert_weights_scale", 2.0, "expert_weights_scale"),
        ("expert_count", 2**30, "num_local_experts"),
    ],
)
def test_metadata_that_changes_the_maths_is_refused(
    key: str, value: Any, words: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "mixtral"))
    rewrite(path, {f"llama.{key}": value})
    with pytest.raises(ConfigError, match=words):
        build_engine(EngineOptions(model=path, device="cpu"))


def test_mixtral_is_no_name_of_an_architecture(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mixtral")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnknownArchitecture, match="'mixtral', which inferno doesn't read"):
        build_engine(EngineOptions(model=tmp_path / "m.gguf", device="cpu"))
