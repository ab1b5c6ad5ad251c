"""gpt-oss: alternating windows, attention sinks, experts in MXFP4 (arXiv:2508.10925).

Shape letters: T tokens of all requests in one row, E model width, H query heads, K key/value
heads, D head size, X experts, F inner width of an expert, G blocks of a packed row.
"""

from __future__ import annotations

import re
from dataclasses import replace

from torch import Tensor, nn

from inferno import ops
from inferno.errors import ConfigError
from inferno.layers.decoder import CausalLM
from inferno.layers.linear import Linear, split_heads
from inferno.layers.moe import MixtureConfig
from inferno.layers.parameters import empty
from inferno.layers.rope import YarnScaling
from inferno.models import common
from inferno.models.config import ConfigReader, DecoderConfig, read_decoder
from inferno.models.mixture import experts_apart, feed_forward, read_num_chosen, read_num_experts
from inferno.models.windows import num_layers, windows_of
from inferno.ops import Batch, ClampedSwiGLU, LayerKV
from inferno.quantization import MXFP4, PACKED_HERE
from inferno.weights.pieces import FusedSpec, Piece, whole

# Modules that MXFP4 checkpoints may name as left in floats: everything but the experts.
_NEVER_PACKED = re.compile(
    r"(model\.)?(embed_tokens|norm|layers\.(\*|\d+)\.(self_attn|mlp\.router|\w+_layernorm)(\..+)?)"
    r"|lm_head"
)
_APART = ("gguf", PACKED_HERE)  # where each expert's gate, up and down are tensors of their own


def read_config(config: ConfigReader) -> DecoderConfig:
    """Read a GptOssForCausalLM config.json; without layer_types every other layer has a window."""
    count = num_layers(config)
    window = config.optional_integer("sliding_window", 128)
    kinds = config.texts("layer_types")
    alternating = ("sliding_attention", "full_attention") * count
    has_bias = config.boolean("attention_bias", True)
    decoder = read_decoder(
        config,
        windows=windows_of(kinds or alternating[:count], count, window),
        num_kv_heads=8,
        head_dim=64,
        rope_theta=150000.0,
        rms_norm_eps=1e-5,
        qkv_bias=has_bias,
        output_bias=has_bias,
    )
    _check_context(config, decoder)
    return replace(decoder, mixture=_read_mixture(config, decoder))


def _check_context(config: ConfigReader, decoder: DecoderConfig) -> None:
    """Check YaRN's numbers: the model was trained with it, so they can't be missing."""
    initial, scaling = config.optional_integer("initial_context_length"), decoder.rope.scaling
    if config.section("rope_scaling", "rope_parameters") is None:
        raise ConfigError("config.json lacks rope_scaling, which this model needs")
    if isinstance(scaling, YarnScaling) and initial not in (None, scaling.original_max_positions):
        raise ConfigError(
            f"config.json: initial_context_length ({initial}) and rope_scaling's "
            f"original_max_position_embeddings ({scaling.original_max_positions}) must be equal"
        )


def _read_mixture(config: ConfigReader, decoder: DecoderConfig) -> MixtureConfig:
    num_experts = read_num_experts(config, decoder.num_layers)
    method = _read_method(config)
    format = MXFP4 if method == "mxfp4" else None
    for name, size in (
        ("hidden_size", decoder.hidden_size),
        ("intermediate_size", decoder.intermediate_size),
    ):
        if format is not None and size % format.group:
            raise ConfigError(f"config.json: {name} ({size}) must be a multiple of 32 for MXFP4")
    return MixtureConfig(
        layers=(True,) * decoder.num_layers,
        num_experts=num_experts,
        num_chosen=read_num_chosen(config, num_experts),
        size=decoder.intermediate_size,
        renormalize=True,
        activation=ClampedSwiGLU(
            alpha=config.number("swiglu_alpha", 1.702), limit=config.number("swiglu_limit", 7.0)
        ),
        has_bias=True,
        format=format,
        is_apart=method in _APART,
    )


