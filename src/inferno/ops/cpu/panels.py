"""Weights as the CPU's kernels read them: panels of 16 outputs.

native/contract/packings.h has the layouts.

Shape letters: X experts, O output and I input features, N rows of interest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno import _native
from inferno.ops import reference
from inferno.ops.cpu.huge_pages import weight_memory
from inferno.ops.cpu.native import COMPUTED, is_ours, matrix, rows
from inferno.ops.packed import (
    FILL_ROWS,
    PackedExperts,
    PackedWeight,
    RowRanges,
    SerializedWeight,
    StoredRows,
    deserialize_by,
    scales_of,
)
from inferno.quantization import FORMATS, RowRange, WeightFormat

PANEL = FILL_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class PanelWeight:
    """A weight [O, I] in panels: codes and scales (empty for floats), and the kernels' view.

    dtype  of activations, and of rows taken out of an embedding.
    """

    format: WeightFormat
    shape: torch.Size
    dtype: torch.dtype
    codes: Tensor
    scales: Tensor
    native: _native.Weight

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes that the weight takes."""
        return self.codes.nbytes + self.scales.nbytes

    def fill(self, first: int, rows_NI: Tensor | StoredRows) -> None:
        """Pack rows into the weight from output `first` on.

        `first` and the number of rows are multiples of 16; only the last rows may be fewer.
        """
        if isinstance(rows_NI, StoredRows):
            if self.format.takes_exactly(rows_NI.format):
                self._fill_stored(first, rows_NI)
                return
            rows_NI = rows_NI.unpack(torch.float32)
        can_pack = self.format.is_float or self.format.steps is not None
        assert can_pack, f"no kernel makes {self.format} of floats"
        rows_NI = rows(rows_NI if is_ours(rows_NI) else rows_NI.float())
        _native.pack(matrix(rows_NI), first, self.native)

    def _fill_stored(self, first: int, stored: StoredRows) -> None:
        """Move bytes to where they belong: of whole panels, which are a weight by themselves."""
        num_rows, num_inputs = stored.shape
        stored_parts = [part.contiguous() for part in stored.parts]
        addresses = [part.data_ptr() for part in stored_parts]
        whole = slice(0, first), slice(first, first + num_rows)
        (skipped, skipped_scales), (size, scales_size) = (
            _sizes(self.format, (part.stop - part.start, num_inputs)) for part in whole
        )
        codes = self.codes[skipped : skipped + size]
        scales = self.scales[skipped_scales : skipped_scales + scales_size]
        target = _view(self.format, torch.Size((num_rows, num_inputs)), self.dtype, codes, scales)
        _native.pack_stored(addresses[0], addresses[1] if addresses[1:] else 0, target.native)

    def serialize(self) -> SerializedWeight:
        """Describe the weight for `deserialize`; its memory is shared."""
        meta = {
            "format": self.format.name,
            "shape": list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
        }
        return SerializedWeight(meta, (self.codes, self.scales))

    def unpack(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the values [O, I]; exact for weights that are floats of that dtype or narrower."""
        values_OI = torch.empty(self.shape, dtype=dtype if dtype in COMPUTED else torch.float32)
        ids_O = torch.arange(self.shape[0])
        _native.embedding(ids_O.data_ptr(), self.native, matrix(values_OI))
        return values_OI.to(dtype)

    def steps(self) -> Tensor | None:
        """Return the size of each value's scale [O, I], where floats were quantized."""
        if self.format.steps is None:
            return None
        num_outputs, num_inputs = self.shape
        group = self.format.group
        scales_PGL = scales_of(self.format, self.scales).view(-1, -(-num_inputs // group), PANEL)
        scales_OG = scales_PGL.transpose(1, 2).flatten(0, 1)[:num_outputs].abs()
        return scales_OG.repeat_interleave(group, dim=1)[:, :num_inputs]


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
        """Return the number of bytes that the weights take."""
        return sum(expert.num_bytes for expert in self.experts)

    def __getitem__(self, index: int) -> PanelWeight:
        return self.experts[index]


def empty_panels(format: WeightFormat, shape: Sequence[int], dtype: torch.dtype) -> PanelWeight:
    """Return a weight whose panels are yet to be filled."""
    codes, scales = map(weight_memory, _sizes(format, shape))
    return _view(format, torch.Size(shape), dtype, codes, scales)


def stack(experts: Sequence[PanelWeight]) -> PanelExperts:
    """Return the weights of all experts as one."""
    return PanelExperts(tuple(experts), _native.weights([expert.native for expert in experts]))


def _sizes(format: WeightFormat, shape: Sequence[int]) -> tuple[int, int]:
    """Return the bytes of codes and of scales."""
    num_outputs, num_inputs = shape
    unit = format.row_unit
    num_values = -(-num_outputs // PANEL) * PANEL * (-(-num_inputs // unit) * unit)
    scale_bytes = 0 if format.scale is None else format.scale.num_bytes
    return num_values * format.code_bits // 8, round(num_values // format.group * scale_bytes)


def _view(
    format: WeightFormat, shape: torch.Size, dtype: torch.dtype, codes: Tensor, scales: Tensor
) -> PanelWeight:
    assert format.packing is not None, f"no kernel reads {format}"
    native = _native.weight(format.packing, codes.data_ptr(), scales.data_ptr(), *shape)
    return PanelWeight(format, shape, dtype, codes, scales, native)


def deserialize(serialized: SerializedWeight) -> PackedWeight:
    """Return the weight that was serialized, over the same memory, aligned to 64 bytes.

    Raises ValueError, KeyError or TypeError where the data describe no weight.
    """
    return deserialize_by(_read, serialized)


def _read(serialized: SerializedWeight) -> PanelWeight:
    meta, (codes, scales) = serialized.meta, serialized.parts
    format, shape = FORMATS[str(meta["format"])], torch.Size(meta["shape"])
    dtype = getattr(torch, str(meta["dtype"]))
    if format.packing is None:
        raise ValueError(f"no kernel reads {format}")
    if (len(codes), len(scales)) != _sizes(format, shape) or dtype not in COMPUTED:
        raise ValueError(f"{meta} has other sizes than {len(codes)} and {len(scales)}")
    return _view(format, shape, dtype, codes, scales)


def allocate(
    shape: torch.Size,
    dtype: torch.dtype,
    ranges: Sequence[RowRange],
    *,
    is_invariant: bool = False,
) -> PackedWeight | PackedExperts | None:
    """Return a weight of unfilled panels, or the reference's if no kernel takes the format.

    Products of panels always sum in one order, so is_invariant changes nothing.
    """
    formats = [one.format for one in ranges]
    is_computed = dtype in COMPUTED or len(shape) == 3  # of experts the reference reads panels
    if not is_computed or any(format.packing is None for format in formats):
        return reference.allocate(shape, dtype, ranges)
    if len(shape) == 3:
        [format] = formats
        return stack([empty_panels(format, shape[1:], dtype) for _ in range(shape[0])])
    parts = [empty_panels(one.format, (one.num_rows, shape[1]), dtype) for one in ranges]
    return parts[0] if len(parts) == 1 else RowRanges(tuple(parts))
