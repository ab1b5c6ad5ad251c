"""The device of a loaded model, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.engine.kv.kv_cache import tensors_of
from inferno.layers.parameters import packed_weights
from inferno.models import Model
from inferno.ops import LayerKV


@dataclass(frozen=True, slots=True)
class Footprint:
    """The device and dtypes of a loaded model by name, and the bytes of weights and KV cache.

    head_size   of the model's keys and values.
    """

    device: str
    dtype: str
    kv_dtype: str
    weights_bytes: int
    kv_cache_bytes: int
    head_size: int


def measure(model: Model, kv: Sequence[LayerKV]) -> Footprint:
    """Return the footprint of a model and its cache; storage of several tensors counts once."""
    parameters = list(model.parameters())
    packed = sum(weight.num_bytes for _, weight in packed_weights(model))
    return Footprint(
        device=str(parameters[0].device),
        dtype=dtype_name(parameters[0].dtype),
        kv_dtype=dtype_name(kv[0].keys_NSKD.dtype),
        weights_bytes=_bytes_of(parameters) + packed,
        kv_cache_bytes=_bytes_of(tensors_of(kv)),
        head_size=kv[0].keys_NSKD.shape[3],
    )


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name that PyTorch has for a dtype, such as bfloat16."""
    return str(dtype).removeprefix("torch.")


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
