"""The steps of a decoder layer by their definitions; they share no code with ops or layers.

First attention and the dense feed-forward network, then what kernels may round, then mixtures of
experts. T tokens, X experts, E model width, F inner width of an expert.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.verify.oracles.plain_config import PlainConfig

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Gate = Callable[[Tensor, Tensor], Tensor]
Unpack = Callable[[Tensor, Tensor], Tensor]
Weights = Mapping[str, Tensor]  # of one layer, by what follows `model.layers.N.`

# Half a step of a group's largest value.
INT8_UNIT = 1 / 254
_FP8_UNIT = 16 / 448
_GROUP = 32
_FP8_GROUP = 128
ROUTERS = ("mlp.gate", "mlp.router", "block_sparse_moe.gate")
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def wide(x: Tensor) -> Tensor:
    """Return a tensor in float32 at least, in which sums and roots are made."""
    return x if x.dtype is torch.float64 else x.float()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    mean_square = wide(x).square().mean(dim=-1, keepdim=True)
    return weight * (wide(x) / (mean_square + eps).sqrt()).to(x.dtype)


def rotate(x_THD: Tensor, cos_sin_TD: Tensor) -> Tensor:
    """Turn each pair (i, i + D/2) by its position's angle."""
    half = x_THD.shape[-1] // 2
    cos, sin = (part[:, None, :].to(x_THD.dtype) for part in cos_sin_TD.chunk(2, dim=-1))
    a, b = x_THD[..., :half], x_THD[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def can_see(num_tokens: int, window: int | None) -> Tensor:
    """Return whether the query of a row sees the key of a column: [T, T]."""
    back = torch.arange(num_tokens)[:, None] - torch.arange(num_tokens)
    return (back >= 0) & (back < (window or num_tokens))


def attention_scores(
    q_THD: Tensor, k_TKD: Tensor, *, scale: float, is_visible: Tensor | None
) -> Tensor:
    """Return scale * q k, -inf where nothing is to be seen: [H, T, L]."""
    group = q_THD.shape[1] // k_TKD.shape[1]
    k_LHD = k_TKD.repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,lhd->htl", q_THD, k_LHD) * scale
    return scores if is_visible is None else scores.masked_fill(~is_visible, -math.inf)


def mix(scores_HTL: Tensor, v_LKD: Tensor, sinks_H: Tensor | None = None) -> Tensor:
    """Return softmax(scores) v: [T, H*D]. A sink is one more score per head, with no value."""
    scores = wide(scores_HTL)
    if sinks_H is not None:
        sink = wide(sinks_H)[:, None, None].expand(-1, scores.shape[1], 1)
        scores = torch.cat((scores, sink), dim=-1)
    weights = scores.softmax(dim=-1)[..., : v_LKD.shape[0]].to(v_LKD.dtype)
    v_LHD = v_LKD.repeat_interleave(len(scores) // v_LKD.shape[1], dim=1)
    return torch.einsum("htl,lhd->thd", weights, v_LHD).flatten(1)


def swiglu(gate_TF: Tensor, up_TF: Tensor) -> Tensor:
    return gate_TF * torch.sigmoid(gate_TF) * up_TF


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product = x @ weight.T
    return product if bias is None else product + bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """The roundings of a product's inputs and of cached keys and values.

    mxfp4     what meets MXFP4 weights is rounded to int8.
    matrices  so is what meets all others, but a router's.
    powers    by scales that are powers of two, as beside int4: not what meets the head, or MXFP4.
    fp8       what meets matrices is rounded to FP8 instead, but a router's, the head's, experts'.
    group     how many values share a scale.
    inputs    the floats to which what meets matrices is rounded instead; None: it is not.
    kv        what keys and values are kept in; None: as they come.
    """

    mxfp4: bool = False
    matrices: bool = False
    powers: bool = False
    fp8: bool = False
    group: int = _GROUP
    inputs: torch.dtype | None = None
    kv: torch.dtype | None = None

    @property
    def is_of_matrices(self) -> bool:
        """Return whether what meets most matrices is rounded to 8 bits."""
        return self.matrices or self.fp8

    @property
    def unit(self) -> float:
        """Return the largest error of a rounded value, relative to its group's largest value."""
        if self.fp8:
            return _FP8_UNIT
        if not self.matrices:
            return 0.0
        return 2 * INT8_UNIT if self.powers else INT8_UNIT

    def product(
        self, *, is_mxfp4: bool = False, is_head: bool = False, is_expert: bool = False
    ) -> Product:
        """Return the function that multiplies with a matrix of that kind, with its rounding."""
        if self.fp8 and not (is_mxfp4 or is_head or is_expert):
            return fp8_linear
        if not (self.mxfp4 if is_mxfp4 else self.matrices):
            return floating_linear if self.inputs is None else partial(coarse_linear, self.inputs)
        powers = self.powers and not (is_mxfp4 or is_head)
        return partial(packed_linear, powers=powers, group=self.group)

    def cached(self, x: Tensor) -> Tensor:
        """Return keys or values as attention reads them from the cache."""
        return x if self.kv is None else x.to(self.kv).to(x.dtype)


EXACT = Rounding()


def floating_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply in the dtype of the input."""
    return linear(x, weight.to(x.dtype), bias)


def coarse_linear(
    inputs: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Multiply what was rounded to other floats, in the dtype of the input."""
    return floating_linear(x.to(inputs).to(x.dtype), weight, bias)


def packed_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    powers: bool = False,
    group: int = _GROUP,
) -> Tensor:
    """Multiply small whole numbers, which is exact, times scales: rounded when all is done."""
    rounded = in_int8(x, powers=powers, group=group)
    return linear(rounded, wide(weight), None if bias is None else wide(bias)).to(x.dtype)


def fp8_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply values of eight bits: rounded when all is done."""
    rounded = in_fp8(x)
    return floating_linear(rounded, weight, None if bias is None else bias.float()).to(x.dtype)


def in_fp8(x: Tensor) -> Tensor:
    """Round groups of values to FP8 (E4M3), whose largest value is 448, with a scale."""
    width = x.shape[-1]
    filled = F.pad(x.float(), (0, -width % _FP8_GROUP))
    groups = filled.view(*filled.shape[:-1], -1, _FP8_GROUP)
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    rounded: Tensor = ((groups / scales).to(torch.float8_e4m3fn).float() * scales).flatten(-2)
    return rounded[..., :width]


def in_int8(x: Tensor, *, powers: bool = False, group: int = _GROUP) -> Tensor:
    """Return values rounded, in groups, to whole numbers of int8 times a scale, as floats.

    Packed weights are multiplied with such inputs. With `powers` scales are rounded up to powers of
    two.
    """
    width = x.shape[-1]
    filled = F.pad(wide(x), (0, -width % group))
    groups = filled.view(*filled.shape[:-1], -1, group)
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    if powers:
        scales = scales.log2().ceil().exp2()
    rounded: Tensor = ((groups / scales).round() * scales).flatten(-2)
    return rounded[..., :width]


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
    return Expert(gate, up, down, *(weights.get(f"{prefix}.{name}.bias") for name in names))


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
