"""A folder of packed weights: what is packed once is loaded as it is, and checked as any other."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file

from inferno import ops
from inferno.convert import write_folder, write_gguf
from inferno.demo import MODEL_FOLDERS
from inferno.errors import CheckpointError, InvalidRequest, ModelError, WeightsMismatch
from inferno.hub.kinds import refuse_config_in
from inferno.model_files import model_files
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.quantization import INT8
from inferno.text.chat import read_templates
from inferno.weights.open import open_checkpoint
from tests.convert.test_to_gguf import IDS, WIDE, convert, logits, save, tensors
from tests.gguf.convert import write_gguf as write_of_library
from tests.models.test_against_transformers import GPT_OSS, LLAMA3, QWEN_MOE, TOLERANCE, YARN
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import expected_logits, save_tiny, save_tokenizer


def pack(model: Path, target: Path, type_name: str | None) -> dict[str, int]:
    return dict(write_folder(model, target, type_name, threads=2).types)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**WIDE, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", WIDE),
    "qwen3_moe": ("qwen3_moe", {**QWEN_MOE, **WIDE, "norm_topk_prob": True}),
    "mixtral": ("mixtral", {**WIDE, "num_local_experts": 3}),
    "gpt_oss": ("gpt_oss", {**GPT_OSS, **WIDE, "swiglu_limit": 7.0}),
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
    if ops.has_kernels(torch.device("cpu"), INT8):
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


def test_it_has_the_chat_template_for_tools_too(tmp_path: Path) -> None:
    source = tmp_path / "demo"
    shutil.copytree(MODEL_FOLDERS["demo"], source)
    (source / "chat_template.jinja").write_text("plain")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    pack(source, tmp_path / "packed", None)
    found = read_templates(model_files(tmp_path / "packed"))
    assert found == read_templates(model_files(source))
    assert found == {"default": "plain", "tool_use": "with tools"}


def test_all_its_files_are_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def noted(handle: int) -> None:
        assert not (tmp_path / "packed").exists() or os.path.isdir(f"/proc/self/fd/{handle}")
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    pack(MODEL_FOLDERS["demo"], tmp_path / "packed", None)
    assert {path.stat().st_ino for path in (tmp_path / "packed").iterdir()} <= synced


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


@pytest.mark.parametrize("type_name", [None, "bf16", "q8_0"])
def test_packed_experts_stay_what_they_are(type_name: str | None, tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    size = save_tokenizer(tmp_path / "hf")
    model = save_tiny_mxfp4(tmp_path / "hf", **{**GPT_OSS, "swiglu_limit": 7.0, "vocab_size": size})
    types = pack(tmp_path / "hf", tmp_path / "packed", type_name)
    assert types.keys() - {"F32"} == {"MXFP4", *([type_name.upper()] if type_name else [])}
    found = load_file(tmp_path / "packed" / "model.safetensors")
    for layer, block in enumerate(model.model.layers):
        experts = block.mlp.experts
        gate_up = experts.gate_up_proj.detach().transpose(1, 2)
        biases = experts.gate_up_proj_bias.detach()
        parts = {
            "gate": (gate_up[:, ::2], biases[:, ::2]),
            "up": (gate_up[:, 1::2], biases[:, 1::2]),
            "down": (
                experts.down_proj.detach().transpose(1, 2),
                experts.down_proj_bias.detach(),
            ),
        }
        for product, (values, bias) in parts.items():
            for expert, due in enumerate(values):
                name = f"model.layers.{layer}.mlp.experts.{expert}.{product}_proj"
                blocks = found[f"{name}.weight.mxfp4"].flatten(1).numpy()
                read = dequantize(blocks, gguf.GGMLQuantizationType.MXFP4)
                assert np.array_equal(read, due.numpy()), name
                assert torch.equal(found[f"{name}.bias"], bias[expert]), name
    if type_name is None:
        assert torch.equal(logits(tmp_path / "packed"), logits(tmp_path / "hf"))
    convert(tmp_path / "hf", tmp_path / "model.gguf", type_name or "f32")
    assert torch.equal(logits(tmp_path / "packed"), logits(tmp_path / "model.gguf"))
    pack(tmp_path / "model.gguf", tmp_path / "again", None)
    assert torch.equal(logits(tmp_path / "again"), logits(tmp_path / "packed"))
    convert(tmp_path / "packed", tmp_path / "back.gguf", type_name or "f32")
    back = tensors(tmp_path / "back.gguf")
    for name, tensor in tensors(tmp_path / "model.gguf").items():
        assert np.array_equal(back[name].data, tensor.data), name


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("mixtral", {**WIDE, "num_local_experts": 3, "sliding_window": 16}),
    "mistral": ("mistral", {**WIDE, "sliding_window": 16}),
    "qwen3_moe": (
        "qwen3_moe",
        {**QWEN_MOE, **WIDE, "moe_intermediate_size": 64, "norm_topk_prob": False},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_no_gguf_file_can_say_is_packed_too(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model_type, config = OTHERS[name]
    save(tmp_path / "hf", model_type, **config)
    pack(tmp_path / "hf", tmp_path / "packed", "q8_0")
    found, due = (load_file(tmp_path / one / "model.safetensors") for one in ("packed", "hf"))
    values = {}
    for key, tensor in due.items():
        packed = found.pop(f"{key}.q8_0", None)
        if packed is None:  # vectors and routers
            assert torch.equal(found.pop(key), tensor), key
            assert tensor.ndim == 1 or key.endswith(".gate.weight"), key
            values[key] = tensor
            continue
        kind = gguf.GGMLQuantizationType.Q8_0
        blocks = packed.flatten(1).numpy()
        assert np.array_equal(blocks, quantize(tensor.numpy(), kind)), key
        values[key] = torch.from_numpy(dequantize(blocks, kind))
    assert not found
    logits(tmp_path / "packed")  # which loads
    # On the reference the blocks' values are computed with as they are.
    request.getfixturevalue("reference_kernels")
    save_file(values, tmp_path / "hf" / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(logits(tmp_path / "packed"), logits(tmp_path / "hf"))


def test_experts_of_several_types_do_not_go_into_one_tensor(tmp_path: Path) -> None:
    save(tmp_path / "hf", "qwen3_moe", **KINDS["qwen3_moe"][1])
    pack(tmp_path / "hf", tmp_path / "packed", "q8_0")
    file, name = tmp_path / "packed" / "model.safetensors", "model.layers.1.mlp.experts.2.up_proj"
    found = load_file(file)
    rows, num_blocks, _ = found.pop(f"{name}.weight.q8_0").shape
    found[f"{name}.weight.q4_0"] = torch.zeros(rows, num_blocks, 18, dtype=torch.uint8)
    save_file(found, file, metadata={"format": "pt"})
    logits(tmp_path / "packed")  # which loads
    with pytest.raises(InvalidRequest, match=r"ffn_up_exps\.weight would hold experts of several"):
        convert(tmp_path / "packed", tmp_path / "model.gguf", None)


def test_floats_without_blocks_are_a_folder_for_all(tmp_path: Path) -> None:
    save(tmp_path / "hf", "llama", **WIDE)
    pack(tmp_path / "hf", tmp_path / "packed", "q8_0")
    types = pack(tmp_path / "packed", tmp_path / "plain", "f32")
    assert types.keys() == {"F32"}
    assert "quantization_config" not in json.loads((tmp_path / "plain/config.json").read_text())
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain").eval()
    blocks = load_file(tmp_path / "packed" / "model.safetensors")
    for key, tensor in model.state_dict().items():
        packed = blocks.get(f"{key}.q8_0")
        if packed is not None:
            read = dequantize(packed.flatten(1).numpy(), gguf.GGMLQuantizationType.Q8_0)
            assert np.array_equal(tensor.numpy(), read), key
    found, due = logits(tmp_path / "plain"), expected_logits(model, IDS)
    assert (found - due).abs().max() <= TOLERANCE * due.abs().max()


ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 1e4},
    "linear": {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e4},
    "yarn": {**YARN, "rope_theta": 1e4},
    "llama3": {**LLAMA3, "rope_theta": 1e4},
    "Llama 3.1": {**LLAMA3, "original_max_position_embeddings": 8192, "rope_theta": 5e5},
    "Llama 3.2": {
        **LLAMA3,
        "factor": 32.0,
        "original_max_position_embeddings": 8192,
        "rope_theta": 5e5,
    },
}


@pytest.mark.parametrize("rope", ROPES)
def test_transformers_reads_the_floats_of_a_gguf_file(rope: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"head_dim": 32, "max_position_embeddings": 16384}
    model = save_tiny(tmp_path / "hf", "llama", rope_parameters=ROPES[rope], **sizes)
    source = write_of_library(tmp_path / "source.gguf", model)
    pack(source, tmp_path / "plain", "f32")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert None not in [*config.values(), *config.get("rope_scaling", {}).values()]
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain").eval()
    due = expected_logits(model, IDS)
    for found in (expected_logits(read, IDS), logits(tmp_path / "plain"), logits(source)):
        assert (found - due).abs().max() <= TOLERANCE * due.abs().max()
    if "llama" in rope.lower():
        asked = {key: value for key, value in ROPES[rope].items() if key != "rope_theta"}
        assert config["rope_scaling"] == asked
        # Blocks are for inferno alone, which computes with the file's own factors.
        pack(source, tmp_path / "packed", "q8_0")
        packed = json.loads((tmp_path / "packed" / "config.json").read_text())
        assert packed["rope_scaling"]["rope_type"] == "factors"


def test_factors_that_follow_no_rule_stay_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rope = {**LLAMA3, "rope_theta": 1e4}
    model = save_tiny(tmp_path / "hf", "llama", rope_parameters=rope)
    factors = np.array([1.0, 1.5, 1.25, 3.0, 2.0, 8.0], dtype=np.float32)
    monkeypatch.setattr("tests.gguf.convert._rope_factors", lambda _: factors)
    source = write_of_library(tmp_path / "source.gguf", model)
    pack(source, tmp_path / "plain", "f32")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert config["rope_scaling"] == {"rope_type": "factors", "factors": factors.tolist()}
    assert "inferno alone reads this folder" in caplog.text
    assert torch.equal(logits(tmp_path / "plain"), logits(source))


RARE = {"attn": "Q2_K", "ffn_down": "IQ4_XS", "ffn": "Q3_K", "output": "IQ4_NL", "token": "Q5_K"}


def test_blocks_of_any_type_are_moved_as_they_are(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "llama", **dict[str, Any](WIDE))
    source = write_of_library(tmp_path / "source.gguf", model, blocks=RARE)
    types = pack(source, tmp_path / "packed", None)
    assert types.keys() == {*RARE.values(), "F32"}
    assert torch.equal(logits(tmp_path / "packed"), logits(source))
    convert(tmp_path / "packed", tmp_path / "back.gguf", None)
    back = tensors(tmp_path / "back.gguf")
    for name, tensor in tensors(source).items():
        assert back[name].tensor_type == tensor.tensor_type, name
        assert np.array_equal(back[name].data, tensor.data), name
    with pytest.raises(InvalidRequest, match=r"would lose more; leave the type out"):
        pack(source, tmp_path / "other", "q8_0")
    # As floats they have the values that the library reads.
    pack(source, tmp_path / "plain", "f32")
    values = model.state_dict()
    for name, tensor in load_file(tmp_path / "plain" / "model.safetensors").items():
        assert torch.equal(tensor, values[name]), name


def test_a_gguf_file_of_other_blocks_stays_exact(tmp_path: Path) -> None:
    save(tmp_path / "hf", "llama", **WIDE)
    write_gguf(tmp_path / "hf", tmp_path / "model.gguf", None, name="tiny", threads=1)
    types = pack(tmp_path / "model.gguf", tmp_path / "packed", None)
    assert types.keys() == {"F32"}
    assert torch.equal(logits(tmp_path / "packed"), logits(tmp_path / "hf"))
