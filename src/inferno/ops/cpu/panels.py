"""Weights as the CPU's kernels read them: panels of 16 outputs (native/types.h has the layouts).

Shape letters: X experts, O output and I input features, N rows of interest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from inferno import _native
from inferno.ops.cpu.native import matrix, rows
from inferno.ops.packed import FILL_ROWS, MXFP4Weight, Stored
from inferno.ops.reference.stored import aligned_memory

PANEL = FILL_ROWS
GROUP = 32


class Packing(IntEnum):
    """The ways to store values; the numbers are native/types.h's."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3
    MXFP4 = 4

    @property
    def has_groups(self) -> bool:
        """Return whether groups of 32 inputs share a scale."""
        return self >= Packing.INT8


_FLOATS = {torch.float32: Packing.FLOAT32, torch.bfloat16: Packing.BFLOAT16}
_CODE_BITS = {Packing.FLOAT32: 32, Packing.BFLOAT16: 16, Packing.INT8: 8}  # others: 4
_UNIT = {Packing.FLOAT32: 1, Packing.BFLOAT16: 2}  # inputs are filled up to this; others: GROUP


@dataclass(frozen=True, slots=True, eq=False)
class PanelWeight:
    """A weight [O, I] in panels: codes and scales (empty for floats), and the kernels' view.

    dtype  what is computed with: of activations, and of rows taken out of an embedding.
    """

    packing: Packing
    shape: torch.Size
    dtype: torch.dtype
    codes: Tensor
    scales: Tensor
    native: _native.Weight

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that it takes."""
        return self.codes.nbytes + self.scales.nbytes

    def fill(self, first: int, values_NI: Tensor) -> None:
        """Pack rows from output `first` on, a multiple of 16; so is N, but at the end."""
        values_NI = rows(values_NI)
        _native.pack(matrix(values_NI), first, self.native)

    def stored(self) -> Stored:
        """Describe it for `restore`; its memory is shared."""
        meta = {
            "packing": self.packing.name,
            "shape": list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
        }
        return Stored(meta, (self.codes, self.scales))

    def unpack(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the values [O, I]; exact for weights that are floats of that dtype or narrower."""
        values_OI = torch.empty(self.shape, dtype=dtype if dtype in _FLOATS else torch.float32)
        ids_O = torch.arange(self.shape[0])
        _native.embedding(ids_O.data_ptr(), self.native, matrix(values_OI))
        return values_OI.to(dtype)

    def steps(self) -> Tensor | None:
        """Return the size of each value's scale [O, I], where it was quantized to int8 or int4."""
        if self.packing not in (Packing.INT8, Packing.INT4):
            return None
        num_outputs, num_inputs = self.shape
        scales_PGL = self.scales.view(torch.bfloat16).view(-1, -(-num_inputs // GROUP), PANEL)
        scales_OG = scales_PGL.transpose(1, 2).flatten(0, 1)[:num_outputs].abs().float()
        return scales_OG.repeat_interleave(GROUP, dim=1)[:, :num_inputs]


@dataclass(frozen=True, slots=True, eq=False)
class PanelExperts:
    """The products of a mixture's experts, one PanelWeight each."""

    experts: tuple[PanelWeight, ...]
    native: _native.Weights

    @property
    def shape(self) -> torch.Size:
        """Return the shape [X, O, I]."""
        return torch.Size((len(self.experts), *self.experts[0].shape))

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that they take."""
        return sum(expert.num_bytes for expert in self.experts)

    def __getitem__(self, index: int) -> PanelWeight:
        return self.experts[index]


def empty_panels(packing: Packing, shape: torch.Size, dtype: torch.dtype) -> PanelWeight:
    """Return a weight whose panels are yet to be filled."""
    code_bytes, scale_bytes = _sizes(packing, shape)
    return _view(packing, shape, dtype, aligned_memory(code_bytes), aligned_memory(scale_bytes))


def _sizes(packing: Packing, shape: torch.Size) -> tuple[int, int]:
    """Return the bytes of codes and of scales."""
    num_outputs, num_inputs = shape
    filled = -(-num_outputs // PANEL) * PANEL
    unit = _UNIT.get(packing, GROUP)
    num_values = filled * (-(-num_inputs // unit) * unit)
    scale_bytes = 1 if packing is Packing.MXFP4 else 2
    num_scales = num_values // GROUP if packing.has_groups else 0
    return num_values * _CODE_BITS.get(packing, 4) // 8, num_scales * scale_bytes


def _view(
    packing: Packing, shape: torch.Size, dtype: torch.dtype, codes: Tensor, scales: Tensor
) -> PanelWeight:
    native = _native.weight(packing, codes.data_ptr(), scales.data_ptr(), *shape)
    return PanelWeight(packing, shape, dtype, codes, scales, native)


def restore(stored: Stored) -> PanelWeight:
    """Return the weight that was stored, over the same memory, which must be aligned to 64 bytes.

    Raises ValueError, KeyError or TypeError where it describes none.
    """
    packing, shape = Packing[str(stored.meta["packing"])], torch.Size(stored.meta["shape"])
    dtype = getattr(torch, str(stored.meta["dtype"]))
    codes, scales = stored.parts
    if (len(codes), len(scales)) != _sizes(packing, shape) or dtype not in _FLOATS:
        raise ValueError(f"{stored.meta} has other sizes than {len(codes)} and {len(scales)}")
    return _view(packing, shape, dtype, codes, scales)


def begin(
    shape: torch.Size, dtype: torch.dtype, *, quantize: str | None = None
) -> PanelWeight | None:
    """Return a weight [O, I] yet to be filled in that dtype; None if kernels don't take it."""
    if len(shape) != 2 or dtype not in _FLOATS:
        return None
    return empty_panels(_packing(dtype, quantize), shape, dtype)


def prepare(values: Tensor, *, quantize: str | None = None) -> Tensor | PanelWeight | PanelExperts:
    """Lay a weight out in panels; floats that kernels don't take come back as they are.

    [O, I] becomes a PanelWeight, [X, O, I] PanelExperts. Values stay what they are unless
    `quantize` says int8 or int4.
    """
    if values.dtype not in _FLOATS:
        return values
    packing = _packing(values.dtype, quantize)
    if values.ndim == 3:
        return _stack([_pack(values_OI, packing) for values_OI in values])
    return _pack(values, packing)


def prepare_experts(values: MXFP4Weight) -> PanelExperts:
    """Lay experts out in panels, in MXFP4 as they were."""
    return _stack([_pack_mxfp4(values[x]) for x in range(values.shape[0])])


def _packing(dtype: torch.dtype, quantize: str | None) -> Packing:
    return _FLOATS[dtype] if quantize is None else Packing[quantize.upper()]


def _stack(experts: Sequence[PanelWeight]) -> PanelExperts:
    return PanelExperts(tuple(experts), _native.weights([expert.native for expert in experts]))


def _pack(values_OI: Tensor, packing: Packing) -> PanelWeight:
    weight = empty_panels(packing, values_OI.shape, values_OI.dtype)
    weight.fill(0, values_OI)
    return weight


def _pack_mxfp4(values: MXFP4Weight) -> PanelWeight:
    weight = empty_panels(Packing.MXFP4, values.shape, torch.bfloat16)
    blocks, scales = values.blocks.contiguous(), values.scales.contiguous()
    _native.pack_mxfp4(blocks.data_ptr(), scales.data_ptr(), weight.native)
    return weight
