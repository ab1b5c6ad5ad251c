"""A folder of packed weights: what is packed once is loaded as it is, and checked as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from inferno import ops
from inferno.convert import write_folder, write_gguf
from inferno.demo import MODEL_FOLDERS
from inferno.errors import CheckpointError, InvalidRequest, ModelError, WeightsMismatch
from inferno.hub.kinds import refuse_config_in
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.weights.open import open_checkpoint
from tests.convert.test_to_gguf import WIDE, convert, logits, save
from tests.models.test_against_transformers import GPT_OSS, QWEN_MOE


def pack(model: Path, target: Path, type_name: str | None) -> dict[str, int]:
    return dict(write_folder(model, target, type_name, threads=2).types)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**WIDE, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", WIDE),
    "qwen3_moe": ("qwen3_moe", {**QWEN_MOE, **WIDE, "norm_topk_prob": True}),
}


@pytest.mark.parametrize("type_name", ["q8_0", "q4_0", "q4_k"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_the_logits_of_the_gguf_file(kind: str, type_name: str, tmp_path: Path) -> None:
    model_type, config = KINDS[kind]
    save(tmp_path / "hf", model_type, **config)
    convert(tmp_path / "hf", tmp_path / "model.gguf", type_name)
    pack(tmp_path / "hf", tmp_path / "packed", type_name)
    due = logits(tmp_path / "model.gguf")
    assert torch.equal(logits(tmp_path / "packed"), due)
    # The blocks of either make the other, without being quantized again.
    pack(tmp_path / "model.gguf", tmp_path / "again", None)
    assert torch.equal(logits(tmp_path / "again"), due)
    convert(tmp_path / "packed", tmp_path / "back.gguf", type_name)
    assert (tmp_path / "back.gguf").read_bytes() == (tmp_path / "model.gguf").read_bytes()


def test_floats_that_stay_what_they_are_are_the_same_tensors(tmp_path: Path) -> None:
    assert pack(MODEL_FOLDERS["demo"], tmp_path / "packed", None).keys() == {"BF16", "F32"}
    with (
        open_checkpoint(tmp_path / "packed") as found,
        open_checkpoint(MODEL_FOLDERS["demo"]) as due,
    ):
        assert found.stored.keys() == due.stored.keys()
        for name, stored in due.stored.items():
            values = [torch.empty(stored.shape) for _ in range(2)]
            found.read_into(name, values[0])
            due.read_into(name, values[1])
            assert torch.equal(*values), name


def test_a_plan_counts_what_it_keeps(tmp_path: Path) -> None:
    save(tmp_path / "hf", "llama", **WIDE)
    pack(tmp_path / "hf", tmp_path / "packed", "q4_k")
    convert(tmp_path / "hf", tmp_path / "model.gguf", "q4_k")
    plans = [
        make_plan(read_shape(path), EngineOptions(model=path), available=None).weights
        for path in (tmp_path / "packed", tmp_path / "model.gguf")
    ]
    assert plans[0].keys() >= {"q4_k", "q6_k"}
    if ops.can_quantize(torch.device("cpu")):
        assert plans[0]["q4_k"] == plans[1]["q4_k"]


def test_its_config_says_that_it_is_packed(tmp_path: Path) -> None:
    pack(MODEL_FOLDERS["demo"], tmp_path / "packed", "q8_0")
    config = json.loads((tmp_path / "packed" / "config.json").read_text())
    assert config.pop("quantization_config") == {"quant_method": "inferno"}
    assert config == json.loads((MODEL_FOLDERS["demo"] / "config.json").read_text())
    refuse_config_in("demo", tmp_path / "packed")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        found = (tmp_path / "packed" / name).read_bytes()
        assert found == (MODEL_FOLDERS["demo"] / name).read_bytes()


DAMAGES: dict[str, tuple[type[ModelError], str]] = {
    "a type": (CheckpointError, "expected uint8"),
    "an axis": (CheckpointError, "expected uint8"),
    "a block": (CheckpointError, "expected uint8"),
    "twice": (CheckpointError, "twice"),
    "a row": (WeightsMismatch, "misshapen"),
    "a name": (WeightsMismatch, "unused"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_that_is_damaged_is_refused(damage: str, tmp_path: Path) -> None:
    save(tmp_path / "hf", "llama", **WIDE)
    pack(tmp_path / "hf", tmp_path / "packed", "q8_0")
    file = tmp_path / "packed" / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"
    blocks = tensors.pop(f"{name}.q8_0")
    match damage:
        case "a type":
            tensors[f"{name}.q8_0"] = blocks.view(torch.int8)
        case "an axis":
            tensors[f"{name}.q8_0"] = blocks.flatten(1)
        case "a block":
            tensors[f"{name}.q4_0"] = blocks
        case "twice":
            tensors |= {f"{name}.q8_0": blocks, name: torch.zeros(512, 256)}
        case "a row":
            tensors[f"{name}.q8_0"] = blocks[1:].contiguous()
        case "a name":
            tensors[f"{name}.q9_0"] = blocks
    save_file(tensors, file, metadata={"format": "pt"})
    error, said = DAMAGES[damage]
    with pytest.raises(error, match=said):
        logits(tmp_path / "packed")


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    save(tmp_path / "hf", "llama", **WIDE)
    pack(tmp_path / "hf", tmp_path / "packed", "q8_0")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequest, match="there already"):
        pack(tmp_path / "hf", tmp_path / "packed", "q8_0")
    with pytest.raises(InvalidRequest, match="leaves"):
        pack(tmp_path / "packed", tmp_path / "other", "q4_0")
    with pytest.raises(InvalidRequest, match="make it first"):
        pack(tmp_path / "hf", tmp_path / "no" / "other", "q4_0")
    assert sorted(tmp_path.rglob("*")) == before


def test_gpt_oss_stays_as_it_comes(tmp_path: Path) -> None:
    save(tmp_path / "hf", "gpt_oss", **{**GPT_OSS, "swiglu_limit": 7.0})
    with pytest.raises(InvalidRequest, match="packed already"):
        pack(tmp_path / "hf", tmp_path / "packed", "q8_0")


def test_a_gguf_file_of_other_blocks_stays_exact(tmp_path: Path) -> None:
    save(tmp_path / "hf", "llama", **WIDE)
    write_gguf(tmp_path / "hf", tmp_path / "model.gguf", None, name="tiny", threads=1)
    types = pack(tmp_path / "model.gguf", tmp_path / "packed", None)
    assert types.keys() == {"F32"}
    assert torch.equal(logits(tmp_path / "packed"), logits(tmp_path / "hf"))
