"""Define mixtures of experts as configs have them: their sizes and activations."""

from __future__ import annotations

from dataclasses import dataclass

from inferno.config.reader import ConfigReader
from inferno.errors import ConfigError
from inferno.quantization import WeightFormat

# All layers together. The largest published models have 24,000; a config that claims billions
# must not be built.
_MOST_EXPERTS = 2**16


@dataclass(frozen=True, slots=True)
class PlainSwiGLU:
    """The activation silu(gate) * up (arXiv:2002.05202)."""


@dataclass(frozen=True, slots=True)
class ClampedSwiGLU:
    """The clamped activation (up + 1) * gate * sigmoid(alpha * gate) (gpt-oss, arXiv:2508.10925).

    limit  gate is at most this, up lies between plus and minus this.
    """

    alpha: float = 1.702
    limit: float = 7.0


Activation = PlainSwiGLU | ClampedSwiGLU


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """The sizes and switches of a model's mixtures of experts.

    layers       whether layer i has a mixture; if not, it has a single feed-forward network.
    num_experts  of a layer; num_chosen: of a token.
    size         an expert's inner width.
    renormalize  the weights of a token's experts sum to one.
    has_bias     of the router and of both products.
    format       the packed format of the products' weights in checkpoints; None: floats.
    is_apart     whether the checkpoint holds each expert's gate, up and down product apart, as GGUF
                 files do, in any format, where the family's own checkpoints hold them together.
    """

    layers: tuple[bool, ...]
    num_experts: int
    num_chosen: int
    size: int
    renormalize: bool
    activation: Activation
    has_bias: bool = False
    format: WeightFormat | None = None
    is_apart: bool = False


def read_num_experts(config: ConfigReader, num_layers: int) -> int:
    """Read how many experts a layer has, from either of two keys."""
    high = _MOST_EXPERTS // num_layers
    return _read_either(config, ("num_experts", "num_local_experts"), high)


def read_num_chosen(config: ConfigReader, num_experts: int) -> int:
    """Read how many experts a token uses, from either of two keys."""
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
