"""Each planted mistake is found at the checkpoint where it is made, and named."""

from __future__ import annotations

import pytest

from inferno.models import gpt_oss, qwen3
from tests.verify.faults import (
    backward_rope,
    gelu_mul,
    in_call,
    in_layers,
    in_model,
    in_op,
    interleaved_rope,
    lost_input,
    odd_sampler,
    one_wider,
    overflowing,
    own_head,
    scaled_embedding,
    scaled_sinks,
    set_on,
    shifted_positions,
    stale_block,
    swapped_halves,
    swapped_nibbles,
    swapped_norms,
    transposed_groups,
    truncated_weight,
    unscaled_yarn,
    without_sinks,
    without_window,
    wrong_theta,
)
from tests.verify.planted import Fault, Folders, check
from tests.verify.tiny_models import verified

FAULTS: dict[str, Fault] = {
    "a truncated weight": Fault(
        "llama",
        truncated_weight,
        "0",
        None,
        "layers.1.mlp.down_proj.weight",
    ),
    "a head of its own where it is tied": Fault(
        "llama, tied, biases",
        in_model(own_head),
        "0",
        None,
        "lm_head.weight",
    ),
    "embeddings scaled": Fault(
        "llama",
        in_op("embedding", scaled_embedding),
        "1",
        0,
        "multiplied by sqrt(E)",
    ),
    "wrong eps": Fault(
        "llama",
        in_layers(set_on("input_layernorm.eps", 1e-6)),
        "1",
        0,
        "eps differs: it is 1e-06 instead of 1e-05",
    ),
    "interleaved RoPE": Fault(
        "llama",
        in_op("rotate_and_store", interleaved_rope),
        "1B",
        0,
        "interleaved",
    ),
    "RoPE with swapped halves": Fault(
        "llama",
        in_op("rotate_and_store", backward_rope),
        "1B",
        0,
        "halves are swapped",
    ),
    "wrong theta": Fault(
        "llama", in_model(wrong_theta), "1B", 0, "theta is 1e+06 instead of 10000"
    ),
    "YaRN left out": Fault(
        "llama, yarn", in_model(unscaled_yarn), "1B", 0, "scaling of frequencies"
    ),
    "positions off by one": Fault("llama", shifted_positions, "1B", 0, "off by one"),
    "q-norm missing": Fault(
        "qwen3",
        in_call(qwen3, "rotate_and_store", lambda named: named.update(q_norm_D=None)),
        "2",
        0,
        "norm of each head of q is left out",
    ),
    "q-norm and k-norm swapped": Fault(
        "qwen3",
        in_call(qwen3, "rotate_and_store", swapped_norms),
        "2",
        0,
        "weights of k",
    ),
    "eps of head norms": Fault(
        "qwen3",
        in_layers(set_on("self_attn.eps", 1e-3)),
        "2",
        0,
        "eps is 0.001 instead of 1e-05",
    ),
    "bias dropped": Fault(
        "qwen2",
        in_layers(set_on("self_attn.qkv_proj.bias", None)),
        "2",
        0,
        "bias is left out",
    ),
    "a stale block": Fault("llama", stale_block, "3", 0, "position 16 to 31 holds"),
    "wrong scale": Fault(
        "llama",
        in_layers(set_on("self_attn.scale", 1 / 12)),
        "4",
        0,
        "the scale is 1/D",
    ),
    "a window one too wide": Fault("mistral", one_wider, "4", 0, "one too wide"),
    "sinks scaled": Fault(
        "gpt_oss",
        in_call(gpt_oss, "attention", scaled_sinks),
        "4",
        0,
        "sinks are multiplied",
    ),
    "groups transposed": Fault("llama", in_op("attention", transposed_groups), "5", 0, "h % K"),
    "a window one too narrow in a kernel": Fault(
        "qwen3, windows",
        in_op("attention", without_window),
        "5",
        1,
        "one too narrow",
    ),
    "sinks left out by a kernel": Fault(
        "gpt_oss",
        in_op("attention", without_sinks),
        "5",
        0,
        "sinks are left out",
    ),
    "gate and up swapped": Fault(
        "llama", in_op("gated_linear", swapped_halves), "6", 0, "gate and up"
    ),
    "NaN": Fault("llama", in_op("gated_linear", overflowing), "6", 0, "NaN or infinite"),
    "GELU": Fault("llama", in_op("gated_linear", gelu_mul), "6", 0, "GELU instead of SiLU"),
    "experts' weights made to sum to one": Fault(
        "qwen3_moe",
        in_model(lambda m: set_on("renormalize", True)(m.model.layers[0].mlp)),
        "6",
        0,
        "made to sum to one",
    ),
    "MXFP4 nibbles swapped": Fault(
        "gpt_oss, mxfp4",
        in_op("experts", swapped_nibbles),
        "6",
        0,
        "two values of a byte",
    ),
    "the layer's input is lost": Fault("llama", lost_input, "7", 0, "input is not added"),
    "a layer that nobody looks into": Fault(
        "llama, five layers",
        in_model(lambda m: set_on("self_attn.scale", 1.0)(m.model.layers[2])),
        "4",
        2,
        "the scale is 1 = 1",
    ),
    "the head ignored": Fault(
        "llama", in_model(set_on("lm_head", None)), "8", None, "serves as head"
    ),
    "an odd sampler": Fault("llama", odd_sampler, "12", None, "not the likeliest"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault])


def test_a_wrong_embedding_is_found_where_nobody_looks_into_the_first_layer(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(folders, monkeypatch, FAULTS["embeddings scaled"], layers=(1,))


@pytest.mark.parametrize("fault", ["wrong theta", "bias dropped", "gate and up swapped"])
def test_bfloat16_hides_no_fault(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    check(folders, monkeypatch, FAULTS[fault], dtype="bfloat16")


def test_a_stale_block_is_told_by_memory_alone(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale_block(monkeypatch)
    [row] = [row for row in verified(folders["llama"]).rows if (row.number, row.layer) == ("3", 0)]
    assert "block 1 of the request is stale" in row.what
    assert "positions 16 to 31" in row.what
    assert row.findings == ()
