"""The decoder: any range of layers gives the bits of all at once; layers may differ in heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inferno.config.decoder import DecoderConfig, KVSpec
from inferno.config.rope import RopeConfig
from inferno.engine.build import build_engine
from inferno.engine.kv.kv_cache import KVLayout, allocate
from inferno.layers.decoder import CausalLM, Decoder, DecoderLayer, Hidden
from inferno.layers.norm import RMSNorm
from inferno.layers.rope import RotaryEmbedding
from inferno.models import common
from inferno.models.common import SwiGLU
from inferno.ops import Batch, LayerKV, reference
from inferno.options import EngineOptions
from tests.engine.local import executor_of
from tests.ops.batches import make_batch
from tests.tiny import save_tiny

CPU = torch.device("cpu")
BLOCK = 4


def with_ids(batch: Batch, token_ids: Sequence[int], **changes: Any) -> Batch:
    return replace(batch, token_ids_T=torch.tensor(token_ids), **changes)


@pytest.mark.parametrize("rows", [None, [2, 8]])
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {"dtype": "float32"}),
        ("qwen3", {"dtype": "bfloat16"}),
        ("qwen3_moe", {"dtype": "float32"}),
    ],
)
@torch.inference_mode()
def test_layers_that_run_apart_give_the_same_bits(
    tmp_path: Path, family: str, options: dict[str, str], rows: list[int] | None
) -> None:
    save_tiny(tmp_path, family, head_dim=16, num_hidden_layers=4)
    engine = build_engine(EngineOptions(model=tmp_path, num_blocks=8, threads=1, **options))  # type: ignore[arg-type]
    runner = executor_of(engine)._runner
    model, kv = runner._model, runner._kv
    batch = with_ids(
        make_batch([3, 6], [3, 6], [[1], [2, 3]], block_size=16),
        [5, 9, 17, 3, 3, 8, 40, 41, 42],
        rows_N=None if rows is None else torch.tensor(rows),
    )
    expected_TE = model(batch, kv).clone()
    for split in range(1, 4):
        between = model(batch, kv, range(split))
        assert isinstance(between, Hidden)
        found_TE = model(batch, kv, range(split, 4), between)
        assert torch.equal(found_TE, expected_TE)
    hidden = None
    for layer in range(4):
        hidden = model(batch, kv, range(layer, layer + 1), hidden)
    assert isinstance(hidden, Tensor)
    assert torch.equal(hidden, expected_TE)


class OwnAttention(common.Attention):
    """Attention with heads of a size of its own, and angles for them."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.rotary = RotaryEmbedding(config.rope, config.head_dim)

    def forward(self, x_TE: Tensor, cos_sin_TD: Tensor, batch: Batch, kv: LayerKV) -> Tensor:
        return super().forward(x_TE, self.rotary(batch.positions_T), batch, kv)


def config_of(head_dim: int, num_kv_heads: int) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=50,
        hidden_size=48,
        intermediate_size=64,
        num_layers=1,
        num_heads=4,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        rope=RopeConfig(),
        max_model_len=64,
        tie_word_embeddings=True,
        windows=(None,),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
    )


CONFIGS = [config_of(16, 1), config_of(8, 2), config_of(16, 2)]


def make_model() -> CausalLM:
    layers = [
        DecoderLayer(OwnAttention(config), SwiGLU(48, 64), size=48, eps=1e-5) for config in CONFIGS
    ]
    rotary = RotaryEmbedding(RopeConfig(), 16)
    model = CausalLM(
        Decoder(layers, rotary, vocab_size=50, size=48, eps=1e-5),
        vocab_size=50,
        size=48,
        tied=True,
    )
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.3, generator=generator)
    return model


def expected(model: CausalLM, token_ids: Sequence[int]) -> Tensor:
    """Hidden states of a whole text, each layer over full matrices, in float64."""
    positions_T = torch.arange(len(token_ids))
    x_TE = model.model.embed_tokens.weight[torch.tensor(token_ids)].double()  # type: ignore[index]
    layers: list[Any] = list(model.model.layers)
    for layer, config in zip(layers, CONFIGS, strict=True):
        x_TE = x_TE + attend(
            layer.self_attn, normed(layer.input_layernorm, x_TE), positions_T, config
        )
        gate_TF, up_TF = product(
            layer.mlp.gate_up_proj, normed(layer.post_attention_layernorm, x_TE)
        ).chunk(2, dim=-1)
        x_TE = x_TE + product(layer.mlp.down_proj, F.silu(gate_TF) * up_TF)
    return normed(model.model.norm, x_TE)


def attend(attention: Any, x_TE: Tensor, positions_T: Tensor, config: DecoderConfig) -> Tensor:
    heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
    q_THD, k_TKD, v_TKD = torch.split(
        product(attention.qkv_proj, x_TE).view(len(x_TE), -1, size), [heads, kv_heads, kv_heads], 1
    )
    angles = reference.cos_sin(positions_T, attention.rotary.frequencies, 1.0)
    q_THD, k_TKD = (reference.rotate(one.float(), angles).double() for one in (q_THD, k_TKD))
    k_THD, v_THD = (one.repeat_interleave(heads // kv_heads, 1) for one in (k_TKD, v_TKD))
    q_HTD, k_HTD, v_HTD = (one.transpose(0, 1) for one in (q_THD, k_THD, v_THD))
    mixed_HTD = F.scaled_dot_product_attention(q_HTD, k_HTD, v_HTD, is_causal=True)
    return product(attention.o_proj, mixed_HTD.transpose(0, 1).flatten(1))


def product(layer: Any, x: Tensor) -> Tensor:
    weight: Tensor = layer.weight
    return x @ weight.double().T


def normed(norm: RMSNorm, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * norm.weight.double()


@torch.inference_mode()
def test_layers_may_differ_in_heads_and_their_sizes() -> None:
    model = make_model()
    assert isinstance(model.model.layers, nn.ModuleList)
    specs = tuple(spec for config in CONFIGS for spec in config.kv_specs(torch.float32))
    assert specs[1] == KVSpec(num_kv_heads=2, head_dim=8, window=None, dtype=torch.float32)
    kv = allocate(KVLayout(specs=specs, block_size=BLOCK), 8, CPU)
    text = [7, 3, 44, 8, 8, 21, 30, 2, 9, 11]
    due_TE = expected(model, text)
    tables = [[3, 1, 6]]
    first = 0
    for last in (6, 7, 8, 10):  # a prompt in chunks, and single tokens
        batch = make_batch([last - first], [last], tables, block_size=BLOCK)
        found_TE = model(with_ids(batch, text[first:last]), kv)
        torch.testing.assert_close(found_TE.double(), due_TE[first:last], rtol=1e-3, atol=1e-4)
        first = last
