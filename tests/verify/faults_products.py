"""Mistakes of one product of one layer: in the weight that is held, or in what a kernel reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from inferno import ops
from inferno.engine import build
from inferno.engine.execution import loading
from inferno.ops import SerializedWeight
from inferno.ops.cpu.panels import PanelExperts, PanelWeight, stack
from tests.verify.faults import Patch

GROUP, PANEL = 32, 16


@dataclass(frozen=True, slots=True)
class Target:
    """A product: the module that holds its weight, which of its rows, and which expert.

    name  what a report must call it.
    """

    name: str
    path: str
    rows: slice
    layer: int | None
    expert: int | None = None
    has_bias: bool = False


@dataclass(frozen=True, slots=True)
class Codes:
    """A weight taken apart: values [O, I] in units of scales [O, G]; floats have no scales."""

    weight: PanelWeight
    codes: Tensor
    scales: Tensor | None
    rows: slice


Change = Callable[[Codes], None]


def one_scale(times: float) -> Change:
    def change(w: Codes) -> None:
        row, group = _middle(w), 0
        if w.scales is not None:
            w.scales[row, group] *= times
        else:
            w.codes[row, :GROUP] *= times

    return change


def all_scales(times: float) -> Change:
    def change(w: Codes) -> None:
        target = w.codes if w.scales is None else w.scales
        target[w.rows] *= times

    return change


def one_row(times: float) -> Change:
    def change(w: Codes) -> None:
        target = w.codes if w.scales is None else w.scales
        target[_middle(w)] *= times

    return change


def swapped_rows(w: Codes) -> None:
    first, second = w.rows.start, w.rows.start + 1
    for part in (w.codes, w.scales):
        if part is not None:
            part[[first, second]] = part[[second, first]].clone()


def swapped_columns(w: Codes) -> None:
    w.codes[w.rows, 1:3] = w.codes[w.rows, 1:3].flip(1)


def swapped_groups(w: Codes) -> None:
    """The first two groups of inputs change places, codes and all."""
    count = min(GROUP, w.codes.shape[1] - GROUP)
    if count <= 0:
        return swapped_columns(w)
    first, second = w.codes[w.rows, :count].clone(), w.codes[w.rows, GROUP : GROUP + count].clone()
    w.codes[w.rows, :count], w.codes[w.rows, GROUP : GROUP + count] = second, first
    if w.scales is not None:
        w.scales[w.rows, :2] = w.scales[w.rows, :2].flip(1)
    return None


def other_groups_scale(w: Codes) -> None:
    """Each group has its neighbour's scale."""
    if w.scales is not None and w.scales.shape[1] > 1:
        w.scales[w.rows] = w.scales[w.rows].roll(1, 1)
    else:
        w.codes[w.rows] = w.codes[w.rows].roll(1, 1)


