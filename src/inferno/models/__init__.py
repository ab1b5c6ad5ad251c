"""Hugging Face architecture names and the modules that implement them, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from torch import Tensor, nn

from inferno.errors import ConfigError, UnknownArchitecture
from inferno.layers.decoder import CausalLM, Hidden
from inferno.models.config import INERT, ConfigReader, DecoderConfig
from inferno.ops import Batch, LayerKV
from inferno.quantization import PACKED_HERE
from inferno.weights.pieces import FusedSpec

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "MixtralForCausalLM": "mixtral",
    "GptOssForCausalLM": "gpt_oss",
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
        """Return how many layers it has."""
        ...

    def new_streams(self, num_rows: int, /) -> Tensor:
        """Return unfilled memory for residual streams, [num_rows, E]."""

    def stream(self, hidden: Hidden, /) -> Tensor:
        """Return the residual stream between two layers; see `CausalLM.stream`."""

    def early_logits(self, stream_NE: Tensor, /) -> Tensor:
        """Return float32 logits [N, V] of residual streams, as if no more layers followed."""

    def parameters(self) -> Iterator[Tensor]:
        """Return its plain tensors."""

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Return its modules, some of which have packed weights."""


class ModelModule(Protocol):
    """The interface of a model's file: it reads the config and builds the model."""

    def read_config(self, config: ConfigReader, /) -> DecoderConfig: ...
    def build(self, config: DecoderConfig, /) -> CausalLM: ...
    def fused_weights(self, config: DecoderConfig, /) -> FusedSpec: ...


def find_model(hf_config: Mapping[str, Any]) -> ModelModule:
    """Return the module for config.json's `architectures`; UnknownArchitecture lists ours."""
    names = hf_config.get("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ConfigError('config.json lacks "architectures", a list with the model\'s class name')
    for name in names:
        if name in ARCHITECTURES:
            return cast(ModelModule, import_module(f"inferno.models.{ARCHITECTURES[name]}"))
    raise UnknownArchitecture(
        f"config.json asks for {', '.join(name[:64] for name in names[:4])}, which inferno doesn't "
        f"have. It has: {', '.join(ARCHITECTURES)}."
    )


def read_model_config(
    hf_config: Mapping[str, Any], *, allow_unknown: bool = False
) -> DecoderConfig:
    """Read config.json as the model's own config; every key is read, inert, or refused."""
    module = find_model(hf_config)
    reader = ConfigReader(hf_config, allow_unknown=allow_unknown)
    reader.must_be("is_encoder_decoder", False)
    config = module.read_config(reader)
    refuse_quantized(hf_config, reader)
    reader.refuse_unread(inert=INERT)
    return config


def refuse_quantized(hf_config: Mapping[str, Any], reader: ConfigReader) -> None:
    """Refuse, by name, weights that need unpacking, unless the model's file has read how."""
    for key in ("quantization_config", "compression_config"):
        section = hf_config.get(key)
        if not section or reader.has_read(key):
            continue
        method = section.get("quant_method") if isinstance(section, dict) else None
        if method == PACKED_HERE:  # then the names of tensors say how each is packed
            packing = reader.section(key)
            assert packing is not None
            packing.choice("quant_method", (PACKED_HERE,))
            packing.refuse_unread(inert=frozenset())
            continue
        raise ConfigError(
            f"this checkpoint is quantized ({key}: {str(method or section)[:64]}), which inferno "
            f"doesn't read yet; use the model's original, unquantized checkpoint"
        )
