"""The common parts of mixture-of-experts models: the numbers of experts, a layer's modules."""

from __future__ import annotations

from torch import nn

from inferno.errors import ConfigError
from inferno.layers.moe import MixtureOfExperts
from inferno.models import common
from inferno.models.config import ConfigReader, DecoderConfig
from inferno.weights.pieces import FusedSpec, stacked

# All layers together. The largest published models have 24,000; a config that claims billions
# must not be built.
_MOST_EXPERTS = 2**16


def read_num_experts(config: ConfigReader, num_layers: int) -> int:
    """Read how many experts a layer has, under either of their names."""
    high = _MOST_EXPERTS // num_layers
    return _read_either(config, ("num_experts", "num_local_experts"), high)


def read_num_chosen(config: ConfigReader, num_experts: int) -> int:
    """Read how many experts a token uses, under either of their names."""
    return _read_either(config, ("num_experts_per_tok", "experts_per_token"), num_experts)


def _read_either(config: ConfigReader, names: tuple[str, str], high: int) -> int:
    values = [config.integer(name, high=high) for name in names if config.has(name)]
    if not values:
        raise ConfigError(f"config.json lacks {names[0]}, which this model needs")
    if values[0] != values[-1]:
        raise ConfigError(
            f"config.json: {names[0]} is {values[0]} and {names[1]} is {values[-1]}, but both name "
            f"the same number"
        )
    return values[0]


def experts_apart(config: DecoderConfig) -> FusedSpec:
    """Return the pieces of experts where a checkpoint holds each one's three products apart."""
    assert config.mixture is not None
    count, ffn_rows = config.mixture.num_experts, config.mixture.size
    return {
        "experts.gate_up_proj": stacked(
            count, ("experts.{}.gate_proj", ffn_rows), ("experts.{}.up_proj", ffn_rows)
        ),
        "experts.down_proj": stacked(count, ("experts.{}.down_proj", config.hidden_size)),
    }


def feed_forward(config: DecoderConfig, layer: int) -> nn.Module:
    """Build a mixture of experts in the layers that have one, else a single network."""
    assert config.mixture is not None, "the model's read_config sets it"
    if config.mixture.layers[layer]:
        return MixtureOfExperts(config.mixture, config.hidden_size)
    return common.feed_forward(config, layer)
