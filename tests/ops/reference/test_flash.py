"""Flash and naive attention against the definition in float64, and against PyTorch's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inferno.errors import InvalidRequest
from inferno.ops.reference.flash import FlashAttentionConfig, flash_attention, visible_tiles
from inferno.ops.reference.naive import naive_attention
from tests.ops import oracle

TOLERANCE = 1e-5


def random_qkv(
    num_tokens: int, num_keys: int, num_kv_heads: int, group_size: int, head_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(num_tokens * 1000 + num_keys)
    q_THD = torch.randn(num_tokens, num_kv_heads * group_size, head_size)
    k_LKD, v_LKD = torch.randn(2, num_keys, num_kv_heads, head_size)
    return q_THD, k_LKD, v_LKD


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    assert actual.shape == expected.shape
    assert (actual.double() - expected.double()).abs().max() <= tolerance


def largest_error(actual: Tensor, expected: Tensor) -> float:
    return (actual.double() - expected).abs().max().item()


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A chunk at the end of a context, of any shape, window and tiling."""
    num_tokens = draw(st.integers(1, 24))
    return {
        "num_tokens": num_tokens,
        "num_keys": num_tokens + draw(st.integers(0, 24)),
        "num_kv_heads": draw(st.integers(1, 3)),
        "group_size": draw(st.integers(1, 8)),
        "head_size": draw(st.integers(1, 20)),
        "window": draw(st.none() | st.integers(1, 50)),
        "has_sinks": draw(st.booleans()),
        "causal": draw(st.booleans()),
        "cut": draw(st.integers(0, 99)),
        "block_size_q": draw(st.integers(1, 30)),
        "block_size_kv": draw(st.integers(1, 30)),
    }


@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_flash_and_naive_attention_are_the_definition(case: dict[str, Any]) -> None:
    q, k, v = random_qkv(
        *(case[n] for n in ("num_tokens", "num_keys", "num_kv_heads", "group_size", "head_size"))
    )
    sinks = torch.randn(q.shape[1]) if case["has_sinks"] else None
    start = len(k) - len(q)
    scale = q.shape[-1] ** -0.5
    expected = oracle.attend(
        q, k, v,
        scale=scale, causal=case["causal"], window=case["window"], sinks_H=sinks, query_start=start,
    )  # fmt: skip
    config = FlashAttentionConfig(case["block_size_q"], case["block_size_kv"], case["causal"])
    flash = flash_attention(
        q, k, v, config, window=case["window"], sinks_H=sinks, query_start=start
    )
    cut = case["cut"] % (len(k) + 1)
    naive = naive_attention(
        q, (k[:cut], k[cut:]), (v[:cut], v[cut:]),
        scale=scale, causal=case["causal"], window=case["window"], sinks_H=sinks, query_start=start,
    )  # fmt: skip
    assert_near(flash, expected)
    assert_near(naive, expected)
    assert_near(flash, naive)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("group_size", [1, 4])
def test_flash_agrees_with_pytorch(causal: bool, group_size: int) -> None:
    q, k, v = random_qkv(70, 70, 2, group_size, 33)
    expected = F.scaled_dot_product_attention(
        q.transpose(0, 1),
        k.transpose(0, 1).repeat_interleave(group_size, 0),
        v.transpose(0, 1).repeat_interleave(group_size, 0),
        is_causal=causal,
    )
    flash = flash_attention(q, k, v, FlashAttentionConfig(32, 16, causal))
    assert_near(flash, expected.transpose(0, 1))


def test_keys_may_begin_where_the_window_does() -> None:
    q, k, v = random_qkv(10, 60, 2, 2, 8)
    config = FlashAttentionConfig(4, 16)
    whole = flash_attention(q, k, v, config, window=7, query_start=50)
    first = 50 - 7 + 1
    cut = flash_attention(
        q, k[first:], v[first:], config, window=7, query_start=50, key_start=first
    )
    assert_near(cut, whole, 1e-6)


