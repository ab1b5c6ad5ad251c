"""A weight of several tensors in several formats: out of a file, in an engine, in the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.engine.build import build_engine
from inferno.engine.execution import loading
from inferno.models import common
from inferno.ops import PackedWeight, RowRanges
from inferno.ops.packed import pack_mxfp4
from inferno.options import EngineOptions
from inferno.quantization import INT4, INT8, MXFP4
from inferno.requests import Request, SamplingParams
from inferno.weights import packed_cache
from inferno.weights.pieces import FusedSpec, Piece, side_by_side
from tests.engine.local import executor_of
from tests.tiny import save_tiny, save_tokenizer

CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(
    not ops.has_kernels(CPU, INT8), reason="no compiled kernels run here"
)
# Queries and keys end amid what is packed at once.
SIZES: dict[str, Any] = {"hidden_size": 64, "head_dim": 12, "num_hidden_layers": 2}
Q_ROWS, KV_ROWS = 4 * 12, 2 * 12
PROMPTS = [[5, 9, 17], [3] * 11]


_USUAL = common.fused_weights


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Llama's, whose values are packed in the file."""
    queries, keys, values = side_by_side(
        ("q_proj.weight", Q_ROWS), ("k_proj.weight", KV_ROWS), ("v_proj.weight", KV_ROWS)
    )
    packed = Piece(values.name, values.part, format=MXFP4)
    gate_up = _USUAL(config)["mlp.gate_up_proj"]
    return {"qkv_proj.weight": (queries, keys, packed), "mlp.gate_up_proj": gate_up}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny Llama with v_proj in MXFP4."""
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    path = tmp_path / "model"
    path.mkdir()
    save_tiny(path, "llama", vocab_size=save_tokenizer(path), **SIZES)
    tensors = load_file(path / "model.safetensors")
    for name in [name for name in tensors if name.endswith("v_proj.weight")]:
        blocks, scales = pack_mxfp4(tensors.pop(name)).parts
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(common, "fused_weights", fused_weights)
    return path


def values_of(folder: Path, layer: int) -> list[Tensor]:
    """The values of a layer's q, k and v."""
    tensors = load_file(folder / "model.safetensors")
    prefix = f"model.layers.{layer}.self_attn."
    stored = ops.StoredRows(
        MXFP4, tuple(tensors[f"{prefix}v_proj.weight_{part}"] for part in ("blocks", "scales"))
    )
    floats = [tensors[f"{prefix}{name}_proj.weight"] for name in "qk"]
    return [*floats, stored.unpack(torch.float32)]


def qkv_of(folder: Path, layer: int, quantize: str) -> Any:
    engine = build_engine(EngineOptions(model=folder, quantize=quantize, threads=1, num_blocks=8))
    model: Any = executor_of(engine)._runner._model
    return model.model.layers[layer].self_attn.qkv_proj.weight


def test_each_tensor_fills_its_range(folder: Path) -> None:
    weight = qkv_of(folder, 1, "none")
    assert isinstance(weight, RowRanges)
    assert [part.shape[0] for part in weight.parts] == [Q_ROWS + KV_ROWS, KV_ROWS]
    assert torch.equal(weight.unpack(torch.float32), torch.cat(values_of(folder, 1)))


@needs_kernels
def test_what_is_packed_stays_beside_what_is_quantized(folder: Path) -> None:
    weight = qkv_of(folder, 0, "int4")
    queries, keys, values = values_of(folder, 0)
    quantized = cast(PackedWeight, ops.pack(torch.cat((queries, keys)), INT4))
    assert [str(part.format) for part in weight.parts] == ["int4", "mxfp4"]
    found, packed = (part.unpack(torch.float32) for part in weight.parts)
    assert torch.equal(found, quantized.unpack(torch.float32))
    assert torch.equal(packed, values)


def answers(folder: Path, **options: Any) -> tuple[dict[str, list[int]], list[Tensor], int]:
    """Greedy tokens and logits of some prompts, and the number of steps that were recorded."""
    engine = build_engine(EngineOptions(model=folder, num_blocks=32, threads=1, **options))
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    tokens: dict[str, list[int]] = {str(prompt): [] for prompt in PROMPTS}
    for prompt in PROMPTS:
        engine.add_request(
            Request(request_id=str(prompt), prompt_token_ids=tuple(prompt), params=params)
        )
    while engine.has_work:
        for event in engine.step():
            tokens[event.request_id] += event.token_ids
    logits = [engine.logits(prompt) for prompt in PROMPTS]
    return tokens, logits, len(executor_of(engine)._runner._graphs)


@needs_kernels
@pytest.mark.parametrize("quantize", ["none", "int4"])
def test_recorded_steps_and_others_give_the_same_tokens(folder: Path, quantize: str) -> None:
    recorded, logits, num_recorded = answers(folder, quantize=quantize)
    eager, expected, num_eager = answers(folder, quantize=quantize, graphs=False)
    assert num_recorded > num_eager == 0
    assert recorded == eager
    assert all(map(torch.equal, logits, expected))


@needs_kernels
def test_packed_weights_are_cached_and_restored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = answers(folder, quantize="int4")
    [file] = packed_cache.folder().glob("*.packed")
    header = json.loads(file.read_bytes().partition(b"\n")[0])
    metas = {one["name"]: one["meta"] for one in header["weights"]}
    ranges = metas["model.layers.0.self_attn.qkv_proj.weight"]["ranges"]
    assert [one["format"] for one in ranges] == ["int4", "mxfp4"]

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("read anew")

    monkeypatch.setattr(loading, "load_weights", fail)
    after = answers(folder, quantize="int4")
    assert after[0] == before[0]
    assert all(map(torch.equal, after[1], before[1]))


def test_files_that_lack_a_part_of_a_packed_weight_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.self_attn.v_proj.weight_scales"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(Exception, match=r"missing:\n.*v_proj.weight_scales': expected \[24, 2\]"):
        qkv_of(folder, 0, "none")
