"""Find devices and dtypes by name, or refuse them clearly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from inferno import ops
from inferno.compiled_kernels import computes_bfloat16
from inferno.config.decoder import DecoderConfig
from inferno.engine.execution.gpu import find_gpu
from inferno.errors import DeviceUnavailable, InvalidRequest
from inferno.machine import has_bfloat16
from inferno.ops import AttentionKind
from inferno.options import EngineOptions
from inferno.plan import choices
from inferno.quantization import INT8

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
    "float8_e4m3fn": torch.float8_e4m3fn,
}


def find_device(name: str) -> torch.device:
    """Return the device of that name; DeviceUnavailable says what to do if there is none."""
    device = torch.device(name)
    if device.type == "cuda":
        return find_gpu(name)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceUnavailable(
            "mps was asked for, but Apple's Metal is not here: use --device cpu."
        )
    return device


def choose_kv_dtype(
    options: EngineOptions,
    hf_config: Mapping[str, Any],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.dtype:
    """Return the type of keys and values; `auto` is the one computed with, 16 bits if quantized.

    Raises InvalidRequest where nothing computes with the type that was asked for.
    """
    name = choices.choose_kv_dtype(
        options.kv_dtype,
        str(dtype).removeprefix("torch."),
        is_quantized=choices.is_quantized(
            options.quantize, options.dtype, hf_config, is_cpu=device.type == "cpu"
        ),
        has_bfloat16=device.type == "cuda" or has_bfloat16(),
    )
    if name == "int8" and not (ops.has_kernels(device, INT8) and options.attention == "auto"):
        raise InvalidRequest(
            "kv_dtype=int8 needs inferno's compiled kernels, which do not run here or are left out "
            f"by --attention {options.attention}; use --kv-dtype bfloat16, or see `inferno doctor`",
            param="kv_dtype",
        )
    if options.kv_dtype == "fp8" and not (device.type == "cuda" and options.attention == "auto"):
        raise InvalidRequest(
            "kv_dtype=fp8 needs kernels that only CUDA devices have, and attention is to run on "
            f"{device} with --attention {options.attention}; leave --kv-dtype out",
            param="kv_dtype",
        )
    if name == "int8" and device.type == "cpu" and dtype is torch.float16:
        raise InvalidRequest(
            "kv_dtype=int8 goes with dtype float32 or bfloat16, not float16; leave --dtype out",
            param="kv_dtype",
        )
    return _DTYPES[name]


def choose_attention(options: EngineOptions) -> AttentionKind:
    """Return the algorithm of attention; AUTO leaves the choice to the device's backend."""
    return AttentionKind.INVARIANT if options.batch_invariant else AttentionKind(options.attention)


def check_invariance(
    options: EngineOptions,
    hf_config: Mapping[str, Any],
    config: DecoderConfig,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Raise InvalidRequest if tokens were to have the same bits in any batch, and can't have."""
    if not options.batch_invariant:
        return
    reason = ops.why_not_invariant(
        device,
        dtype,
        choose_kv_dtype(options, hf_config, dtype, device),
        head_size=config.head_dim,
        block_size=options.block_size,
        width=config.hidden_size,
    )
    if reason is not None:
        raise InvalidRequest(
            f"batch_invariant can't be had on {device} here: {reason}; change that, or leave it "
            "out",
            param="batch_invariant",
        )


def check_activations(options: EngineOptions, device: torch.device, dtype: torch.dtype) -> None:
    """Raise InvalidRequest if activations beside quantized weights were to be bfloat16 in vain."""
    if options.activations != "bfloat16":
        return
    reason = ops.why_no_bfloat16_activations(device, dtype)
    if reason is not None:
        raise InvalidRequest(
            f"activations=bfloat16 needs a CPU with matrix registers (AMX), and dtype float32 or "
            f"bfloat16, but {reason}; leave it out, or see `inferno doctor`",
            param="activations",
        )


def choose_dtype(name: str, hf_config: Mapping[str, Any], device: torch.device) -> torch.dtype:
    """Return the dtype of that name; `auto` is the checkpoint's, if the device computes in it."""
    return _DTYPES[
        choices.choose_dtype(
            name, hf_config, is_cpu=device.type == "cpu", computes_bfloat16=computes_bfloat16()
        )
    ]
