"""Describe the kernels that are shipped, with the tiles, types and warps of their launches.

A module of kernels lists its own in a function `variants(chip)`, which chooses as its launches do;
`shipped` joins the lists. So all can be compiled without a GPU, in tests and by `make gpu-static`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from inferno.ops.cuda.chips import Chip

# The types of activations that kernels take, and Triton's words for them.
TYPE_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one program of a kernel: bytes that it moves, and operations on tensor cores."""

    num_bytes: float
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel in one of the configurations that are launched.

    name            of kernel and configuration, unique among all.
    kernel          the function that `triton.jit` made.
    signature       the type of each argument that is no constant, in Triton's words: "*bf16",
                    "i32", "fp32"; with ":16" behind it what is a multiple of 16.
    constants       the values of the constant arguments.
    chip            the chip that the kernel is compiled for.
    work            of one program, for estimates.
    uses_tensor_cores   whether the kernel multiplies matrices; tile_rows: the rows of its tile
                        then.
    is_bound_by_memory  whether the kernel must load 128 bits at a time.
    is_in_check     whether the ordinary check compiles it: one configuration of a kernel.
    has_fused_multiply_add  whether a product and a sum may be rounded once; not where the bits of a
                    formula are required.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    chip: Chip
    num_warps: int
    num_stages: int
    work: Work
    uses_tensor_cores: bool = False
    tile_rows: int = 0
    is_bound_by_memory: bool = False
    is_in_check: bool = False
    has_fused_multiply_add: bool = True
