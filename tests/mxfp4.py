"""MXFP4 by its specification in float64, bit by bit, and tiny checkpoints that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.tiny import edit_config, save_tiny

QUANTIZATION = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}


def decode(blocks: Tensor, scales: Tensor) -> npt.NDArray[np.float64]:
    """[..., O, G, 16] and [..., O, G] of bytes -> the values [..., O, 32 G]."""
    packed = blocks.numpy().astype(np.int64)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape((*packed.shape[:-1], 32))
    sign, exponent, mantissa = codes >> 3, (codes >> 1) & 3, codes & 1
    normal = 2.0 ** (exponent - 1) * (1 + mantissa / 2)
    elements = (1 - 2 * sign) * np.where(exponent == 0, mantissa / 2, normal)
    stored = scales.numpy().astype(np.int64)
    powers = np.where(stored == 255, np.nan, 2.0 ** (stored - 127.0))
    values = elements.astype(np.float64) * powers[..., None]
    return values.reshape((*stored.shape[:-1], -1))


def random_bytes(*shape: int, seed: int, low: int = 0, high: int = 256) -> Tensor:
    """Bytes from low to high - 1, each as likely as the next."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator, dtype=torch.uint8)


def save_tiny_mxfp4(folder: Path, **config: Any) -> Any:
    """A tiny gpt-oss with packed experts; returns the `transformers` model with their values."""
    model = save_tiny(folder, "gpt_oss", **{**SIZES, **config})
    tensors = load_file(folder / "model.safetensors")
    parameters = dict(model.named_parameters())
    for seed, name in enumerate(sorted(tensors)):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            num_experts, num_inputs, num_outputs = tensors.pop(name).shape
            shape = (num_experts, num_outputs, num_inputs // 32)
            blocks = random_bytes(*shape, 16, seed=seed)
            scales = random_bytes(*shape, seed=seed, low=120, high=126)
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            values = torch.from_numpy(decode(blocks, scales)).transpose(1, 2)
            parameters[name].data.copy_(values)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    edit_config(folder, quantization_config=QUANTIZATION)
    return model
