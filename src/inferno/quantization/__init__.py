"""List the weight formats, one file each: pure data, which the command line reads too.

The types of GGUF's blocks, and the format that each is kept in, are in gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from inferno.quantization.floats import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from inferno.quantization.format import (
    Block,
    InputRounding,
    RowRange,
    ScaleType,
    Steps,
    StoredPart,
    WeightFormat,
)
from inferno.quantization.fp8 import E4M3, FP8, FP8_DYNAMIC, SCALES_OF_BLOCKS, SCALES_OF_OUTPUTS
from inferno.quantization.gguf import (
    GGUF_FORMATS,
    KEPT_BLOCKS,
    KeptBlocks,
    error_in_words,
    error_of,
)
from inferno.quantization.int4 import INT4
from inferno.quantization.int8 import INT8
from inferno.quantization.mxfp4 import MXFP4

__all__ = [
    "BFLOAT16",
    "BLOCKS_OF_GGUF",
    "BLOCK_FORMATS",
    "E4M3",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "FORMATS",
    "FP8",
    "FP8_DYNAMIC",
    "INT4",
    "INT8",
    "KEPT_BLOCKS",
    "MXFP4",
    "PACKED_HERE",
    "QUANTIZATIONS",
    "SCALES_OF_BLOCKS",
    "SCALES_OF_OUTPUTS",
    "Block",
    "InputRounding",
    "KeptBlocks",
    "RowRange",
    "ScaleType",
    "Steps",
    "StoredPart",
    "WeightFormat",
    "choose",
    "error_in_words",
    "error_of",
    "is_matrix",
    "keep",
    "kept_blocks",
]

FORMATS: Mapping[str, WeightFormat] = {
    format.name: format
    for format in (
        FLOAT64,
        FLOAT32,
        FLOAT16,
        BFLOAT16,
        INT8,
        INT4,
        FP8,
        FP8_DYNAMIC,
        MXFP4,
        *GGUF_FORMATS,
    )
}

# The formats whose blocks in GGUF files kernels read as they are, by GGUF's names.
BLOCK_FORMATS: Mapping[str, WeightFormat] = {
    format.block.type: format for format in FORMATS.values() if format.block is not None
}

# The quant_method in config.json of folders that `inferno convert` writes: the names of tensors say
# in which blocks each is.
PACKED_HERE = "inferno"
# What stands there where a GGUF file's blocks make most of a model.
BLOCKS_OF_GGUF = "gguf"

# Formats that floats may become when loaded: the values of the option `quantize`, besides none.
QUANTIZATIONS = tuple(name for name, format in FORMATS.items() if format.steps is not None)


def choose(name: str, quantize: str | None) -> str | None:
    """Return the format to which the weight of a module is quantized, by its name; None: none.

    quantize  the option, a name of QUANTIZATIONS or None.
    """
    return None if quantize is None else FORMATS[quantize].choose(name.rpartition(".")[2])


def is_matrix(name: str, num_dims: int) -> bool:
    """Return whether a parameter is an embedding or the weight of products, also of experts."""
    return num_dims > 1 and name.endswith(".weight")


def kept_blocks(type_name: str, *, has_kernels: bool) -> WeightFormat | None:
    """Return the format in which blocks of a GGUF type are kept; None: as floats.

    has_kernels  whether kernels run that compute with GGUF's blocks.
    """
    kept = KEPT_BLOCKS.get(type_name)
    return kept.format if kept and (has_kernels or kept.format.block is None) else None


def keep(
    name: str,
    num_dims: int,
    stored: WeightFormat | None,
    floats: WeightFormat,
    quantize: str | None,
) -> WeightFormat:
    """Return the format in which a parameter, or some of its rows, are kept.

    stored    the format in the checkpoint. Packed rows stay packed; only GGUF's blocks and FP8
              change where another format is asked for. None: floats.
    floats    the format of floats that are not quantized.
    quantize  the option, a name of QUANTIZATIONS or None.
    """
    may_change = stored is not None and stored.may_be_unpacked
    if stored is not None and not stored.is_float and not may_change:
        return stored
    becomes = choose(name.rpartition(".")[0], quantize) if is_matrix(name, num_dims) else None
    if becomes is not None:
        return FORMATS[becomes]
    return stored if stored and may_change else floats
