"""Fault points: what INFERNO_FAULTS says happens, and only that."""

from __future__ import annotations

import pytest

from inferno.engine.process.fault_injection import Fault, Faults
from inferno.errors import InvalidRequest


def test_a_fault_happens_at_its_turn_once() -> None:
    faults = Faults("step:fail@2; ipc.send:drop@1")
    assert faults.visit("ipc.send")
    assert not faults.visit("ipc.send")
    faults.visit("step")
    with pytest.raises(Fault, match="step"):
        faults.visit("step")
    assert not faults.visit("step")


def test_only_a_fault_without_a_turn_comes_back_after_a_restart() -> None:
    faults = Faults("step:fail@1;load:fail", num_starts=1)
    assert not faults.visit("step")
    with pytest.raises(Fault):
        faults.visit("load")


@pytest.mark.parametrize("text", ["step", "step:hang@0", "step:drop", "kernel:fail", "step:hang@x"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="INFERNO_FAULTS"):
        Faults(text)
