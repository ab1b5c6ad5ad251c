"""Define TensorInfo: where a tensor lies in a checkpoint's files, and in which form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from inferno.gguf.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class RowCoding:
    """The way in which GGUF holds the rows of a tensor whose values can't be read as they lie.

    type       the type of its blocks.
    head_rows  rows of a head, where they lie as rotary pairs: 0, D/2, 1, D/2 + 1; else 1.
    """

    type: TensorType
    head_rows: int = 1


@dataclass(frozen=True, slots=True)
class BlockScales:
    """The scales of a weight in FP8, one for each block of rows by inputs.

    info    of the tensor that holds them, in the order of blocks.
    shape   blocks along rows, and along inputs.
    block   rows and inputs of a block; the last ones may have fewer.
    """

    info: TensorInfo
    shape: tuple[int, int]
    block: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The place of one tensor: bytes `start` to `stop` of `file`, row-major, little-endian.

    dtype   the format's own name (such as "F8_E4M3") where inferno can't read the type; of rows
            that are coded or scaled, the type of their values.
    coding  the coding of rows; None: rows are values, one after the other.
    scales  the scales of values, which are FP8's elements then; else None.
    """

    name: str
    dtype: torch.dtype | str
    shape: tuple[int, ...]
    file: Path
    start: int
    stop: int
    coding: RowCoding | None = None
    scales: BlockScales | None = None

    @property
    def num_bytes(self) -> int:
        """Return the bytes that the tensor has in its file, with its scales."""
        own = self.stop - self.start
        return own if self.scales is None else own + self.scales.info.num_bytes

    @property
    def is_coded(self) -> bool:
        """Return whether the tensor's bytes are not its values."""
        return self.coding is not None or self.scales is not None
