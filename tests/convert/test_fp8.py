"""Checkpoints in FP8 become files of floats or of blocks, by the values that they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from inferno.convert import write_folder, write_gguf
from inferno.weights.open import open_checkpoint
from tests.convert.test_to_gguf import WIDE, logits, tensors
from tests.fp8 import save_tiny_fp8
from tests.models.test_against_transformers import QWEN_MOE
from tests.tiny import edit_config, save_tokenizer
from tests.weights.files import SINGLE

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "blocks": ("qwen3", "fp8", {}),
    "outputs, permuted heads": ("llama", "channel", {}),
    "experts": ("qwen3_moe", "fp8", {**QWEN_MOE, "norm_topk_prob": True}),
}


def save(folder: Path, name: str) -> Path:
    family, kind, config = KINDS[name]
    folder.mkdir()
    sizes = {**WIDE, **config, "vocab_size": save_tokenizer(folder) + 10}
    save_tiny_fp8(folder, family, kind, **sizes)
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_a_gguf_file_gives_the_logits_of_the_folder(name: str, tmp_path: Path) -> None:
    source = save(tmp_path / "hf", name)
    write_gguf(source, tmp_path / "m.gguf", "f32", name="tiny", threads=2)
    assert torch.equal(logits(tmp_path / "m.gguf"), logits(source))


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_gives_the_logits_of_the_gguf_file(name: str, tmp_path: Path) -> None:
    source = save(tmp_path / "hf", name)
    write_gguf(source, tmp_path / "m.gguf", "q8_0", name="tiny", threads=2)
    write_folder(source, tmp_path / "packed", "q8_0", threads=2)
    assert torch.equal(logits(tmp_path / "packed"), logits(tmp_path / "m.gguf"))


@pytest.mark.parametrize("section", ["quantization_config", "compression_config"])
def test_without_a_type_values_are_rounded_to_16_bits(section: str, tmp_path: Path) -> None:
    source = save(tmp_path / "hf", "outputs, permuted heads")
    config = json.loads((source / "config.json").read_text())
    found = config["quantization_config"]
    edit_config(source, **{"quantization_config": None, section: found})
    write_gguf(source, tmp_path / "m.gguf", None, name="tiny", threads=2)
    assert tensors(tmp_path / "m.gguf")["blk.0.ffn_up.weight"].tensor_type.name == "BF16"
    write_folder(source, tmp_path / "plain", None, threads=2)
    assert section not in json.loads((tmp_path / "plain" / "config.json").read_text())
    plain = load_file(tmp_path / "plain" / SINGLE)
    assert not any(one.endswith("_scale") for one in plain)
    name = "model.layers.1.mlp.up_proj.weight"
    with open_checkpoint(source) as checkpoint:
        values = torch.empty(checkpoint.stored[name].shape)
        checkpoint.read_into(name, values)
    assert torch.equal(plain[name], values.bfloat16())