def test_a_prompt_cut_into_chunks_gives_what_it_gives_whole() -> None:
    q, k, v = random_qkv(90, 90, 2, 2, 16)
    config = FlashAttentionConfig(32, 16)
    whole = flash_attention(q, k, v, config)
    parts, start = [], 0
    for chunk in torch.split(q, [1, 37, 16, 30, 6]):
        stop = start + len(chunk)
        parts.append(flash_attention(chunk, k[:stop], v[:stop], config, query_start=start))
        start = stop
    assert_near(torch.cat(parts), whole, 1e-6)


def test_tiles_are_cut_at_the_same_positions_for_every_chunk() -> None:
    config = FlashAttentionConfig(8, 16)
    assert list(visible_tiles(range(30, 38), range(40), None, config)) == [
        range(16), range(16, 32), range(32, 38)
    ]  # fmt: skip
    assert list(visible_tiles(range(30, 38), range(21, 40), 10, config)) == [
        range(21, 32), range(32, 38)
    ]  # fmt: skip


@pytest.mark.parametrize("magnitude", [1e-3, 30.0, 1e4])
def test_scores_of_any_size_neither_overflow_nor_vanish(magnitude: float) -> None:
    q, k, v = random_qkv(40, 40, 1, 2, 8)
    q = q * magnitude
    flash = flash_attention(q, k, v, FlashAttentionConfig(16, 8))
    expected = F.scaled_dot_product_attention(
        q.double().transpose(0, 1),
        k.double().transpose(0, 1).expand(2, -1, -1),
        v.double().transpose(0, 1).expand(2, -1, -1),
        is_causal=True,
    ).transpose(0, 1)
    # A score s is known to s * 2^-24 or so in float32, and so is its weight's logarithm.
    assert_near(flash, expected, TOLERANCE * max(1.0, magnitude / 10))


def test_a_huge_sink_takes_all_and_a_tiny_one_nothing() -> None:
    q, k, v = random_qkv(5, 5, 1, 2, 8)
    config = FlashAttentionConfig(2, 2)
    sinks = torch.tensor([1e4, -1e4])
    attended = flash_attention(q, k, v, config, sinks_H=sinks)
    assert_near(attended[:, 0], torch.zeros(5, 8))
    assert_near(attended[:, 1], flash_attention(q, k, v, config)[:, 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_errs_no_more_than_twice_what_plain_half_precision_does(
    dtype: torch.dtype,
) -> None:
    q, k, v = (x.to(dtype) for x in random_qkv(64, 64, 2, 2, 32))
    scale = 32**-0.5
    expected = oracle.attend(q, k, v, scale=scale)
    scores = scale * torch.einsum("tkgd,lkd->kgtl", q.view(64, 2, 2, 32), k)
    scores = scores.masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), -math.inf)
    plain = torch.einsum("kgtl,lkd->tkgd", scores.softmax(-1), v).reshape(q.shape)
    bound = 2 * largest_error(plain, expected) + 1e-5
    flash = flash_attention(q, k, v, FlashAttentionConfig(16, 16))
    assert flash.dtype is dtype
    assert largest_error(flash, expected) <= bound
    assert largest_error(naive_attention(q, [k], [v], scale=scale), expected) <= bound


def test_the_inputs_are_left_as_they_were() -> None:
    q, k, v = random_qkv(20, 20, 1, 2, 8)
    sinks = torch.randn(2)
    given = [x.clone() for x in (q, k, v, sinks)]
    flash_attention(q, k, v, FlashAttentionConfig(8, 8), sinks_H=sinks)
    naive_attention(q, [k], [v], scale=1.0, sinks_H=sinks)
    assert all(torch.equal(x, y) for x, y in zip((q, k, v, sinks), given, strict=True))


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"block_size_q": 0}, "block_size_q"),
        ({"block_size_q": True}, "block_size_q"),
        ({"block_size_kv": -1}, "block_size_kv"),
        ({"block_size_kv": 2.0}, "block_size_kv"),
        ({"softmax_scale": math.nan}, "softmax_scale"),
        ({"softmax_scale": math.inf}, "softmax_scale"),
        ({"softmax_scale": "big"}, "softmax_scale"),
        ({"causal": 1}, "causal"),
    ],
)
def test_a_bad_config_is_refused_by_name(values: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest, match=param) as caught:
        FlashAttentionConfig(**values)
    assert caught.value.param == param