def _read_method(config: ConfigReader) -> str | None:
    """Return how experts are stored: as MXFP4, which nothing else is; apart; None: as floats."""
    section = config.section("quantization_config")
    if section is None:
        return None
    method = section.choice("quant_method", ("mxfp4", *_APART))
    section.must_be("dequantize", False)
    for name in section.texts("modules_to_not_convert") or ():
        if not _NEVER_PACKED.fullmatch(name):
            raise ConfigError(
                f"config.json: quantization_config.modules_to_not_convert names {name[:64]!r}; "
                f"inferno reads MXFP4 where all experts have it and nothing else"
            )
    section.refuse_unread(inert=frozenset())
    return method


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, where each head may look at a sink instead."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        size, head_dim = config.hidden_size, config.head_dim
        heads, kv_heads = config.num_heads, config.num_kv_heads
        self.scale = head_dim**-0.5
        self.counts, self.head_dim = (heads, kv_heads, kv_heads), head_dim
        self.qkv_proj = Linear(size, sum(self.counts) * head_dim, bias=config.qkv_bias)
        self.o_proj = Linear(heads * head_dim, size, bias=config.output_bias)
        self.sinks = empty(heads)

    def forward(self, x_TE: Tensor, cos_sin_TD: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        q_THD, k_TKD, v_TKD = split_heads(self.qkv_proj(x_TE), self.counts, self.head_dim)
        q_THD = ops.rotate_and_store(q_THD, k_TKD, v_TKD, cos_sin_TD, batch, kv)
        mixed_THD = ops.attention(q_THD, batch, kv, scale=self.scale, sinks_H=self.sinks)
        output_TE: Tensor = self.o_proj(mixed_THD.flatten(1))
        return output_TE


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters."""
    return common.build(config, Attention, feed_forward)


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return where the checkpoint has other tensors than we.

    Its gate_up rows alternate, gate and up; ours are all gates, then all ups. Packed rows move as
    they are. Weights in floats are stored transposed: [X, E, 2F] and [X, F, E]. GGUF files have
    gate and up apart, and rows as ours.
    """
    assert config.mixture is not None
    attention = {"qkv_proj": common.fused_weights(config)["qkv_proj"]}
    if config.mixture.is_apart:
        return {**attention, **experts_apart(config)}
    gate_up, down, format = "experts.gate_up_proj", "experts.down_proj", config.mixture.format
    if format is None:
        gate_up_piece = Piece(gate_up, _alternating_columns, joined=(2, 3))
        down_piece = Piece(down, _transposed)
    else:
        gate_up_piece = Piece(gate_up, _alternating_rows, joined=(1, 2), format=format)
        down_piece = Piece(down, whole, format=format)
    return {
        **attention,
        f"{gate_up}.weight": (gate_up_piece,),
        f"{gate_up}.bias": (Piece(f"{gate_up}_bias", _alternating_rows, joined=(1, 2)),),
        f"{down}.weight": (down_piece,),
        f"{down}.bias": (Piece(f"{down}_bias", whole),),
    }


def _alternating_rows(gate_up: Tensor) -> Tensor:
    """View all gates, then all ups, as pairs: [X, 2F, ...] -> [X, F, 2, ...]."""
    return gate_up.view(len(gate_up), 2, -1, *gate_up.shape[2:]).transpose(1, 2)


def _alternating_columns(gate_up_XFE: Tensor) -> Tensor:
    """View gates and ups as pairs in columns: [X, 2F, E] -> [X, E, F, 2]."""
    return _alternating_rows(gate_up_XFE).permute(0, 3, 1, 2)


def _transposed(down_XEF: Tensor) -> Tensor:
    """View weights as the checkpoint has them, transposed: [X, E, F] -> [X, F, E]."""
    return down_XEF.transpose(1, 2)
