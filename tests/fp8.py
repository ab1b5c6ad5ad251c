"""FP8 by its definition in float64, and tiny checkpoints as Qwen and others write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.tiny import edit_config, save_tiny

SECTION: dict[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
    "activation_scheme": "dynamic",
    "modules_to_not_convert": ["lm_head"],
}
ARGUMENTS: dict[str, Any] = {
    "actorder": None,
    "block_structure": None,
    "group_size": None,
    "num_bits": 8,
    "observer_kwargs": {},
    "symmetric": True,
    "type": "float",
}


# Mixtral's names of an expert's products, and others'.
MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def compressed(strategy: str) -> dict[str, Any]:
    """The section of compressed-tensors for dynamic activations."""
    of_weights = {"dynamic": False, "observer": "minmax", "strategy": strategy}
    of_inputs = {"dynamic": True, "observer": None, "strategy": "token"}
    group = {
        "input_activations": ARGUMENTS | of_inputs,
        "output_activations": None,
        "targets": ["Linear"],
        "weights": ARGUMENTS | of_weights,
    }
    return {
        "config_groups": {"group_0": group},
        "format": "float-quantized",
        "global_compression_ratio": 1.2,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "version": "0.11.0",
    }


def elements(codes: Tensor) -> npt.NDArray[np.float64]:
    """What each byte of E4M3 means: S.1111.111 is NaN, and nothing is infinite."""
    bits = codes.view(torch.uint8).numpy().astype(np.int64)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    magnitude = np.where(
        exponent > 0, 2.0 ** (exponent - 7) * (1 + mantissa / 8), 2.0**-6 * mantissa / 8
    )
    magnitude = np.where(bits & 127 == 127, np.nan, magnitude)
    return np.where(bits & 128, -magnitude, magnitude)


def decode(codes: Tensor, scales: Tensor) -> npt.NDArray[np.float64]:
    """The values of a weight [O, I], by the shape of its scales."""
    numbers: Any = scales.double().numpy()
    rows, columns = codes.shape
    if scales.numel() == 1:
        numbers = numbers.reshape(1, 1)
    elif scales.shape != (rows, 1):
        numbers = np.kron(numbers, np.ones((128, 128)))[:rows, :columns]
    values: npt.NDArray[np.float64] = elements(codes) * numbers
    return values


def random_codes(*shape: int, seed: int) -> Tensor:
    """Elements of which none is NaN, all equally often."""
    generator = torch.Generator().manual_seed(seed)
    magnitudes = torch.randint(127, shape, generator=generator, dtype=torch.uint8)
    signs = torch.randint(2, shape, generator=generator, dtype=torch.uint8)
    return (magnitudes | signs << 7).view(torch.float8_e4m3fn)


def random_scales(shape: tuple[int, ...], kind: str, seed: int) -> Tensor:
    """Scales of a kind that give values of about the usual size."""
    num_rows, num_inputs = shape
    shapes = {
        "block": (-(-num_rows // 128), -(-num_inputs // 128)),
        "channel": (num_rows, 1),
        "tensor": (1,),
    }
    generator = torch.Generator().manual_seed(seed)
    return (0.5 + torch.rand(shapes[kind], generator=generator)) * 1.5e-3


def save_tiny_fp8(
    folder: Path,
    model_type: str,
    kind: str = "fp8",
    dtype: torch.dtype = torch.float32,
    **sizes: Any,
) -> Any:
    """A tiny model whose layers' products are in FP8; returns that of `transformers`, in floats.

    kind    fp8, as Qwen's; or the strategy of compressed-tensors: channel or tensor.
    dtype   of the scales.
    """
    model = save_tiny(folder, model_type, **sizes)
    tensors = load_file(folder / "model.safetensors")
    parameters = dict(model.named_parameters())
    suffix = "_scale_inv" if kind == "fp8" else "_scale"
    for seed, name in enumerate(sorted(tensors)):
        if name.endswith(("_proj.weight", *(f".{each}.weight" for each in MIXTRAL))):
            shape = tensors[name].shape
            codes = random_codes(*shape, seed=seed)
            scales = random_scales(shape, "block" if kind == "fp8" else kind, seed).to(dtype)
            tensors |= {name: codes, name + suffix: scales}
            values = torch.from_numpy(decode(codes, scales)).float()
            _part(parameters, name).copy_(values)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    edit_config(folder, quantization_config=SECTION if kind == "fp8" else compressed(kind))
    return model


def _part(parameters: dict[str, Any], name: str) -> Any:
    """The part of a parameter of `transformers` that a tensor of the file fills."""
    before, _, after = name.replace(".block_sparse_moe.", ".mlp.").partition(".experts.")
    if not after:
        return parameters[name].data
    number, module, _ = after.split(".")
    module = MIXTRAL.get(module, module)
    if module == "down_proj":
        return parameters[f"{before}.experts.down_proj"].data[int(number)]
    gates, ups = parameters[f"{before}.experts.gate_up_proj"].data[int(number)].chunk(2)
    return gates if module == "gate_proj" else ups
