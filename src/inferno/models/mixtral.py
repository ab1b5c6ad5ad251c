"""Mixtral: Llama's attention, and a mixture of experts in every layer (arXiv:2401.04088)."""

from __future__ import annotations

from inferno.config.decoder import DecoderConfig
from inferno.layers.decoder import CausalLM
from inferno.models import common
from inferno.models.mixture import feed_forward
from inferno.weights.pieces import FusedSpec, side_by_side, stacked


def build(config: DecoderConfig) -> CausalLM:
    """Build the model with unfilled parameters."""
    return common.build(config, mlp=feed_forward)


def fused_weights(config: DecoderConfig) -> FusedSpec:
    """Return how parameters differ from the checkpoint's tensors; w1, w3, w2 are gate, up, down."""
    assert config.mixture is not None
    count, ffn_rows, block = config.mixture.num_experts, config.mixture.size, "block_sparse_moe"
    return {
        "qkv_proj": common.fused_weights(config)["qkv_proj"],
        "mlp.router": side_by_side((f"{block}.gate", count)),
        "mlp.experts.gate_up_proj.weight": stacked(
            count,
            (f"{block}.experts.{{}}.w1.weight", ffn_rows),
            (f"{block}.experts.{{}}.w3.weight", ffn_rows),
        ),
        "mlp.experts.down_proj.weight": stacked(
            count, (f"{block}.experts.{{}}.w2.weight", config.hidden_size)
        ),
    }
