"""Define the facts of a weight format; no code switches on a format's name instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

# A wrong choice of experts costs far more than these few bytes.
_NEVER_QUANTIZED = ("router",)


class ScaleType(Enum):
    """The type of the scale that a group of values shares.

    E8M0            a power of two by its exponent: 2^(byte - 127), and byte 255 is NaN.
    FLOAT16_OFFSET  a float16 scale, and a float16 that is added to each scaled value.
    SIX_BIT_OFFSET  six bits each of a scale and of an offset; eight groups share a float16 unit
                    of the one and another of the other.
    HALVES          an int8 for each half of the group; eight groups share a float16 unit.
    """

    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    E8M0 = "e8m0"
    FLOAT16 = "float16"
    FLOAT16_OFFSET = "float16, with an offset"
    SIX_BIT_OFFSET = "six bits, with an offset"
    HALVES = "eight bits for each half"

    @property
    def num_bytes(self) -> float:
        """Return the bytes of a group's scale, with its part of units that several groups share."""
        return _SCALE_BYTES[self]


_SCALE_BYTES = {
    ScaleType.BFLOAT16: 2,
    ScaleType.FLOAT32: 4,
    ScaleType.E8M0: 1,
    ScaleType.FLOAT16: 2,
    ScaleType.FLOAT16_OFFSET: 4,
    ScaleType.SIX_BIT_OFFSET: 2,
    ScaleType.HALVES: 2.25,
}


class InputRounding(Enum):
    """The rounding of a product's inputs in kernels, for a format of weights."""

    NOTHING = "floats"  # to the weight's own type at most
    TO_INT8 = "int8"  # in groups, each by its largest value over 127
    BY_POWERS = "int8, by powers of two"  # likewise, by the next power of two
    TO_FP8 = "fp8"  # in the weight's groups, each by its largest value over the largest element


@dataclass(frozen=True, slots=True)
class Steps:
    """The quality due where floats are quantized, in steps between neighbouring values.

    last        the last step that both signs have: larger values may be cut off.
    cut_off     how many steps off a cut-off value may be, where cutting leaves the smaller total
                error.
    least_peak  the step of a group's largest value: less, and its scale is too large.
    """

    last: int
    cut_off: float
    least_peak: int


@dataclass(frozen=True, slots=True)
class Block:
    """The block of a GGUF file: codes and scales of a number of inputs of an output.

    type  GGUF's name of the type.
    """

    type: str
    num_inputs: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One of the tensors that hold a packed weight in a checkpoint, as uint8 [..., O, G, bytes].

    suffix       what follows the weight's name.
    group_bytes  of each group; where it is one, the tensor has no axis for it. None: a byte of each
                 value, [..., O, I], whose last group may be shorter.
    """

    suffix: str
    group_bytes: int | None

    def shape(self, shape_OI: tuple[int, ...], group: int) -> tuple[int, ...]:
        """Return the tensor's shape for a weight [..., O, I]."""
        if self.group_bytes is None:
            return shape_OI
        *leading, num_inputs = shape_OI
        inner = () if self.group_bytes == 1 else (self.group_bytes,)
        return (*leading, -(-num_inputs // group), *inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A way to keep the values of a weight.

    name          what options, files and reports call it; of floats it is torch's name as well.
    code_bits     bits of a value's code. Codes of 16 and 32 bits are floats, which have no scale.
    panel_inputs  how many inputs of an output lie side by side where kernels read them
                  (native/contract/packings.h); rows are filled up to a multiple, or of a group.
    packing       native/contract/packings.h's number of it; None where no kernel reads it.
    elements      the value of each code, before it is scaled: a zero point is in them.
    group         how many inputs share a scale.
    scale         the type of that scale.
    inputs        what kernels round a product's inputs to.
    wider         the formats that modules of some names have instead, by the last part of the name;
                  None: they are not quantized.
    steps         the quality that is due; None where floats are never made into it.
    parts         the tensors of a checkpoint that hold it, where it comes packed; the first holds
                  codes, two of four bits in a byte, the lower first; the second holds scales. Of
                  scales that more values share in files, each group has its own here.
    block         in which GGUF files hold it.
    """

    name: str
    code_bits: int
    panel_inputs: int
    packing: int | None
    elements: tuple[float, ...] = ()
    group: int = 1
    scale: ScaleType | None = None
    inputs: InputRounding = InputRounding.NOTHING
    wider: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    steps: Steps | None = None
    parts: tuple[StoredPart, ...] = ()
    block: Block | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        """Return whether values are floats as they are, without codes and scales."""
        return not self.elements

    @property
    def is_packed_in_files(self) -> bool:
        """Return whether checkpoints hold it packed."""
        return bool(self.parts or self.block)

    @property
    def has_value_bytes(self) -> bool:
        """Return whether checkpoints hold a byte for each value, in the order of inputs."""
        return bool(self.parts) and self.parts[0].group_bytes is None

    @property
    def may_be_unpacked(self) -> bool:
        """Return whether weights that files hold in it become others where that is asked for.

        They become floats where no kernel reads them.
        """
        return self.block is not None or self.has_value_bytes

    @property
    def bits(self) -> float:
        """Return the bits that a value takes, with its share of the scale."""
        scale_bits = 0 if self.scale is None else 8 * self.scale.num_bytes
        return self.code_bits + scale_bits / self.group

    @property
    def row_unit(self) -> int:
        """Return what the inputs of a row are filled up to a multiple of."""
        return max(self.group, self.panel_inputs, self.block.num_inputs if self.block else 1)

    def stored_shapes(self, shape_OI: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the bytes that hold a weight [..., O, I] in files."""
        if self.block is None:
            return [part.shape(shape_OI, self.group) for part in self.parts]
        *leading, num_inputs = shape_OI
        return [(*leading, num_inputs // self.block.num_inputs, self.block.num_bytes)]

    def takes_exactly(self, other: WeightFormat) -> bool:
        """Say whether this format holds all values of the other, so that bytes may just move.

        If not, the other's values become floats first, and are rounded then.
        """
        return self == other or (self.name, other.name) in _TAKEN_EXACTLY

    def choose(self, module: str) -> str | None:
        """Return what a module's weight is quantized to where this is asked for; None: it is not.

        module  the last part of its name.
        """
        if module in _NEVER_QUANTIZED:
            return None
        return self.wider.get(module, self.name)


_TAKEN_EXACTLY = {
    ("fp8-dynamic", "fp8"),
    *(("float64", "float32"), ("float64", "float16"), ("float64", "bfloat16")),
    *(("float32", "float16"), ("float32", "bfloat16")),
}


@dataclass(frozen=True, slots=True)
class RowRange:
    """A number of rows of a weight, one after the other, and the format that they are in."""

    num_rows: int
    format: WeightFormat
