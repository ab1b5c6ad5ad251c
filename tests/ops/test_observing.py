"""An observer is told of the ops that it wants, as they were, and only while it observes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from inferno import ops
from inferno.ops import reference

ROWS = torch.tensor([[3.0, 1.0, 2.0]])


class Notes:
    """An observer that writes down what it wants: every op, or the given ones."""

    def __init__(self, *wanted: str) -> None:
        self.wanted = wanted or ops.FORWARD_OPS
        self.calls: list[tuple[str, dict[str, Any], Any]] = []

    def wants(self, op: str) -> bool:
        return op in self.wanted

    def see(self, op: str, arguments: dict[str, Any], result: Any) -> None:
        self.calls.append((op, arguments, result))

    @property
    def ops(self) -> list[str]:
        return [op for op, _, _ in self.calls]


def test_arguments_go_by_the_contracts_names() -> None:
    notes = Notes()
    with ops.observing(notes):
        experts, weights = ops.route(ROWS, 2, renormalize=True)
    [(op, arguments, result)] = notes.calls
    assert op == "route"
    assert list(arguments) == ["logits_TX", "num_chosen", "renormalize"]
    assert torch.equal(arguments["logits_TX"], ROWS)
    assert torch.equal(result[0], experts)
    assert torch.equal(result[1], weights)


def test_what_is_told_does_not_change_when_memory_is_written_again() -> None:
    notes, x = Notes(), ROWS.clone()
    with ops.observing(notes):
        result = ops.rms_norm(x, torch.ones(3), 1e-6, out=x)
        expected = reference.rms_norm(ROWS, torch.ones(3), 1e-6)
        result.zero_()
    assert torch.equal(notes.calls[0][1]["x_TE"], ROWS)
    torch.testing.assert_close(notes.calls[0][2], expected)


def test_weights_are_told_of_as_they_are() -> None:
    notes, weight = Notes(), torch.nn.Parameter(torch.ones(4, 3), requires_grad=False)
    with ops.observing(notes):
        ops.linear(ROWS, weight)
    assert notes.calls[0][1]["weight_OI"] is weight


def test_only_what_is_wanted_is_told() -> None:
    notes = Notes("linear")
    with ops.observing(notes):
        ops.rms_norm(ROWS, torch.ones(3), 1e-6)
        ops.linear(ROWS, torch.ones(4, 3))
        ops.argmax(ROWS)
    assert notes.ops == ["linear"]


def test_two_observers_are_told_alike() -> None:
    outer, inner = Notes(), Notes()
    with ops.observing(outer):
        with ops.observing(inner):
            ops.linear(ROWS, torch.ones(4, 3))
        ops.gated_linear(ROWS, torch.ones(4, 3))
    assert outer.ops == ["linear", "gated_linear"]
    assert inner.ops == ["linear"]


def test_backends_are_themselves_again_even_after_an_error() -> None:
    before = dict(ops.BACKENDS)
    with pytest.raises(IndexError), ops.observing(Notes()):
        ops.embedding(torch.tensor([9]), torch.ones(2, 2))
    assert before == ops.BACKENDS
