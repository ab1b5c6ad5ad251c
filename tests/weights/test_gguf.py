"""Checkpoints in GGUF: their tensors, and models made of them, equal Hugging Face's."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from torch import Tensor

from inferno import ops
from inferno.engine.build import build_engine
from inferno.errors import CheckpointError
from inferno.gguf.tensor_types import BY_NAME
from inferno.ops import RowRanges
from inferno.ops.cpu.panels import PanelWeight
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.report import unpacked_lines
from inferno.plan.shape import read_shape
from inferno.quantization import INT8
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.open import open_checkpoint
from tests.data import data_path
from tests.engine.local import executor_of
from tests.fuzz.gguf_parts import Described, take_apart
from tests.gguf.convert import copy_fields, write_gguf
from tests.gguf.files import Q8_0, STRING, Parts, entry, tensor, text, uint32
from tests.models.test_against_transformers import LLAMA3, QWEN_MOE, TOLERANCE, YARN
from tests.tiny import expected_logits, save_tiny

IDS = [1, 5, 9, 33, 70, 7, 90, 2, 8, 41] * 9
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, head size": ("llama", {"head_dim": 22}),
    "llama, theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "llama, factors": ("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 1e4}}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 20}),
    "qwen3_moe": ("qwen3_moe", {**QWEN_MOE, "norm_topk_prob": True}),
    "mixtral": ("mixtral", {"num_local_experts": 5}),
    "mixtral, tied, one expert a token": (
        "mixtral",
        {"tie_word_embeddings": True, "num_experts_per_tok": 1, "head_dim": 20},
    ),
}


def logits(path: Path, ids: list[int]) -> Tensor:
    options = EngineOptions(model=path, device="cpu", dtype="float32", threads=1, num_blocks=32)
    return build_engine(options).logits(ids)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_models_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model_type, config = VARIANTS[name]
    model = save_tiny(tmp_path / "hf", model_type, **config)
    path = write_gguf(tmp_path / "model.gguf", model)
    found = logits(path, IDS)
    due = expected_logits(model, IDS)
    assert (found - due).abs().max() <= TOLERANCE * due.abs().max()
    if name != "llama, factors":  # whose factors were rounded to float32
        assert torch.equal(found, logits(tmp_path / "hf", IDS))


def test_loading_counts_the_bytes_that_the_file_has(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "llama", hidden_size=64, intermediate_size=96, head_dim=32)
    blocks = dict.fromkeys(("attn", "ffn", "token", "output"), "Q8_0")
    path = write_gguf(tmp_path / "model.gguf", model, blocks=blocks)
    reports: list[tuple[int, int]] = []
    options = EngineOptions(model=path, threads=1, num_blocks=32)
    build_engine(options, lambda done, total: reports.append((done, total))).close()
    with open_checkpoint(path) as checkpoint:
        size = sum(info.stop - info.start for info in checkpoint.tensors.values())
    assert (size, size) in reports
    assert {total for _, total in reports} == {size}
    assert 0.8 < size / path.stat().st_size < 1


@pytest.mark.parametrize("type_name", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_quantized_weights_have_the_values_that_the_library_gives_them(
    type_name: str, tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "hf", "llama", hidden_size=64, intermediate_size=96)
    path = write_gguf(tmp_path / "model.gguf", model, type_name=type_name)
    block_type = gguf.GGMLQuantizationType[type_name]
    with open_checkpoint(path) as checkpoint:
        for name, parameter in model.state_dict().items():
            values = parameter.float().numpy()
            due = values
            if values.ndim > 1:
                due = dequantize(gguf.quants.quantize(values, block_type), block_type)
            assert np.array_equal(read(checkpoint, name).numpy(), due), name


# As files of "Q4_K_M" have them, and otherwise: what we make one weight of is of several types.
MIXED = {
    "several types": {
        "attn_q": "Q4_K",
        "attn_k": "Q5_K",
        "attn_v": "Q6_K",
        "ffn_gate": "Q4_K",
        "ffn_up": "Q6_K",
        "ffn_down": "Q6_K",
        "token_embd": "Q6_K",
    },
    "others": {
        "attn_q": "Q8_0",
        "attn_k": "Q8_0",
        "attn_v": "Q5_0",
        "ffn_gate": "Q4_1",
        "ffn_up": "Q5_1",
        "ffn_down": "Q4_0",
        "output": "Q8_0",
    },
    "types that are kept in others": {
        "attn_q": "Q3_K",
        "attn_k": "IQ4_NL",
        "attn_v": "Q8_0",
        "attn_output": "MXFP4",
        "ffn_gate": "MXFP4",
        "ffn_up": "MXFP4",
        "ffn_down": "IQ4_NL",
        "token_embd": "MXFP4",
    },
}


@pytest.mark.skipif(not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here")
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("name", MIXED)
def test_blocks_stay_what_they_are(name: str, kind: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", kind, hidden_size=256, intermediate_size=512, head_dim=20)
    path = write_gguf(tmp_path / "model.gguf", model, blocks=MIXED[name])
    options = EngineOptions(model=path, device="cpu", dtype="float32", threads=1, num_blocks=32)
    engine = build_engine(options)
    ours = {
        name: weight.unpack(torch.float32)
        for module_name, module in executor_of(engine)._runner._model.named_modules()
        for name, weight in ((f"{module_name}.weight", vars(module).get("weight")),)
        if isinstance(weight, PanelWeight | RowRanges)
    }
    theirs = model.state_dict()
    layer = "model.layers.0."
    fused = {
        "self_attn.qkv_proj": [f"self_attn.{one}_proj" for one in "qkv"],
        "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
        "mlp.down_proj": ["mlp.down_proj"],
    }
    for weight, parts in fused.items():
        due = torch.cat([theirs[f"{layer}{part}.weight"] for part in parts])
        assert torch.equal(ours[f"{layer}{weight}.weight"], due), weight
    expected = expected_logits(model, IDS)
    found = engine.logits(IDS)
    assert (found - expected).norm() <= 0.03 * expected.norm()  # inputs are rounded to 8 bits


@pytest.mark.skipif(not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here")
def test_what_is_kept_otherwise_is_told_with_its_error_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    types = {"attn_output": "Q2_K", "ffn_gate": "Q3_K", "ffn_down": "IQ4_XS", "ffn_up": "Q4_K"}
    model = save_tiny(tmp_path / "hf", "llama", hidden_size=256, intermediate_size=512)
    path = write_gguf(tmp_path / "model.gguf", model, blocks=types)
    with caplog.at_level("INFO", logger="inferno"):
        engine = build_engine(EngineOptions(model=path, device="cpu", threads=1, num_blocks=32))
    told = "\n".join(caplog.messages)
    assert "MiB of Q3_K become q6_k (exactly)" in told
    assert "MiB of Q2_K become q8_0 (off by 0.50%)" in told
    assert "MiB of IQ4_XS become q8_0 (off by 0.02%)" in told
    assert "Q4_K" not in told
    assert [one.levelname for one in caplog.records if "become" in one.message] == ["WARNING"]
    plan = make_plan(read_shape(path), EngineOptions(model=path), None)
    lines = "\n".join(unpacked_lines(plan))
    assert "of Q3_K become q6_k (exactly): " in lines
    assert "of Q2_K become q8_0 (off by 0.50%): " in lines
    assert "of IQ4_XS become q8_0 (off by 0.02%): " in lines
    modules = dict(executor_of(engine)._runner._model.named_modules())
    down: Any = vars(modules["model.layers.0.mlp.down_proj"])["weight"]
    assert down.num_bytes == 512 * 256 * 34 // 32


@pytest.mark.skipif(not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here")
def test_experts_of_several_types_are_told_to_become_floats(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {"hidden_size": 256, "moe_intermediate_size": 512, "num_experts": 16}
    model = save_tiny(tmp_path / "hf", "qwen3_moe", **{**QWEN_MOE, **sizes})
    types = {"ffn_gate_exps": "Q4_K", "ffn_up_exps": "Q6_K", "ffn_down_exps": "Q4_K"}
    path = write_gguf(tmp_path / "model.gguf", model, blocks={**types, "attn_q": "Q6_K"})
    with caplog.at_level("INFO", logger="inferno"):
        options = EngineOptions(model=path, device="cpu", dtype="bfloat16", num_blocks=32)
        engine = build_engine(options)
    [told] = [each for each in caplog.messages if "all weights take" in each]
    num_values = model.config.num_hidden_layers * 16 * 256 * 512  # of one projection
    for name, block_bytes in (("Q4_K", 144), ("Q6_K", 210)):
        size = f"{num_values * block_bytes / 256 / 2**20:,.0f} MiB of {name}"
        become = "become bfloat16 (off by 0.17%), for a layer's experts are of several types"
        assert f"{size} {become}" in told
    assert f"all weights take {engine.footprint.weights_bytes / 2**20:.0f} MiB" in told


@pytest.mark.parametrize("are_experts_apart", [False, True])
@pytest.mark.parametrize("kind", ["qwen3_moe", "mixtral"])
def test_experts_are_read_one_by_one(kind: str, are_experts_apart: bool, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", kind, **(QWEN_MOE if kind == "qwen3_moe" else {}))
    path = write_gguf(tmp_path / "model.gguf", model, are_experts_apart=are_experts_apart)
    with open_checkpoint(path) as found, open_checkpoint(tmp_path / "hf") as due:
        assert found.tensors.keys() == due.tensors.keys()
        for name in due.tensors:
            assert torch.equal(read(found, name), read(due, name)), name


def test_more_experts_than_any_model_has_are_refused(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "hf", "qwen3_moe", **QWEN_MOE)
    path = write_gguf(tmp_path / "model.gguf", model)
    parts = take_apart(path.read_bytes())
    parts.tensors.append(Described(b"blk.9.ffn_up_exps.weight", [0, 0, 2**62], 0, len(parts.data)))
    path.write_bytes(parts.content())
    with pytest.raises(CheckpointError, match=r"have \d+ experts, at most"):
        open_checkpoint(path)


@pytest.mark.parametrize("name", ["output_norm.weight", "blk.0.ffn_up_exps.weight"])
def test_blocks_without_rows_are_not_read(name: str, tmp_path: Path) -> None:
    shape = (2, 34) if "exps" in name else (34,)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "qwen3")
    writer.add_tensor(name, np.zeros(shape, np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(tmp_path / "x.gguf") as checkpoint:
        for each in checkpoint.tensors:
            with pytest.raises(CheckpointError, match="Q8_0, which can't be read"):
                checkpoint.read_into(each, torch.empty(32))


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "blk.0.ffn_up.weight"])
@pytest.mark.parametrize("type_name", ["F32", "Q8_0"])
@pytest.mark.parametrize("sizes", [[0, 4], [32, 0], [0, 0]])
def test_a_tensor_without_values_is_read(
    name: str, type_name: str, sizes: list[int], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "model.gguf", save_tiny(tmp_path / "hf", "llama"))
    parts = take_apart(path.read_bytes())
    kind = int(gguf.GGMLQuantizationType[type_name])
    parts.tensors = [Described(name.encode(), sizes, kind, 0)]
    path.write_bytes(parts.content())
    with open_checkpoint(path) as checkpoint:
        [info] = checkpoint.tensors.values()
        assert info.shape == tuple(sizes[::-1])
        if type_name == "F32":
            checkpoint.read_into(info.name, torch.empty(info.shape))


def test_a_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", save_tiny(tmp_path / "hf", "llama"))
    parts = take_apart(path.read_bytes())
    other = b"model.norm.weight"
    parts.tensors.append(Described(other, [1], 0, len(parts.data)))
    parts.data += bytes(4)
    path.write_bytes(parts.content())
    with pytest.raises(CheckpointError, match=r"'model\.norm\.weight' twice"):
        open_checkpoint(path)


@pytest.mark.parametrize("name", ["{}.weight", "{}{}", "{0.__class__}", "blk.0.{}.weight"])
def test_a_name_with_braces_is_a_name(name: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "qwen3")
    writer.add_tensor(name, np.zeros((2, 3), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(tmp_path / "x.gguf") as checkpoint:
        assert list(checkpoint.tensors) == [name]


@pytest.mark.parametrize("first", [0, 3, 8, 11])
@pytest.mark.parametrize("count", [1, 5, 16])
@pytest.mark.parametrize("chunk_rows", [1, 8, 1000])
def test_rows_of_permuted_heads_are_read_from_anywhere(
    first: int, count: int, chunk_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.weights.checkpoint.CHUNK_BYTES", 4 * 64 * chunk_rows)
    name = "model.layers.2.self_attn.q_proj.weight"
    file = data_path("stories260K-gguf", "stories260K-f32-v3.gguf")
    with open_checkpoint(file) as found, open_checkpoint(data_path("stories260K")) as due:
        rows = torch.empty(count, 64)
        found.read_rows_into(name, first, rows)
        assert torch.equal(rows, read(due, name)[first : first + count])


@pytest.mark.parametrize("type_", [np.int16, np.int32])
def test_whole_numbers_lie_as_they_are_read(type_: type[np.generic], tmp_path: Path) -> None:
    values = np.arange(16 * 3).reshape(16, 3).astype(type_)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_embedding_length(16)
    writer.add_head_count(2)
    writer.add_tensor("blk.0.attn_q.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(tmp_path / "x.gguf") as checkpoint:
        (name,) = checkpoint.tensors
        assert checkpoint.tensors[name].coding is None
        found = torch.from_numpy(np.empty_like(values))
        checkpoint.read_into(name, found)
    assert np.array_equal(found.numpy(), values)


def test_a_real_file_holds_the_weights_of_its_folder() -> None:
    file = data_path("stories260K-gguf", "stories260K-f32-v3.gguf")
    with open_checkpoint(file) as found, open_checkpoint(data_path("stories260K")) as due:
        assert found.tensors.keys() == due.tensors.keys()
        for name in due.tensors:
            assert torch.equal(read(found, name), read(due, name)), name


def test_split_files_are_one_checkpoint(tmp_path: Path) -> None:
    whole = save_split(tmp_path)
    with open_checkpoint(whole) as due, open_checkpoint(tmp_path / NAMES[0]) as found:
        assert found.tensors.keys() == due.tensors.keys()
        for name in due.tensors:
            assert torch.equal(read(found, name), read(due, name)), name
    assert torch.equal(logits(tmp_path / NAMES[0], IDS[:9]), logits(whole, IDS[:9]))


def test_split_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    save_split(tmp_path)
    with pytest.raises(CheckpointError, match="give the first one"):
        open_checkpoint(tmp_path / NAMES[1])
    shutil.copy(tmp_path / NAMES[0], tmp_path / "renamed.gguf")
    with pytest.raises(CheckpointError, match="must be named"):
        open_checkpoint(tmp_path / "renamed.gguf")
    shutil.copy(tmp_path / NAMES[1], tmp_path / NAMES[2])
    with pytest.raises(CheckpointError, match="expected 2 of 3"):
        open_checkpoint(tmp_path / NAMES[0])
    (tmp_path / NAMES[1]).unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        open_checkpoint(tmp_path / NAMES[0])


def test_split_files_of_which_one_lacks_a_tensor_are_refused(tmp_path: Path) -> None:
    save_split(tmp_path)
    last = tmp_path / NAMES[2]
    parts = take_apart(last.read_bytes())
    assert parts.tensors.pop().name == b"output.weight"  # the model would count as tied
    last.write_bytes(parts.content())
    for reads in (open_checkpoint, read_shape):
        with pytest.raises(CheckpointError, match="hold 30 tensors, and they hold 29"):
            reads(tmp_path / NAMES[0])


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_file_that_goes_on_with_a_model_names_the_first(count: int, tmp_path: Path) -> None:
    names = [f"m-0000{number + 1}-of-0000{count}.gguf" for number in range(count)]
    save_split(tmp_path, names)
    for name in names[1:]:
        for reads in (open_checkpoint, read_shape):
            with pytest.raises(CheckpointError, match=f"give the first one, {names[0]}"):
                reads(tmp_path / name)
    (tmp_path / names[-1]).unlink()
    for reads in (open_checkpoint, read_shape):
        with pytest.raises(CheckpointError, match=f"{names[-1]}: is missing; download"):
            reads(tmp_path / names[0])


@pytest.mark.parametrize("number", [0, 1])
def test_a_number_that_is_a_long_text_is_shortened(number: int, tmp_path: Path) -> None:
    save_split(tmp_path)
    path = tmp_path / NAMES[number]
    parts = take_apart(path.read_bytes())
    for one in parts.entries:
        if one.key == b"split.no":
            one.type, one.value = STRING, text(b"\x1b" * 100_000)
    path.write_bytes(parts.content())
    with pytest.raises(CheckpointError) as problem:
        open_checkpoint(tmp_path / NAMES[0])
    assert len(str(problem.value)) < 1000
    assert str(problem.value).isprintable()


LLAMA = [
    entry("general.architecture", STRING, text("llama")),
    uint32("llama.attention.head_count", 4),
    uint32("llama.embedding_length", 32),
]


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (
            [
                tensor("blk.0.attn_norm.weight", [8]),
                tensor("model.layers.0.input_layernorm.weight", [8], offset=32),
            ],
            "has 'model.layers.0.input_layernorm.weight' twice",
        ),
        ([tensor("blk.0.ffn_up_exps.weight", [0, 1, 2**40])], "1099511627776 experts"),
    ],
)
def test_tensors_that_are_no_models_are_refused(
    tensors: list[bytes], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(Parts(entries=LLAMA, tensors=tensors, data=bytes(64)).content())
    with pytest.raises(CheckpointError, match=words):
        open_checkpoint(path)


def test_names_are_no_format_strings(tmp_path: Path) -> None:
    path, name = tmp_path / "m.gguf", "{}{0.__class__}"
    tensors = [tensor(name, [8])]
    path.write_bytes(Parts(entries=LLAMA, tensors=tensors, data=bytes(32)).content())
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == [name]


def test_blocks_are_those_of_matrices_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensors = [tensor("blk.0.attn_norm.weight", [32], type_number=Q8_0)]
    path.write_bytes(Parts(entries=LLAMA, tensors=tensors, data=bytes(64)).content())
    with open_checkpoint(path) as checkpoint:
        (info,) = checkpoint.tensors.values()
        assert info.dtype == "Q8_0", "a type that the loader names and refuses"


def test_scales_that_no_kept_format_holds_are_refused_with_the_tensors_name(tmp_path: Path) -> None:
    path, type_ = tmp_path / "m.gguf", BY_NAME["IQ4_XS"]
    block = bytearray(type_.block_bytes)  # all of its codes are -127, and scales -32
    block[:2] = struct.pack("<e", 4000.0)
    tensors = [tensor("blk.0.attn_v.weight", [256, 1], type_number=type_.number)]
    path.write_bytes(Parts(entries=LLAMA, tensors=tensors, data=bytes(block) + bytes(24)).content())
    name = "model.layers.0.self_attn.v_proj.weight"
    with open_checkpoint(path) as checkpoint:
        assert read(checkpoint, name).tolist() == [[4000.0 * -32 * -127] * 256]
        with pytest.raises(CheckpointError, match=f"'{name}' has blocks of IQ4_XS whose scales"):
            checkpoint.read_as_kept(name, checkpoint.stored[name].format)


NAMES = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


def read(checkpoint: Checkpoint, name: str) -> Tensor:
    values = torch.empty(checkpoint.tensors[name].shape)
    checkpoint.read_into(name, values)
    return values


def save_split(folder: Path, names: Sequence[str] = NAMES) -> Path:
    """Write a model as one file and as several, as gguf-split does: vocabulary first."""
    whole = write_gguf(folder / "whole.gguf", save_tiny(folder / "hf", "llama"))
    reader = gguf.GGUFReader(whole)
    for number, name in enumerate(names):
        writer = gguf.GGUFWriter(folder / name, "llama")
        if number == 0:
            copy_fields(reader, writer, {})
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", len(names))
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for one in reader.tensors[number :: len(names)]:
            writer.add_tensor(one.name, np.array(one.data), raw_dtype=one.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return whole