def swapped_nibbles(w: Codes) -> None:
    """The halves of each byte: inputs 8s + c and 8s + 4 + c."""
    width = w.codes.shape[1] // 8 * 8
    part = w.codes[w.rows, :width].reshape(-1, width // 8, 2, 4).flip(2).flatten(1)
    w.codes[w.rows, :width] = part


def zeroed_panel(w: Codes) -> None:
    stop = min(w.rows.stop, w.rows.start + PANEL)
    w.codes[w.rows.start : stop] = 0


def dropped_group(w: Codes) -> None:
    w.codes[w.rows, -((w.codes.shape[1] - 1) % GROUP + 1) :] = 0


CHANGES: dict[str, Change] = {
    "one scale x2": one_scale(2),
    "one scale x1.25": one_scale(1.25),
    "one scale negated": one_scale(-1),
    "all scales x0.5": all_scales(0.5),
    "all scales x1.25": all_scales(1.25),
    "one row x1.25": one_row(1.25),
    "two rows exchanged": swapped_rows,
    "two columns exchanged": swapped_columns,
    "two groups exchanged": swapped_groups,
    "scales off by one group": other_groups_scale,
    "halves of bytes exchanged": swapped_nibbles,
    "a zeroed panel": zeroed_panel,
    "a dropped group": dropped_group,
}
EXCHANGED, WITHOUT_BIAS = "two experts exchanged", "no bias"


def faults_of(target: Target) -> Iterator[str]:
    yield from CHANGES
    if target.expert is not None:
        yield EXCHANGED
    if target.has_bias:
        yield WITHOUT_BIAS


def _middle(w: Codes) -> int:
    return int(w.rows.start + w.rows.stop) // 2


def changed(weight: Any, target: Target, fault: str) -> Any:
    """A copy of a prepared weight with a mistake."""
    if isinstance(weight, PanelExperts):
        assert target.expert is not None
        experts = list(weight.experts)
        if fault == EXCHANGED:
            other = (target.expert + 1) % len(experts)
            experts[target.expert], experts[other] = experts[other], experts[target.expert]
        else:
            experts[target.expert] = _changed(experts[target.expert], target.rows, fault)
        return stack(experts)
    return _changed(weight, target.rows, fault)


class Harmless(Exception):
    """The mistake changes nothing of this weight: MXFP4 has no scale that is 1.25 times another."""


def _changed(weight: PanelWeight, rows: slice, fault: str) -> PanelWeight:
    apart = _apart(weight, rows)
    CHANGES[fault](apart)
    wrong = _together(apart)
    if torch.equal(wrong.unpack(), weight.unpack()):
        raise Harmless
    return wrong


def _apart(weight: PanelWeight, rows: slice) -> Codes:
    """Codes by native/contract/packings.h's layouts."""
    outputs, inputs = weight.shape
    panels, groups = -(-outputs // PANEL), -(-inputs // GROUP)
    stored = weight.serialize()
    raw, scales = (part.clone() for part in stored.parts)
    match weight.format.name:
        case "int8":
            codes = raw.view(panels, groups, 8, PANEL, 4).permute(0, 3, 1, 2, 4)
            values = codes.reshape(panels * PANEL, -1).float() - 128
        case "int4" | "mxfp4":
            halves = raw.view(panels, groups, 4, PANEL, 4).permute(0, 3, 1, 2, 4)
            both = torch.stack((halves & 15, halves >> 4), dim=-2)
            values = both.reshape(panels * PANEL, -1).float()
            values = values - 8 if weight.format.name == "int4" else _E2M1[values.long()]
        case _:
            return Codes(weight, weight.unpack(torch.float32), None, rows)
    if weight.format.name == "mxfp4":
        factors = torch.exp2(scales.float() - 127)
    else:
        factors = scales.view(torch.bfloat16).float()
    scales_OG = factors.view(panels, groups, PANEL).transpose(1, 2).reshape(panels * PANEL, groups)
    return Codes(weight, values[:, :inputs].contiguous(), scales_OG.contiguous(), rows)


_E2M1 = torch.tensor(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float32
)


def _together(apart: Codes) -> PanelWeight:
    weight = apart.weight
    outputs, inputs = weight.shape
    if apart.scales is None:
        return cast(PanelWeight, ops.pack(apart.codes.to(weight.dtype), weight.format))
    panels, groups = -(-outputs // PANEL), -(-inputs // GROUP)
    codes = torch.nn.functional.pad(apart.codes, (0, groups * GROUP - inputs))
    scales = apart.scales.view(panels, PANEL, groups).transpose(1, 2).contiguous()
    match weight.format.name:
        case "int8":
            raw = (codes + 128).to(torch.uint8).view(panels, PANEL, groups, 8, 4)
            raw, stored = raw.permute(0, 2, 3, 1, 4), scales.bfloat16().view(torch.uint8)
        case name:
            nibbles = codes + 8 if name == "int4" else (codes[..., None] - _E2M1).abs().argmin(-1)
            nibbles = nibbles.to(torch.uint8).view(panels, PANEL, groups, 4, 2, 4)
            raw = (nibbles[..., 0, :] | nibbles[..., 1, :] << 4).permute(0, 2, 3, 1, 4)
            stored = scales.bfloat16().view(torch.uint8)
            if name == "mxfp4":  # scales are powers of two: the nearest that is another
                stored = (scales.log2().round() + 127).to(torch.uint8)
    parts = []
    for part in (raw.contiguous().view(-1), stored.view(-1)):
        memory = ops.aligned_memory(part.numel())
        memory.copy_(part)
        parts.append(memory)
    return cast(
        PanelWeight, ops.deserialize(SerializedWeight(weight.serialize().meta, tuple(parts)))
    )


def targets(model: Any) -> list[Target]:
    """Every product of every layer, and the head and embedding; of experts, one of each layer."""
    found = []
    for number, layer in enumerate(model.model.layers):
        attention, prefix = layer.self_attn, f"model.layers.{number}"
        first = 0
        for name, count in zip("qkv", attention.counts, strict=True):
            rows = slice(first, first + count * attention.head_dim)
            first = rows.stop
            path = f"{prefix}.self_attn.qkv_proj"
            has_bias = name == "q" and attention.qkv_proj.bias is not None  # one of all three
            found.append(Target(f"{name}_proj", path, rows, number, has_bias=has_bias))
        size = attention.o_proj.weight.shape[0]
        has_bias = attention.o_proj.bias is not None
        found.append(
            Target(
                "o_proj", f"{prefix}.self_attn.o_proj", slice(0, size), number, has_bias=has_bias
            )
        )
        found += _of_mlp(layer.mlp, f"{prefix}.mlp", number)
    vocab = model.model.embed_tokens.weight.shape[0]
    found.append(Target("embed_tokens", "model.embed_tokens", slice(0, vocab), None))
    if model.lm_head is not None:
        found.append(Target("lm_head", "lm_head", slice(0, vocab), None))
    return found


def _of_mlp(mlp: Any, path: str, layer: int) -> Iterator[Target]:
    expert = None
    if hasattr(mlp, "experts"):
        has_bias = mlp.router.bias is not None
        rows = slice(0, mlp.router.weight.shape[0])
        yield Target("router", f"{path}.router", rows, layer, has_bias=has_bias)
        mlp, path, expert = mlp.experts, f"{path}.experts", layer
    half, size = mlp.gate_up_proj.weight.shape[-2] // 2, mlp.down_proj.weight.shape[-2]
    has_bias = mlp.gate_up_proj.bias is not None
    names = ("gate_proj", "up_proj") if expert is None else ("gate_up_proj", "gate_up_proj")
    for name, rows in zip(names, (slice(0, half), slice(half, 2 * half)), strict=True):
        is_first = rows.start == 0  # one bias for both
        yield Target(name, f"{path}.gate_up_proj", rows, layer, expert, has_bias and is_first)
    yield Target("down_proj", f"{path}.down_proj", slice(0, size), layer, expert, has_bias)


def plant(patch: Patch, target: Target, fault: str, *, in_kernel: bool) -> None:
    """In memory once the model is loaded; or in a kernel each time that it meets the weight."""
    load, right = loading.load_model, ops.BACKENDS["cpu"]
    found: dict[int, Any] = {}

    def misread(op: str) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            args = tuple(found.get(id(each), each) for each in args)
            how = {name: found.get(id(each), each) for name, each in how.items()}
            return getattr(right, op)(*args, **how)

        return call

    def load_and_change(*arguments: Any) -> Any:
        model = load(*arguments)
        module: Any = model.get_submodule(target.path)
        weight = module.weight
        if fault == WITHOUT_BIAS:
            if in_kernel:
                found[id(module.bias)] = None
            else:
                module.bias = None
            return model
        wrong = changed(weight, target, fault)
        if in_kernel:
            found[id(weight)] = wrong
        else:
            vars(module)["weight"] = wrong
        return model

    patch.setattr(build, "load_model", load_and_change)
    if in_kernel:
        ops_of = {op: misread(op) for op in ("embedding", "linear", "gated_linear", "experts")}
        backend = SimpleNamespace(**{**vars(right), **ops_of})
        patch.setitem(ops.BACKENDS, "cpu", cast(ops.Backend, backend))
