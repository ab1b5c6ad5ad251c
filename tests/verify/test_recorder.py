"""Watching changes nothing and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from inferno import ops
from inferno.engine.build import build_engine
from inferno.options import EngineOptions
from inferno.quantization import INT8
from inferno.verify.runs.recorder import ROOT, Call, recording
from tests.verify.tiny_models import save_model

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


class Notes:
    """A watcher that writes everything down."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.entered: list[str] = []
        self.left: list[str] = []

    def wants(self, op: str, where: str) -> bool:
        return True

    def see_call(self, call: Call) -> None:
        self.calls.append(call)

    def see_enter(self, name: str, inputs: tuple[Any, ...]) -> None:
        self.entered.append(name)

    def see_leave(self, name: str, output: Any) -> None:
        self.left.append(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "qwen3")


def test_every_call_is_told_with_its_place(folder: Path) -> None:
    engine = build_engine(EngineOptions(model=folder, threads=1, graphs=False))
    notes = Notes()
    with recording(notes) as found:
        logits = engine.logits(IDS)
    assert torch.equal(logits, engine.logits(IDS))
    assert found.model is not None
    told = {(call.op, call.where) for call in notes.calls}
    attention = "model.layers.2.self_attn"
    assert ("linear", f"{attention}.qkv_proj") in told
    assert ("attention", attention) in told
    assert ("add_rms_norm", "model.layers.1") in told
    [rotation] = [c for c in notes.calls if c.op == "rotate_and_store" and ".2." in c.where]
    assert rotation.arguments["q_THD"].shape == (len(IDS), 4, 20)
    assert rotation.arguments["eps"] == 1e-5


def test_modules_are_told_by_name_when_they_begin_and_end(folder: Path) -> None:
    engine = build_engine(EngineOptions(model=folder, threads=1, graphs=False))
    notes = Notes()
    with recording(notes):
        engine.logits(IDS)
    assert notes.entered[:2] == [ROOT, "model"]
    assert notes.left[-2:] == ["model", ROOT]
    assert notes.entered.count("model.layers.1.mlp") == 1
    assert sorted(notes.entered) == sorted(notes.left)


def test_nothing_stays_when_it_ends_even_by_an_error() -> None:
    before = dict(ops.BACKENDS)
    hooks = len(torch_modules._global_forward_hooks), len(torch_modules._global_forward_pre_hooks)
    with pytest.raises(IndexError), recording(Notes()):
        ops.embedding(torch.tensor([9]), torch.ones(2, 2))
    assert before == ops.BACKENDS
    assert hooks == (
        len(torch_modules._global_forward_hooks),
        len(torch_modules._global_forward_pre_hooks),
    )


def test_arguments_are_kept_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overwriting:
        """A kernel that writes into its input, as a fused one may."""

        @staticmethod
        def gated_linear(x: torch.Tensor, *_: object) -> torch.Tensor:
            return x.zero_()

    monkeypatch.setitem(ops.BACKENDS, "cpu", Overwriting)
    notes = Notes()
    with recording(notes):
        ops.gated_linear(torch.ones(1, 2), torch.ones(4, 2))
    assert notes.calls[0].arguments["x_TI"].tolist() == [[1, 1]]
    assert notes.calls[0].result.tolist() == [[0, 0]]


def test_what_a_backend_has_besides_ops_is_left_as_it_is() -> None:
    with recording(Notes()):
        assert ops.has_kernels(torch.device("mps"), INT8) is False


def test_modules_of_no_model_are_not_told() -> None:
    notes = Notes()
    with recording(notes):
        nn.Identity()(torch.ones(1))
    assert notes.entered == notes.left == []
