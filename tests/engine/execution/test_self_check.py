"""A device that lacks an op is refused by the op's name, before a model is run on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import LLM, ops
from inferno.config.families import read_model_config
from inferno.config.mixture import MixtureConfig, PlainSwiGLU
from inferno.demo import MODEL_FOLDERS
from inferno.engine import build
from inferno.engine.execution.self_check import check_ops, failing_ops
from inferno.errors import DeviceUnavailable

CPU = torch.device("cpu")


DENSE = read_model_config(build.read_hf_config(MODEL_FOLDERS["demo"]))
MIXTURE = replace(
    DENSE,
    mixture=MixtureConfig(
        layers=(True,) * DENSE.num_layers,
        num_experts=4,
        num_chosen=2,
        size=16,
        renormalize=True,
        activation=PlainSwiGLU(),
    ),
)


class Lacking:
    """The reference, but for some functions."""

    __name__ = "lacking"

    def __init__(self, **replaced: Any) -> None:
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(ops.reference, name)


def lacks(monkeypatch: pytest.MonkeyPatch, **replaced: Any) -> None:
    monkeypatch.setitem(ops.BACKENDS, "cpu", Lacking(**replaced))


def absent(*_: object, **__: object) -> Tensor:
    raise NotImplementedError("The operator 'aten::x' is not implemented for the MPS device.\nSet")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_this_machine_computes_every_op(dtype: torch.dtype) -> None:
    assert failing_ops(CPU, dtype, dtype, MIXTURE) == {}


@pytest.mark.parametrize("op", ops.FORWARD_OPS)
def test_each_op_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    lacks(monkeypatch, **{op: absent})
    found = failing_ops(CPU, torch.float32, torch.float32, MIXTURE)
    assert op in found
    assert "NotImplementedError: The operator 'aten::x' is not implemented" in found[op]
    with pytest.raises(DeviceUnavailable, match=rf"cpu was asked for, but can't compute .*{op} \("):
        check_ops(CPU, torch.float32, torch.float32, MIXTURE)


@pytest.mark.parametrize("op", ["linear", "rms_norm", "route"])
def test_an_op_whose_numbers_are_wrong_is_named(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    right = getattr(ops.reference, op)

    def wrong(*given: Any, **named: Any) -> Any:
        result = right(*given, **named)
        if isinstance(result, tuple):
            return result[0], result[1] * torch.nan
        return result * 2

    lacks(monkeypatch, **{op: wrong})
    found = failing_ops(CPU, torch.float32, torch.float32, MIXTURE)
    assert found[op] == "its numbers are wrong"


def test_a_window_and_sinks_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def attention(*given: Any, **named: Any) -> Tensor:
        seen.append((given[1].groups[0].window, named["sinks_H"] is not None))
        return ops.reference.attention(*given, **named)

    lacks(monkeypatch, attention=attention)
    for windows, has_sinks in (((None,) * 3, False), ((None, 4096, 4096), True)):
        config = replace(DENSE, num_layers=3, windows=windows, has_sinks=has_sinks)
        assert failing_ops(CPU, torch.float32, torch.float32, config) == {}
    assert seen == [(None, False), (None, True), (2, True)]


def test_what_a_model_does_not_need_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks(monkeypatch, route=absent, experts=absent)
    assert failing_ops(CPU, torch.float32, torch.float32, DENSE) == {}
    assert [*failing_ops(CPU, torch.float32, torch.float32, MIXTURE)] == ["route", "experts"]


def test_an_engine_on_apples_device_is_refused_for_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the CPU's memory in place of Metal's, which this machine may not have."""
    monkeypatch.setattr(build, "find_device", lambda _: torch.device("mps"))
    monkeypatch.setattr(build, "load_model", lambda *_: None)
    monkeypatch.setattr(
        build, "check_ops", lambda _, *rest: check_ops(CPU, torch.float32, torch.float32, rest[2])
    )
    lacks(monkeypatch, attention=absent)
    with pytest.raises(DeviceUnavailable, match=r"can't compute attention \("):
        LLM("demo", device="mps")


def test_a_type_that_a_device_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Tensor:
        raise TypeError("BFloat16 is not supported on MPS")

    monkeypatch.setattr(torch.Tensor, "to", refuse)
    with pytest.raises(DeviceUnavailable, match=r"compute bfloat16 \(TypeError: BFloat16 is not"):
        check_ops(CPU, torch.bfloat16, torch.bfloat16, DENSE)
