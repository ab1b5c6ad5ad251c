"""Device and dtype: names become torch's objects, or a clear refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from inferno import machine, ops
from inferno.errors import ConfigError, DeviceUnavailable, InvalidRequest
from inferno.options import DTYPES, EngineOptions

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}
# Linux's names for bfloat16 dot products: AVX-512, AMX, and Arm's extension.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def find_device(name: str) -> torch.device:
    """The device of that name; DeviceUnavailable says what to do where it isn't there."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        built = "no CUDA device is visible" if torch.version.cuda else "this PyTorch has no CUDA"
        raise DeviceUnavailable(f"{name} was asked for, but {built}. Use --device cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceUnavailable(
            f"{name} was asked for, but there are {torch.cuda.device_count()} CUDA devices, "
            f"numbered from 0."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceUnavailable(
            "mps was asked for, but Apple's Metal is not here. Use --device cpu."
        )
    return device


def choose_kv_dtype(
    options: EngineOptions, dtype: torch.dtype, device: torch.device
) -> torch.dtype:
    """Return the type of keys and values; `auto` is the computation's, or 16 bits if quantized."""
    name = options.kv_dtype
    if name == "auto" and options.quantize == "none":
        return dtype
    if name == "auto":
        return torch.bfloat16 if _cpu_has_bfloat16() else torch.float16
    if name == "int8" and not (ops.can_quantize(device) and options.attention == "auto"):
        raise InvalidRequest(
            "kv_dtype=int8 needs inferno's compiled kernels, which do not run here or are left out "
            f"by --attention {options.attention}; use --kv-dtype bfloat16, or see `inferno doctor`",
            param="kv_dtype",
        )
    return _DTYPES[name]


def choose_dtype(name: str, hf_config: Mapping[str, Any], device: torch.device) -> torch.dtype:
    """The dtype of that name; `auto` is the checkpoint's where the device computes in it."""
    if name != "auto":
        return _DTYPES[name]
    found = [hf_config[key] for key in ("dtype", "torch_dtype") if hf_config.get(key) is not None]
    # gpt-oss names no dtype: what MXFP4 leaves in floats is bfloat16.
    unnamed = "bfloat16" if hf_config.get("quantization_config") else "float32"
    declared = found[0] if found else unnamed
    if not isinstance(declared, str) or declared not in DTYPES[1:]:
        raise ConfigError(
            f"config.json: dtype must be one of {', '.join(DTYPES[1:])}, not "
            f"{str(declared)[:64]!r}; choose one with --dtype"
        )
    if device.type == "cpu" and not (declared == "bfloat16" and _cpu_has_bfloat16()):
        return torch.float32  # PyTorch emulates 16-bit products here, several times slower
    return _DTYPES[declared]


def _cpu_has_bfloat16() -> bool:
    return not _BF16_FLAGS.isdisjoint(machine.read_cpu().features)
