"""Watching changes nothing and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from inferno import ops
from inferno.engine.assemble import build_engine
from inferno.options import EngineOptions
from inferno.verify.recorder import Call, recording
from tests.verify.tiny_models import save_model

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), "qwen3")


def test_every_call_is_told_with_its_place_and_weight(folder: Path) -> None:
    engine = build_engine(EngineOptions(model=folder, threads=1))
    calls: list[Call] = []
    with recording(lambda op, where: True, calls.append, lambda *_: None) as found:
        logits = engine.logits(IDS)
    assert torch.equal(logits, engine.logits(IDS))
    assert found.model is not None
    told = {(call.op, call.where, call.weight) for call in calls}
    attention = "model.layers.2.self_attn"
    assert ("linear", f"{attention}.qkv_proj", f"{attention}.qkv_proj.weight") in told
    assert ("attention", attention, "") in told
    assert ("add_rms_norm", "model.layers.1", "model.layers.1.input_layernorm.weight") in told
    [rotation] = [c for c in calls if c.op == "rotate_and_store" and ".2." in c.where]
    assert rotation.arguments["q_THD"].shape == (len(IDS), 4, 20)
    assert rotation.arguments["eps"] == 1e-5


def test_nothing_stays_when_it_ends_even_by_an_error() -> None:
    before = dict(ops.BACKENDS)
    hooks = len(torch_modules._global_forward_hooks), len(torch_modules._global_forward_pre_hooks)
    with pytest.raises(IndexError), recording(lambda *_: True, print, lambda *_: None):
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
        def silu_mul(gate_up: torch.Tensor, **_: object) -> torch.Tensor:
            return gate_up.zero_()

    monkeypatch.setitem(ops.BACKENDS, "cpu", Overwriting)
    calls: list[Call] = []
    with recording(lambda *_: True, calls.append, lambda *_: None):
        ops.silu_mul(torch.ones(1, 2))
    assert calls[0].arguments["gate_up_TF"].tolist() == [[1, 1]]
    assert calls[0].result.tolist() == [[0, 0]]


def test_other_modules_are_told_without_a_name() -> None:
    names: list[str] = []
    with recording(lambda *_: True, print, lambda name, *_: names.append(name)):
        nn.Identity()(torch.ones(1))
    assert names == [""]
