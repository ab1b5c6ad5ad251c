"""The table of GGUF's tensor types: how many values a block holds, and in how many bytes.

Source: `ggml_type` and the block structures of ggml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inferno.errors import WeightsMismatch
from inferno.quantization import KEPT_BLOCKS
from inferno.untrusted_json import quoted


@dataclass(frozen=True, slots=True)
class TensorType:
    """A type by its number in files; a row is a whole number of blocks, one after the other."""

    name: str
    number: int
    block_values: int
    block_bytes: int

    def num_bytes(self, num_values: int) -> int:
        """Return the bytes of so many values, a multiple of a block's."""
        return num_values // self.block_values * self.block_bytes


_TYPES = (
    TensorType("F32", 0, 1, 4),
    TensorType("F16", 1, 1, 2),
    TensorType("Q4_0", 2, 32, 18),
    TensorType("Q4_1", 3, 32, 20),
    TensorType("Q5_0", 6, 32, 22),
    TensorType("Q5_1", 7, 32, 24),
    TensorType("Q8_0", 8, 32, 34),
    TensorType("Q8_1", 9, 32, 36),
    TensorType("Q2_K", 10, 256, 84),
    TensorType("Q3_K", 11, 256, 110),
    TensorType("Q4_K", 12, 256, 144),
    TensorType("Q5_K", 13, 256, 176),
    TensorType("Q6_K", 14, 256, 210),
    TensorType("Q8_K", 15, 256, 292),
    TensorType("IQ2_XXS", 16, 256, 66),
    TensorType("IQ2_XS", 17, 256, 74),
    TensorType("IQ3_XXS", 18, 256, 98),
    TensorType("IQ1_S", 19, 256, 50),
    TensorType("IQ4_NL", 20, 32, 18),
    TensorType("IQ3_S", 21, 256, 110),
    TensorType("IQ2_S", 22, 256, 82),
    TensorType("IQ4_XS", 23, 256, 136),
    TensorType("I8", 24, 1, 1),
    TensorType("I16", 25, 1, 2),
    TensorType("I32", 26, 1, 4),
    TensorType("I64", 27, 1, 8),
    TensorType("F64", 28, 1, 8),
    TensorType("IQ1_M", 29, 256, 56),
    TensorType("BF16", 30, 1, 2),
    TensorType("TQ1_0", 34, 256, 54),
    TensorType("TQ2_0", 35, 256, 66),
    TensorType("MXFP4", 39, 32, 17),
    TensorType("NVFP4", 40, 64, 36),
    TensorType("Q1_0", 41, 128, 18),
)

BY_NUMBER: Mapping[int, TensorType] = {each.number: each for each in _TYPES}
BY_NAME: Mapping[str, TensorType] = {each.name: each for each in _TYPES}

# Types whose values lie one after the other, as floats.
FLOAT_TYPES = ("F64", "F32", "F16", "BF16")


def is_read(type_name: str, num_axes: int) -> bool:
    """Return whether a tensor can be a weight: in floats, or in blocks, which are of rows."""
    return type_name in FLOAT_TYPES or (num_axes > 1 and type_name in KEPT_BLOCKS)


def unread_types(place: object, types: Mapping[str, str]) -> WeightsMismatch:
    """Return the error of weights that can't be read.

    place  the file's name.
    types  the type of each such weight, by the weight's name.
    """
    names = ", ".join(sorted(set(types.values())))
    first = next(iter(types))
    return WeightsMismatch(
        f"{place}: has {len(types)} tensors in {names}, such as {quoted(first)}, and inferno "
        "doesn't read that; take another file of the model, such as the one of Q4_K_M or Q8_0. It "
        f"reads matrices in {', '.join((*FLOAT_TYPES, *KEPT_BLOCKS))}, and vectors in floats"
    )


def packed_name(name: str, type: TensorType) -> str:
    """Return what a folder of ours calls the tensor of a weight's blocks: up_proj.weight.q4_k.

    It is uint8 [..., rows, blocks of a row, bytes of a block].
    """
    return f"{name}.{type.name.lower()}"


def read_packed_name(name: str) -> tuple[str, TensorType] | None:
    """Return the weight and the type in a name of `packed_name`; None for other names."""
    weight, _, type_name = name.rpartition(".")
    type = _PACKED_TYPES.get(type_name)
    return (weight, type) if type is not None and weight.endswith(".weight") else None


_PACKED_TYPES = {name.lower(): BY_NAME[name] for name in KEPT_BLOCKS}
