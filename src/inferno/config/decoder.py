"""Define DecoderConfig: the sizes and switches of a decoder; read the keys of every family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferno.config.mixture import MixtureConfig
from inferno.config.reader import ConfigReader
from inferno.config.rope import FactorScaling, RopeConfig, YarnScaling, read_rope
from inferno.errors import ConfigError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSpec:
    """The keys and values that one layer keeps of a token; a window of None sees all tokens."""

    num_kv_heads: int
    head_dim: int
    window: int | None
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes and switches of a decoder; windows[i] is layer i's window, or None."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_model_len: int
    tie_word_embeddings: bool
    windows: tuple[int | None, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    mixture: MixtureConfig | None = None
    has_sinks: bool = False  # of attention: gpt-oss's

    def kv_specs(self, dtype: torch.dtype) -> tuple[KVSpec, ...]:
        """Return the keys and values that each layer keeps of a token, in a dtype."""
        return tuple(
            KVSpec(
                num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, window=window, dtype=dtype
            )
            for window in self.windows
        )


def read_decoder(
    config: ConfigReader,
    *,
    windows: tuple[int | None, ...],
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    rope_theta: float = 10000.0,
    rms_norm_eps: float = 1e-6,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
) -> DecoderConfig:
    """Read the keys that every decoder has; a family's own values are arguments.

    num_kv_heads to rms_norm_eps  values for missing keys; None: as many key/value heads as query
                                  heads, and the width divided among them.
    """
    config.must_be("hidden_act", "silu", "swish")
    config.must_be("activation", "swiglu")
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_kv_heads = config.optional_integer("num_key_value_heads", num_kv_heads) or num_heads
    head_dim = config.integer("head_dim", head_dim or max(hidden_size // num_heads, 1))
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"config.json: num_attention_heads ({num_heads}) is not a multiple of "
            f"num_key_value_heads ({num_kv_heads})"
        )
    if head_dim % 2:
        raise ConfigError(f"config.json: head_dim ({head_dim}) must be even for rotary embedding")
    max_positions = config.integer("max_position_embeddings")
    rope = read_rope(config, max_positions=max_positions, theta=rope_theta)
    if isinstance(rope.scaling, FactorScaling) and len(rope.scaling.factors) != head_dim // 2:
        raise ConfigError(
            f"config.json: rope_scaling.factors must be {head_dim // 2}, one for each pair of a "
            f"head's {head_dim} dimensions, not {len(rope.scaling.factors)}"
        )
    return DecoderConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=len(windows),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=config.number("rms_norm_eps", rms_norm_eps),
        rope=rope,
        max_model_len=_context(rope, max_positions),
        tie_word_embeddings=config.boolean("tie_word_embeddings", False),
        windows=windows,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
    )


def _context(rope: RopeConfig, max_positions: int) -> int:
    """Return the tokens that positions reach, YaRN's stretch included in any case."""
    if not isinstance(rope.scaling, YarnScaling):
        return max_positions
    return max(max_positions, int(rope.scaling.factor * rope.scaling.original_max_positions))
