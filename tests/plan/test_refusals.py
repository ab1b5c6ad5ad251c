"""A plan and the engine refuse the same models, in the same words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.engine.build import build_engine
from inferno.errors import InfernoError
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import make_shape, read_shape
from tests.gguf.convert import rewrite, write_gguf
from tests.models.test_against_transformers import GPT_OSS, QWEN_MOE, YARN
from tests.tiny import edit_config, save_tiny

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 16},
    "qwen2": {},
    "qwen3": {"head_dim": 20},
    "qwen3_moe": QWEN_MOE,
    "mixtral": {"num_local_experts": 3},
    "gpt_oss": GPT_OSS,
}
# A model, and keys of its config.json that are changed; None removes one.
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"architectures": None}),
    ("llama", {"architectures": []}),
    ("llama", {"architectures": ["GemmaForCausalLM"]}),
    ("llama", {"is_encoder_decoder": True}),
    ("llama", {"hidden_size": None}),
    ("llama", {"hidden_size": "48"}),
    ("llama", {"hidden_size": 2**40}),
    ("llama", {"vocab_size": 0}),
    ("llama", {"num_hidden_layers": 100_000}),
    ("llama", {"num_hidden_layers": -1}),
    ("llama", {"num_attention_heads": 3, "num_key_value_heads": 2}),
    ("llama", {"head_dim": 7}),
    ("llama", {"max_position_embeddings": None}),
    ("llama", {"rms_norm_eps": 0}),
    ("llama", {"hidden_act": "gelu"}),
    ("llama", {"attention_bias": "yes"}),
    ("llama", {"tie_word_embeddings": 1}),
    ("llama", {"rope_interleaved": True}),
    ("llama", {"partial_rotary_factor": 0.5}),
    ("llama", {"layer_types": ["sliding_attention"] * 3}),
    ("llama", {"use_sliding_window": True}),
    ("llama", {"logit_softcap": 30.0}),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_type": "linear"}}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": -1.0}}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 1e30}}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 65537}}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": math.nan}}),
    ("llama", {"rope_parameters": {**YARN, "factor": math.inf}}),
    ("llama", {"rope_parameters": {**YARN, "attention_factor": 1e30}}),
    ("llama", {"rope_parameters": {"rope_type": "factors", "factors": [1.0]}}),
    ("llama", {"rope_parameters": {**YARN, "wobble": 1}}),
    ("llama", {"rope_parameters": "yarn"}),
    ("llama", {"quantization_config": {"quant_method": "awq"}}),
    ("llama", {"compression_config": {"format": "pack-quantized"}}),
    ("llama", {"quantization_config": {"quant_method": "inferno", "bits": 4}}),
    ("llama", {"dtype": "float8"}),
    ("mistral", {"sliding_window": 0}),
    ("mistral", {"sliding_window": "all"}),
    ("qwen2", {"use_mrope": True}),
    ("qwen2", {"layer_types": ["full_attention"]}),
    ("qwen3", {"use_sliding_window": True, "layer_types": ["chunked_attention"] * 3}),
    ("qwen3_moe", {"num_experts": None, "num_local_experts": None}),
    ("qwen3_moe", {"num_experts": 2**20}),
    ("qwen3_moe", {"num_experts_per_tok": 100}),
    ("qwen3_moe", {"num_experts": 5, "num_local_experts": 3}),
    ("qwen3_moe", {"mlp_only_layers": [0.5]}),
    ("mixtral", {"num_experts_per_tok": 0}),
    ("mixtral", {"attention_bias": True}),
    ("gpt_oss", {"rope_parameters": None}),
    ("gpt_oss", {"initial_context_length": 5}),
    ("gpt_oss", {"quantization_config": {"quant_method": "gptq"}}),
    ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}),
    ("gpt_oss", {"swiglu_limit": "large"}),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            save_tiny(made[kind], kind, **MODELS[kind])
        return made[kind]

    return folder


def copy(source: Path, target: Path) -> Path:
    """Return a folder of links, but for its config."""
    target.mkdir()
    for file in source.iterdir():
        if file.name == "config.json":
            (target / file.name).write_bytes(file.read_bytes())
        else:
            (target / file.name).symlink_to(file)
    return target


def engine_says(path: Path, **options: Any) -> str:
    with pytest.raises(InfernoError) as problem:
        build_engine(EngineOptions(model=path, device="cpu", threads=1, num_blocks=8, **options))
    return f"{type(problem.value).__name__}: {problem.value}"


def plan_says(path: Path, **options: Any) -> str:
    with pytest.raises(InfernoError) as problem:
        make_plan(read_shape(path), EngineOptions(model=path, **options), 2**34)
    return f"{type(problem.value).__name__}: {problem.value}"


@pytest.mark.parametrize(("kind", "changes"), REFUSED, ids=str)
def test_configs_that_the_engine_refuses(
    kind: str, changes: dict[str, Any], folders: Callable[[str], Path], tmp_path: Path
) -> None:
    path = copy(folders(kind), tmp_path / "model")
    edit_config(path, **changes)
    assert plan_says(path) == engine_says(path)


@pytest.mark.parametrize("kind", MODELS)
def test_models_that_the_engine_takes(kind: str, folders: Callable[[str], Path]) -> None:
    options = EngineOptions(model=folders(kind), device="cpu", threads=1, num_blocks=8)
    engine = build_engine(options)
    plan = make_plan(read_shape(folders(kind)), options, 2**34)
    assert plan.context == engine.max_model_len


def test_a_context_that_is_too_long(folders: Callable[[str], Path]) -> None:
    path = folders("llama")
    assert plan_says(path, max_model_len=257) == engine_says(path, max_model_len=257)


def test_unknown_keys_can_be_allowed(folders: Callable[[str], Path], tmp_path: Path) -> None:
    path = copy(folders("llama"), tmp_path / "model")
    edit_config(path, logit_softcap=30.0)
    refused = CliRunner().invoke(app, ["plan", str(path)])
    assert refused.exit_code == 1
    said = " ".join(refused.output.split())
    assert engine_says(path).partition(": ")[2] in said
    shape = read_shape(path, allow_unknown=True)
    assert make_plan(shape, EngineOptions(model=path), 2**34).fits


def without_weights(path: Path) -> None:
    (path / "model.safetensors").unlink()


def with_pickles(path: Path) -> None:
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def without_a_shard(path: Path) -> None:
    (path / "model.safetensors").rename(path / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("damage", [without_weights, with_pickles, without_a_shard])
def test_folders_without_weights(
    damage: Callable[[Path], None], folders: Callable[[str], Path], tmp_path: Path
) -> None:
    path = copy(folders("llama"), tmp_path / "model")
    damage(path)
    assert plan_says(path) == engine_says(path)


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size"])
def test_weights_of_another_size(
    key: str, number: int, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    path = copy(folders("llama"), tmp_path / "model")
    edit_config(path, **{key: number})
    told = plan_says(path)
    assert told.startswith("WeightsMismatch")
    assert f"there are {number} " in told
    assert engine_says(path).startswith("WeightsMismatch")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", None),
        ("llama.attention.head_count", 5),
        ("llama.attention.key_length", 7),
        ("llama.rope.scaling.type", "longrope"),
        ("llama.expert_count", 4),
        ("llama.attention.sliding_window", 16),
        ("general.architecture", "gemma3"),
    ],
)
def test_gguf_files_that_the_engine_refuses(key: str, value: Any, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", save_tiny(tmp_path / "hf", "llama"))
    rewrite(path, {key: value})
    assert plan_says(path) == engine_says(path)


def test_a_model_of_the_hub_is_refused_in_the_same_words(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    path = copy(folders("llama"), tmp_path / "model")
    edit_config(path, hidden_act="gelu")
    config = json.loads((path / "config.json").read_text())
    said = re.escape(engine_says(path).partition(": ")[2])
    with pytest.raises(InfernoError, match=said):
        make_shape(config, [], place="OWNER/NAME", tokenizer_bytes=0, is_gguf=False)
