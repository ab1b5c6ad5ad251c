"""Filling a model: every tensor in its place, or one error that lists all that's wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from inferno.errors import CheckpointError, NotEnoughMemory, WeightsMismatch
from inferno.weights import allocate
from inferno.weights.loader import load_weights
from inferno.weights.open import open_checkpoint
from inferno.weights.pieces import side_by_side
from tests.weights.files import SINGLE, entry, parameters, tensor_file, write_single

QKV_ROWS = (("q_proj", 4), ("k_proj", 2), ("v_proj", 2))
FUSED = {"qkv_proj": side_by_side(*QKV_ROWS)}
TIED = {"lm_head.weight": "embed.weight"}
CPU = torch.device("cpu")


class Attention(nn.Module):
    """A fused projection with a bias, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv_proj = nn.Linear(3, 8)
        self.norm = nn.LayerNorm(3, bias=False)


class Model(nn.Module):
    """Two layers and an embedding, like a language model whose head is tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.layers = nn.ModuleList([Attention(), Attention()])


def meta_model() -> Model:
    with torch.device("meta"):
        return Model()


def weights() -> dict[str, Tensor]:
    """A checkpoint that fits Model, under Hugging Face's names."""
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (5, 3)}
    for layer in ("layers.0", "layers.1"):
        shapes[f"{layer}.norm.weight"] = (3,)
        for name, rows in QKV_ROWS:
            shapes |= {f"{layer}.{name}.weight": (rows, 3), f"{layer}.{name}.bias": (rows,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def load(
    folder: Path,
    tensors: dict[str, Tensor],
    *,
    tied: dict[str, str] | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """The parameters of Model after loading it from a file of these tensors."""
    save_file(tensors, folder / SINGLE)
    model = meta_model()
    with open_checkpoint(folder) as checkpoint:
        load_weights(model, checkpoint, fused=FUSED, tied=tied, device=CPU, dtype=dtype)
    return parameters(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_parameter_holds_the_tensors_of_its_name(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = weights()
    loaded = load(tmp_path, tensors, dtype=dtype)
    assert torch.equal(loaded["embed.weight"], tensors["embed.weight"].to(dtype))
    for leaf in ("weight", "bias"):
        parts = [tensors[f"layers.1.{name}.{leaf}"] for name in ("q_proj", "k_proj", "v_proj")]
        assert torch.equal(loaded[f"layers.1.qkv_proj.{leaf}"], torch.cat(parts).to(dtype))
    assert all(not parameter.requires_grad for parameter in loaded.values())


def test_all_differences_are_listed_in_one_error(tmp_path: Path) -> None:
    tensors = weights()
    del tensors["embed.weight"], tensors["layers.0.k_proj.bias"]
    tensors["layers.0.q_proj.weight"] = torch.zeros(3, 4)
    tensors["layers.1.norm.weight"] = torch.zeros(3, dtype=torch.int32)
    tensors["layers.2.norm.weight"] = torch.zeros(3)
    with pytest.raises(WeightsMismatch) as error:
        load(tmp_path, tensors)
    for line in (
        str(tmp_path),
        "2 missing:\n  'embed.weight': expected [5, 3]\n  'layers.0.k_proj.bias': expected [2]\n",
        "1 misshapen:\n  'layers.0.q_proj.weight': expected [4, 3], found [3, 4]\n",
        "'layers.1.norm.weight': expected float32, float16 or bfloat16, found torch.int32\n",
        "1 unused:\n  'layers.2.norm.weight': found [3]\n",
    ):
        assert line in str(error.value)


def test_a_long_list_is_shortened_and_counted(tmp_path: Path) -> None:
    extra = {f"extra.{i}": torch.zeros(1) for i in range(1000)}
    with pytest.raises(WeightsMismatch, match=r"1000 unused:") as error:
        load(tmp_path, {**weights(), **extra})
    assert "and 990 more" in str(error.value)
    assert len(str(error.value).splitlines()) < 20


def test_nothing_is_allocated_before_all_names_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.weights.loader.allocate", None)
    with pytest.raises(WeightsMismatch):
        load(tmp_path, {"embed.weight": weights()["embed.weight"]})


def test_an_eight_bit_float_is_refused_by_name(tmp_path: Path) -> None:
    content = tensor_file({"weight": entry("F8_E4M3", [1, 2], [0, 2])}, bytes(2))
    model = nn.Linear(2, 1, bias=False, device="meta")
    with (
        open_checkpoint(write_single(tmp_path, content)) as checkpoint,
        pytest.raises(WeightsMismatch, match="found F8_E4M3"),
    ):
        load_weights(model, checkpoint, fused={}, device=CPU, dtype=torch.float32)


def test_buffers_of_old_checkpoints_may_be_left_over_and_nothing_else(tmp_path: Path) -> None:
    leftovers = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(2),
        "model.layers.0.self_attn.rotary_emb.cos_cached": torch.zeros(2),
        "model.layers.0.self_attn.rotary_emb.sin_cached": torch.zeros(2),
        "h.0.attn.masked_bias": torch.zeros(()),
    }
    assert load(tmp_path, {**weights(), **leftovers})
    for name in ("vision.tower.weight", "x.rotary_emb.inv_freq.weight"):
        with pytest.raises(WeightsMismatch, match=f"1 unused:\n  '{re.escape(name)}'"):
            load(tmp_path, {**weights(), **leftovers, name: torch.zeros(2)})


@pytest.mark.parametrize("present", [True, False])
def test_a_tied_head_may_be_in_the_checkpoint_or_not(present: bool, tmp_path: Path) -> None:
    tensors = weights()
    embedding = tensors["embed.weight"]
    extra = {"lm_head.weight": embedding.clone()} if present else {}
    loaded = load(tmp_path, {**tensors, **extra}, tied=TIED)
    assert torch.equal(loaded["embed.weight"], embedding)


def test_a_shared_tensor_may_be_stored_under_the_other_name_only(tmp_path: Path) -> None:
    tensors = weights()
    tensors["lm_head.weight"] = tensors.pop("embed.weight")
    loaded = load(tmp_path, tensors, tied=TIED)
    assert torch.equal(loaded["embed.weight"], tensors["lm_head.weight"])


def test_a_tied_head_that_differs_from_the_embedding_is_refused(tmp_path: Path) -> None:
    other = weights()["embed.weight"] + 1
    with pytest.raises(WeightsMismatch, match="tie_word_embeddings"):
        load(tmp_path, {**weights(), "lm_head.weight": other}, tied=TIED)


def test_a_tied_head_of_another_shape_is_a_difference(tmp_path: Path) -> None:
    with pytest.raises(WeightsMismatch, match=re.escape("expected [5, 3], found [6, 3]")):
        load(tmp_path, {**weights(), "lm_head.weight": torch.zeros(6, 3)}, tied=TIED)


def test_an_untied_head_is_unused(tmp_path: Path) -> None:
    with pytest.raises(WeightsMismatch, match=r"1 unused:\n  'lm_head\.weight'"):
        load(tmp_path, {**weights(), "lm_head.weight": torch.zeros(5, 3)})


def test_hostile_names_are_escaped_and_shortened(tmp_path: Path) -> None:
    extra = {"x" * 1000: torch.zeros(1), "{}%s\\": torch.zeros(1)}
    with pytest.raises(WeightsMismatch) as error:
        load(tmp_path, {**weights(), **extra})
    assert "x" * 101 not in str(error.value)
    assert r"'{}%s\\'" in str(error.value)


def test_progress_counts_up_to_the_size_of_the_files_tensors(tmp_path: Path) -> None:
    save_file(weights(), tmp_path / SINGLE)
    reports: list[tuple[int, int]] = []
    with open_checkpoint(tmp_path) as checkpoint:
        load_weights(
            meta_model(),
            checkpoint,
            fused=FUSED,
            device=CPU,
            dtype=torch.bfloat16,
            progress=lambda done, total: reports.append((done, total)),
        )
    sizes = [tensor.nbytes for tensor in weights().values()]
    assert len(reports) == len(sizes)
    assert reports[-1] == (sum(sizes), sum(sizes))
    assert reports == sorted(reports)


def test_weights_that_do_not_fit_are_refused_before_they_are_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocate, "available_bytes", lambda device: 100)
    with pytest.raises(NotEnoughMemory, match="--dtype bfloat16"):
        load(tmp_path, weights())
    with pytest.raises(NotEnoughMemory) as error:
        load(tmp_path, weights(), dtype=torch.bfloat16)
    assert "--dtype" not in str(error.value)


def test_a_failing_allocator_is_no_traceback(tmp_path: Path) -> None:
    model = nn.Linear(2**28, 2**30, bias=False, device="meta")
    with pytest.raises(NotEnoughMemory, match="GiB"):
        allocate.allocate(model, "weight", CPU, torch.float32)


def test_a_checkpoint_cut_while_loading_is_an_error(tmp_path: Path) -> None:
    save_file(weights(), tmp_path / SINGLE)
    with (
        open_checkpoint(tmp_path) as checkpoint,
        pytest.raises(CheckpointError, match="changed while it was being read"),
    ):
        load_weights(
            meta_model(),
            checkpoint,
            fused=FUSED,
            device=CPU,
            dtype=torch.float32,
            progress=lambda done, total: (tmp_path / SINGLE).open("wb").close(),
        )
