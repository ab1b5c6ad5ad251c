"""Mixtures of experts by their definition: who is chosen, what each computes, MXFP4 unpacked.

T tokens, X experts, E model width, F inner width of an expert.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.verify.plain_config import PlainConfig
from inferno.verify.plain_maths import linear, swiglu, wide
from inferno.verify.plain_rounding import Product, floating_linear

Weights = Mapping[str, Tensor]  # of one layer, by what follows `model.layers.N.`
Gate = Callable[[Tensor, Tensor], Tensor]
Unpack = Callable[[Tensor, Tensor], Tensor]

ROUTERS = ("mlp.gate", "mlp.router", "block_sparse_moe.gate")
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Expert:
    """An expert's matrices [out, in] and biases; gate and up are apart."""

    gate: Tensor
    up: Tensor
    down: Tensor
    gate_bias: Tensor | None = None
    up_bias: Tensor | None = None
    down_bias: Tensor | None = None


def has_experts(weights: Weights) -> bool:
    return any(f"{router}.weight" in weights for router in ROUTERS)


def router_logits(x_TE: Tensor, weights: Weights) -> Tensor:
    """Return the router's logits [T, X]."""
    name = next(router for router in ROUTERS if f"{router}.weight" in weights)
    return linear(x_TE, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def choose(
    logits_TX: Tensor, num_chosen: int, *, renormalize: bool, among: Tensor | None = None
) -> Tensor:
    """Return each token's weight for its experts, 0 for the others: [T, X].

    Of equal logits the first is chosen.
    among  [T, X] bool: whom to choose from, where somebody else's choice is to be followed.
    """
    logits = wide(logits_TX)
    eligible = logits if among is None else logits.masked_fill(~among, -math.inf)
    chosen = eligible.sort(dim=-1, descending=True, stable=True).indices[:, :num_chosen]
    probabilities = logits.softmax(-1)
    if among is not None:
        probabilities = probabilities.masked_fill(~among, 0.0)
    values = probabilities.gather(1, chosen)
    if renormalize:
        values = values / values.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter(1, chosen, values)


def combine(
    x_TE: Tensor,
    weights_TX: Tensor,
    weights: Weights,
    gate: Gate,
    unpack: Unpack,
    product: Product = floating_linear,
) -> Tensor:
    """Return the weighted sum of each token's experts: [T, E]."""
    total = torch.zeros_like(wide(x_TE))
    for index in weights_TX.any(0).nonzero().flatten().tolist():
        output = run_expert(x_TE, find_expert(weights, index, unpack), gate, product)
        total += wide(output) * weights_TX[:, index, None]
    return total.to(x_TE.dtype)


def run_expert(x_TE: Tensor, expert: Expert, gate: Gate, product: Product) -> Tensor:
    gates = product(x_TE, expert.gate, expert.gate_bias)
    ups = product(x_TE, expert.up, expert.up_bias)
    return product(gate(gates, ups), expert.down, expert.down_bias)


def is_mxfp4(weights: Weights) -> bool:
    """Return whether the experts are stored as MXFP4."""
    return "mlp.experts.down_proj_blocks" in weights


def activation(config: PlainConfig) -> Gate:
    """Return the function that joins gate and up: SwiGLU, or gpt-oss's clamped one."""
    if config.swiglu_limit is None:
        return swiglu
    return clamped_swiglu(config.swiglu_alpha, config.swiglu_limit)


def clamped_swiglu(alpha: float, limit: float, *, plus: float = 1.0) -> Gate:
    """Return (up + 1) * gate * sigmoid(alpha * gate) of clamped values (arXiv:2508.10925)."""

    def gated(gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return (up + plus) * gate * torch.sigmoid(alpha * gate)

    return gated


def find_expert(weights: Weights, index: int, unpack: Unpack) -> Expert:
    """Find an expert's tensors, in each of the layouts that checkpoints have."""
    if "mlp.experts.down_proj_bias" in weights:
        return _stacked_expert(weights, index, unpack)
    if f"mlp.experts.{index}.gate_proj.weight" in weights:
        prefix, names = f"mlp.experts.{index}", ("gate_proj", "up_proj", "down_proj")
    else:
        prefix, names = f"block_sparse_moe.experts.{index}", ("w1", "w3", "w2")
    gate, up, down = (weights[f"{prefix}.{name}.weight"] for name in names)
    return Expert(gate, up, down)


def _stacked_expert(weights: Weights, index: int, unpack: Unpack) -> Expert:
    """Read an expert of gpt-oss, of one tensor: gate and up in turns, floats transposed."""
    matrices = []
    for name in ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"):
        if name in weights:
            matrices.append(weights[name][index].T)
        else:
            blocks, scales = weights[f"{name}_blocks"][index], weights[f"{name}_scales"][index]
            matrices.append(unpack(blocks, scales))
    bias, down_bias = (weights[f"mlp.experts.{n}_proj_bias"][index] for n in ("gate_up", "down"))
    gate_up, down = matrices
    return Expert(gate_up[::2], gate_up[1::2], down, bias[::2], bias[1::2], down_bias)


def unpack_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """Unpack OCP MX v1.0: 4-bit floats, low half first; 32 of them share a power of two."""
    return unpack_nibbles(blocks & 15, blocks >> 4, scales)


def unpack_nibbles(first: Tensor, second: Tensor, scales: Tensor) -> Tensor:
    """Look up pairs of 4-bit codes [O, G, 16] and scale them by [O, G]: [O, 32 G]."""
    table = torch.tensor([*_E2M1, *(-value for value in _E2M1)])
    values = table[torch.stack((first, second), dim=-1).flatten(-2).long()]
    powers = torch.exp2(scales.float() - 127).masked_fill(scales == 255, math.nan)
    return (values * powers[..., None]).flatten(-2)
