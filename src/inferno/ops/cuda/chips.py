"""The chips that kernels are made for: what bounds a tile, and what bounds its speed.

Each kernel's own file chooses its tiles by these facts. Figures are those of NVIDIA's architecture
papers and data sheets (dense, without sparsity).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton

# For SM100 Triton 3.6 makes an empty kernel of most tall tiles of packed weights, and says nothing;
# 3.9 doesn't, and those between were not tried.
_IS_OLD_TRITON = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)


@dataclass(frozen=True, slots=True)
class Chip:
    """A kind of GPU.

    capability          10 * major + minor of its compute capability.
    num_multiprocessors of the whole chip.
    shared_bytes        that one block of threads may have.
    registers           of 32 bits, of a multiprocessor.
    max_warps           of a multiprocessor.
    bandwidth           bytes a second of its memory.
    bf16_flops          operations a second of its tensor cores in bfloat16.
    """

    name: str
    capability: int
    num_multiprocessors: int
    shared_bytes: int
    registers: int
    max_warps: int
    bandwidth: float
    bf16_flops: float

    @property
    def has_fp8(self) -> bool:
        """Return whether the tensor cores multiply 8-bit floats."""
        return self.capability >= 89

    @property
    def has_warpgroups(self) -> bool:
        """Return whether the tensor cores take tiles of 64 rows from shared memory.

        Tensor cores of consumers' Blackwell, SM120, have Ada's instructions instead.
        """
        return 90 <= self.capability < 120

    @property
    def has_tensor_memory(self) -> bool:
        """Return whether the tensor cores leave sums in a memory of their own."""
        return 100 <= self.capability < 120

    @property
    def has_tall_packed_tiles(self) -> bool:
        """Return whether this Triton compiles tall tiles of packed weights for the chip."""
        return not (self.has_tensor_memory and _IS_OLD_TRITON)


CHIPS: tuple[Chip, ...] = (
    Chip("A100", 80, 108, 163 << 10, 65536, 64, 2.04e12, 312e12),
    Chip("RTX 3090", 86, 82, 99 << 10, 65536, 48, 0.936e12, 142e12),
    Chip("L40S", 89, 142, 99 << 10, 65536, 48, 0.864e12, 362e12),
    Chip("H100", 90, 132, 227 << 10, 65536, 64, 3.35e12, 989e12),
    Chip("B200", 100, 148, 227 << 10, 65536, 64, 8.0e12, 2250e12),
    Chip("RTX 5090", 120, 170, 99 << 10, 65536, 48, 1.79e12, 209e12),
)
# What the interpreter stands for; its tensors are on the CPU.
INTERPRETED = next(chip for chip in CHIPS if chip.capability == 90)


@cache
def chip_of(device: torch.device) -> Chip:
    """Return a device's kind of chip: the newest known one that isn't newer than the device."""
    if device.type != "cuda":
        return INTERPRETED
    major, minor = torch.cuda.get_device_capability(device)
    found = [chip for chip in CHIPS if chip.capability <= 10 * major + minor]
    assert found, "find_device refuses chips below SM80"
    return found[-1]
