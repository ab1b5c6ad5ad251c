"""List the families of models and the modules that implement them, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from torch import Tensor, nn

from inferno.config.decoder import DecoderConfig
from inferno.config.families import find_family
from inferno.layers.decoder import CausalLM, Hidden
from inferno.ops import Batch, LayerKV
from inferno.weights.pieces import FusedSpec

# A family's file, with its maths; those that share Llama's need none.
MODULES: Mapping[str, str] = {
    "llama": "common",
    "mistral": "common",
    "qwen2": "common",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3_moe",
    "mixtral": "mixtral",
    "gpt_oss": "gpt_oss",
}


class Model(Protocol):
    """The interface of a model: hidden states of a step's tokens, and their logits."""

    def __call__(
        self,
        batch: Batch,
        kv: Sequence[LayerKV],
        layers: range | None = None,
        hidden: Hidden | None = None,
        /,
    ) -> Any:
        """Return hidden states, [T, E] or [N, E] of batch.rows_N, or what later layers need.

        See `CausalLM.forward`.
        """

    def logits(self, hidden_NE: Tensor, /) -> Tensor:
        """Return float32 logits [N, V]."""

    @property
    def num_layers(self) -> int:
        """Return how many layers the model has."""
        ...

    def new_streams(self, num_rows: int, /) -> Tensor:
        """Return unfilled memory for residual streams, [num_rows, E]."""

    def stream(self, hidden: Hidden, /) -> Tensor:
        """Return the residual stream between two layers; see `CausalLM.stream`."""

    def early_logits(self, stream_NE: Tensor, /) -> Tensor:
        """Return float32 logits [N, V] of residual streams, as if no more layers followed."""

    def parameters(self) -> Iterator[Tensor]:
        """Return the model's plain tensors."""

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Return the model's modules, some of which have packed weights."""


class ModelModule(Protocol):
    """The interface of a family's maths: it builds the model of a config."""

    def build(self, config: DecoderConfig, /) -> CausalLM: ...
    def fused_weights(self, config: DecoderConfig, /) -> FusedSpec: ...


def find_model(hf_config: Mapping[str, Any]) -> ModelModule:
    """Return the module for config.json's `architectures`; UnknownArchitecture lists ours."""
    name = MODULES[find_family(hf_config).name]
    return cast(ModelModule, import_module(f"inferno.models.{name}"))
