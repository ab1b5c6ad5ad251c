"""Choose what options leave to the engine: dtypes, and the number of blocks of the KV cache.

The engine follows these rules when it is built, and `inferno plan` beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.config.families import QUANTIZATION_KEYS
from inferno.config.fp8 import READERS as FP8_READERS
from inferno.errors import ConfigError, NotEnoughMemory
from inferno.options import DTYPES

MEMORY_SHARE = 0.5  # of what is free after the weights; the rest is for others
_ASSUMED_FREE_BYTES = 8 * 2**30  # where nobody can tell
SMALL_STEP = 64  # a step of up to so many tokens has tensors of fixed places
GIB = 2**30
_MOST_BLOCKS = 2**18  # a config that claims a context of billions must not fill the free list


def choose_dtype(
    asked: str, hf_config: Mapping[str, Any], *, is_cpu: bool, computes_bfloat16: bool
) -> str:
    """Return the dtype to compute in; `auto` is the checkpoint's, if the device computes in it.

    computes_bfloat16  whether the CPU is as fast in bfloat16 as in float32.
    """
    if asked != "auto":
        return asked
    found = [hf_config[key] for key in ("dtype", "torch_dtype") if hf_config.get(key) is not None]
    # gpt-oss names no dtype: what MXFP4 leaves in floats is bfloat16.
    unnamed = "bfloat16" if hf_config.get("quantization_config") else "float32"
    declared = found[0] if found else unnamed
    if not isinstance(declared, str) or declared not in DTYPES[1:]:
        raise ConfigError(
            f"config.json: dtype must be one of {', '.join(DTYPES[1:])}, not "
            f"{str(declared)[:64]!r}; choose one with --dtype"
        )
    if is_cpu and not (declared == "bfloat16" and computes_bfloat16):
        return "float32"  # PyTorch emulates 16-bit products here, several times slower
    return declared


def asked_dtype(dtype: str, quantize: str, *, is_cpu: bool) -> str:
    """Return the dtype that the options dtype and quantize ask for together, or `auto`."""
    # The CPU quantizes activations anew for every product, so they had better be exact before.
    return "float32" if is_cpu and quantize != "none" and dtype == "auto" else dtype


def is_quantized(quantize: str, dtype: str, hf_config: Mapping[str, Any], *, is_cpu: bool) -> bool:
    """Return whether the options `quantize` and `dtype` leave weights as codes, and nothing exact.

    The checkpoint's own codes don't count where a dtype is asked for, nor those in FP8 on a CPU,
    where they become floats.
    """
    sections = filter(None, (hf_config.get(key) for key in QUANTIZATION_KEYS))
    is_stored = any(not (is_cpu and _is_in_fp8(section)) for section in sections)
    return quantize != "none" or (is_stored and dtype == "auto")


def _is_in_fp8(section: object) -> bool:
    method = section.get("quant_method") if isinstance(section, Mapping) else None
    return isinstance(method, str) and method in FP8_READERS


def choose_kv_dtype(asked: str, dtype: str, *, is_quantized: bool, has_bfloat16: bool) -> str:
    """Return the type of keys and values; `auto` is the computation's, or 16 bits if quantized.

    Types have PyTorch's names, so what options call fp8 is float8_e4m3fn.
    """
    if asked == "fp8":
        return "float8_e4m3fn"
    if asked != "auto":
        return asked
    # Kernels of GPUs read 16 bits only of the type that they compute in.
    if not is_quantized or dtype == "float16":
        return dtype
    return "bfloat16" if has_bfloat16 else "float16"


def choose_num_blocks(
    block_bytes: int,
    free_bytes: int | None,
    *,
    block_size: int,
    num_groups: int,
    most_tokens: int,
    share: float = MEMORY_SHARE,
) -> int:
    """Return how many blocks to make: enough for `most_tokens`, within half of free memory.

    num_groups  of layers, each of which needs blocks of its own.
    share       of the free memory that the blocks may take; all of it where the user set a bound.

    Raises NotEnoughMemory where not even one block fits.
    """
    wanted = -(-most_tokens // block_size) * num_groups
    if free_bytes is None:
        free_bytes = _ASSUMED_FREE_BYTES
    affordable = int(free_bytes * share) // block_bytes
    if affordable < 1:
        raise NotEnoughMemory(
            f"a KV cache block takes {block_bytes} bytes, and {free_bytes} are free; "
            f"close other programs or choose a smaller model"
        )
    return min(wanted, affordable, _MOST_BLOCKS)


def choose_num_host_blocks(
    preemption: str,
    swap_space: float,
    block_bytes: int,
    *,
    is_cuda: bool,
    free_bytes: int | None = None,
) -> int:
    """Return how many blocks of preempted sequences host memory is to keep.

    swap_space  GiB.
    free_bytes  of host memory, unless the blocks are counted elsewhere.
    """
    if preemption == "recompute" or (preemption == "auto" and not is_cuda):
        return 0
    room = int(swap_space * GIB)
    if free_bytes is not None:
        most = int(free_bytes * MEMORY_SHARE)
        room = min(room, most)
        if is_cuda:  # PyTorch pins the next power of two of bytes, which is to be in the share too
            room = min(room, 1 << max(0, most.bit_length() - 1))
    return min(room // block_bytes, _MOST_BLOCKS)
