"""Mistakes planted into quantized weights, or into the kernels that multiply with them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from inferno import ops, quantization
from inferno.ops import SerializedWeight
from inferno.quantization import choose
from tests.verify.faults import Patch, Plant

# Of a quantized weight's codes [P, G, bytes] and bfloat16 scales [P, G, 16]: panels of 16 outputs,
# groups of 32 inputs.
Change = Callable[[Tensor, Tensor], None]

GROUP, PANEL = 32, 16


def changed(weight: Any, change: Change) -> Any:
    """A copy of it with a mistake."""
    stored = weight.serialize()
    codes, scales = (_copied(part) for part in stored.parts)
    num_groups = -(-weight.shape[1] // GROUP)
    scales_PGL = scales.view(torch.bfloat16).view(-1, num_groups, PANEL)
    change(codes.view(len(scales_PGL), num_groups, -1), scales_PGL)
    return ops.deserialize(SerializedWeight(stored.meta, (codes, scales)))


def in_weight(path: str, change: Change) -> Callable[[Any], None]:
    """A change to the weight of the module of that name."""

    def change_weight(model: Any) -> None:
        module = model.get_submodule(path)
        vars(module)["weight"] = changed(module.weight, change)

    return change_weight


def in_kernel(change: Change, *, num_inputs: int | None = None) -> Plant:
    """A matrix product that misreads every weight, or those of so many inputs."""

    def plant(patch: Patch) -> None:
        right = ops.BACKENDS["cpu"]

        def linear(x: Tensor, weight: Any, *rest: Any, **how: Any) -> Tensor:
            if num_inputs in (None, weight.shape[1]):
                weight = changed(weight, change)
            result: Tensor = right.linear(x, weight, *rest, **how)
            return result

        backend = SimpleNamespace(**{**vars(right), "linear": linear})
        patch.setitem(ops.BACKENDS, "cpu", cast(ops.Backend, backend))

    return plant


def coarse_inputs(patch: Patch) -> None:
    """What meets a weight is rounded to steps eight times as large."""
    right = ops.BACKENDS["cpu"]

    def linear(x: Tensor, *rest: Any, **how: Any) -> Tensor:
        step = x.float().abs().amax(-1, keepdim=True) / 16
        result: Tensor = right.linear(((x / step).round() * step).to(x.dtype), *rest, **how)
        return result

    backend = SimpleNamespace(**{**vars(right), "linear": linear})
    patch.setitem(ops.BACKENDS, "cpu", cast(ops.Backend, backend))


def quantized_router(patch: Patch) -> None:
    """A router is taken for any other matrix."""

    def choose_any(name: str, quantize: str | None) -> str | None:
        return choose(name.replace("router", "other"), quantize)

    patch.setattr(quantization, "choose", choose_any)


def narrow_head(patch: Patch) -> None:
    """Nothing is spared."""
    patch.setattr(quantization, "choose", lambda name, quantize: quantize)


def wrong_scale(_: Tensor, scales_PGL: Tensor) -> None:
    """One output's scale of one group is twice what it should be."""
    scales_PGL[0, -1, 3] *= 2


def swapped_nibbles(codes: Tensor, _: Tensor) -> None:
    codes.copy_((codes << 4) | (codes >> 4))


def one_swapped_byte(codes: Tensor, _: Tensor) -> None:
    """The first byte of one output whose halves are far apart."""
    flat = codes.view(-1)
    apart = ((flat & 15).int() - (flat >> 4).int()).abs()
    where = int(apart.argmax())
    flat[where] = (flat[where] << 4) | (flat[where] >> 4)


def dropped_group(codes: Tensor, scales_PGL: Tensor) -> None:
    """The last group of inputs counts as zeros."""
    del codes
    scales_PGL[:, -1] = 0


def swapped_groups(_: Tensor, scales_PGL: Tensor) -> None:
    """Each group has its neighbour's scale."""
    scales_PGL.copy_(scales_PGL.roll(1, dims=1))


def unsigned(codes: Tensor, scales_PGL: Tensor) -> None:
    """Scales are taken to be positive."""
    del codes
    scales_PGL.abs_()


def _copied(part: Tensor) -> Tensor:
    copy = ops.aligned_memory(part.nbytes)
    copy.copy_(part)
    return copy
