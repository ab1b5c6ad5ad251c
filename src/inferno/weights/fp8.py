"""Read weights in FP8 from safetensors: elements, and a tensor of scales beside them.

A weight `NAME.weight` [O, I] of E4M3 has its scales in `NAME.weight_scale_inv`, each for a block of
128 by 128 (DeepSeek's recipe, arXiv:2412.19437, which Qwen's checkpoints follow); or in
`NAME.weight_scale`, a scale of each output, of each such block, or one of the whole weight
(compressed-tensors). In all forms a value is an element times its scale.

Shape letters: N rows of interest, I inputs, G groups of 128 inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from inferno.errors import CheckpointError
from inferno.quantization import E4M3, FP8, SCALES_OF_BLOCKS, SCALES_OF_OUTPUTS
from inferno.untrusted_json import quoted
from inferno.weights.tensor_info import BlockScales, TensorInfo

_BLOCK = FP8.group
_SCALE_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def with_scales(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return a file's tensors; E4M3 tensors with scales beside them become weights of values.

    Tensors of E4M3 without scales stay unreadable. Raises CheckpointError where scales don't fit.
    """
    return {
        name: info if (scales := _scales_of(info, tensors)) is None else _scaled(info, scales)
        for name, info in tensors.items()
    }


def _scaled(info: TensorInfo, scales: BlockScales) -> TensorInfo:
    return replace(info, dtype=torch.float32, scales=scales)


def _scales_of(info: TensorInfo, tensors: Mapping[str, TensorInfo]) -> BlockScales | None:
    if info.dtype != E4M3 or len(info.shape) != 2:
        return None
    num_rows, num_inputs = info.shape
    whole = (max(1, num_rows), max(1, num_inputs))
    blocks = (-(-num_rows // _BLOCK), -(-num_inputs // _BLOCK))
    if (found := tensors.get(info.name + SCALES_OF_BLOCKS)) is not None:
        kinds = [(_BLOCK, _BLOCK)]
        expected: list[tuple[int, ...]] = [blocks]
    elif (found := tensors.get(info.name + SCALES_OF_OUTPUTS)) is not None:
        kinds = [(1, whole[1]), whole, whole, (_BLOCK, _BLOCK)]
        expected = [(num_rows, 1), (1,), (), blocks]
    else:
        return None
    if found.shape not in expected or found.dtype not in _SCALE_TYPES:
        shapes = " or ".join(str(list(shape)) for shape in expected)
        raise CheckpointError(
            f"{found.file}: tensor {quoted(found.name)} is {found.dtype} {list(found.shape)}; the "
            f"scales of {list(info.shape)} values in FP8 must be {shapes}, in float32, bfloat16 or "
            "float16"
        )
    block = kinds[expected.index(found.shape)]
    return BlockScales(found, (-(-num_rows // block[0]), -(-num_inputs // block[1])), block)


def scales_of_groups(
    values: Tensor, scales: BlockScales, first: int, num_rows: int, num_inputs: int
) -> Tensor:
    """Return the scale of each 128 inputs of so many rows from `first` on: [N, G] float32.

    values  all scales, as the tensor has them.
    """
    rows_N = torch.arange(first, first + num_rows) // scales.block[0]
    inputs_G = torch.arange(0, num_inputs, FP8.group) // scales.block[1]
    return values.float().view(scales.shape)[rows_N][:, inputs_G]
