"""Where a loaded model lives and what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from inferno.ops import LayerKV


@dataclass(frozen=True, slots=True)
class Footprint:
    """Device and dtype by name; bytes of the weights and of the whole KV cache."""

    device: str
    dtype: str
    weights_bytes: int
    kv_cache_bytes: int


def measure(model: nn.Module, kv: Sequence[LayerKV]) -> Footprint:
    """The footprint of a model and its cache; storage that tensors share counts once."""
    parameters = list(model.parameters())
    return Footprint(
        device=str(parameters[0].device),
        dtype=str(parameters[0].dtype).removeprefix("torch."),
        weights_bytes=_bytes_of(parameters),
        kv_cache_bytes=_bytes_of(
            tensor for layer in kv for tensor in (layer.keys_NSKD, layer.values_NSKD)
        ),
    )


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    storages = {tensor.data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())
