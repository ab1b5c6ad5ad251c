"""An embedding that is packed in the file, and serves as head as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inferno.config.decoder import DecoderConfig
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.errors import WeightsMismatch
from inferno.models import common
from inferno.ops.packed import pack_mxfp4
from inferno.options import EngineOptions
from inferno.quantization import MXFP4
from inferno.weights.pieces import FusedSpec, Piece, whole
from tests.engine.local import executor_of
from tests.tiny import expected_logits, save_tiny

TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"
PROMPT = [5, 9, 17, 40]


_USUAL = common.fused_weights


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Llama's, with a packed embedding."""
    return {**_USUAL(config), TABLE: (Piece(TABLE, whole, format=MXFP4),)}


def save(folder: Path, *names: str, change: int = 0) -> Any:
    """A tied model whose table is packed, under these names; returns that of `transformers`."""
    model = save_tiny(folder, "llama", hidden_size=64, tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    rows = pack_mxfp4(tensors.pop(TABLE))
    for index, name in enumerate(names):
        blocks, scales = (part.clone() for part in rows.parts)
        blocks[0, 0, 0] += change * index
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model.model.embed_tokens.weight.data.copy_(rows.unpack(torch.float32))
    return model


def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(common, "fused_weights", fused_weights)
    return build_engine(EngineOptions(model=folder, threads=1, num_blocks=8))


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("names", [(TABLE,), (HEAD,), (TABLE, HEAD)])
def test_it_gives_the_logits_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    model = save(tmp_path, *names)
    found: Tensor = load(tmp_path, monkeypatch).logits(PROMPT)
    torch.testing.assert_close(found, expected_logits(model, PROMPT), rtol=1e-4, atol=1e-4)


def test_kernels_take_its_bytes_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(tmp_path, TABLE)
    engine = load(tmp_path, monkeypatch)
    loaded: Any = executor_of(engine)._runner._model
    table = loaded.model.embed_tokens.weight
    assert torch.equal(table.unpack(torch.float32), model.model.embed_tokens.weight)
    assert loaded.model.embed_tokens(torch.tensor(PROMPT)).shape == (4, 64)
    assert engine.logits(PROMPT).shape == (4, 96)


def test_two_tables_that_differ_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, TABLE, HEAD, change=1)
    with pytest.raises(WeightsMismatch, match="holds two that differ"):
        load(tmp_path, monkeypatch)
