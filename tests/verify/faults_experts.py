"""Mistakes of mixtures of experts, in the choice and in the kernel that combines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Kernel = Callable[..., Any]
Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def in_choice(change: Change) -> Callable[[Kernel], Kernel]:
    """What `route` gives, changed: experts by rank, and their weights."""
    return lambda right: lambda *args, **how: change(*right(*args, **how))


def in_combining(change: Change) -> Callable[[Kernel], Kernel]:
    """What `experts` is given, changed."""

    def make(right: Kernel) -> Kernel:
        def experts(x: Tensor, chosen: Tensor, weights: Tensor, *rest: Any, **how: Any) -> Any:
            return right(x, *change(chosen, weights), *rest, **how)

        return experts

    return make


def reversed_weights(chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    return chosen, weights.flip(1)


def equal_weights(chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    return chosen, torch.full_like(weights, 1 / weights.shape[1])


def next_experts(num_experts: int) -> Change:
    return lambda chosen, weights: ((chosen + 1) % num_experts, weights)


def lowest(_: Kernel) -> Kernel:
    """A router that chooses the worst."""

    def route(logits: Tensor, count: int, **_: Any) -> tuple[Tensor, Tensor]:
        ranked = logits.float().sort(-1)
        return ranked.indices[:, :count], ranked.values[:, :count].softmax(-1)

    return route


def without_expert(number: int) -> Callable[[Kernel], Kernel]:
    """One expert whose output is lost."""

    def make(right: Kernel) -> Kernel:
        def experts(x: Tensor, chosen: Tensor, weights: Tensor, *rest: Any, **how: Any) -> Any:
            return right(x, chosen, weights.masked_fill(chosen == number, 0.0), *rest, **how)

        return experts

    return make


def only_in_layer(number: int, num_layers: int, wrong: Kernel) -> Callable[[Kernel], Kernel]:
    """A kernel that is wrong each time that this layer calls it."""

    def make(right: Kernel) -> Kernel:
        num_calls = 0

        def call(*args: Any, **how: Any) -> Any:
            nonlocal num_calls
            layer, num_calls = num_calls % num_layers, num_calls + 1
            return (wrong if layer == number else right)(*args, **how)

        return call

    return make
