"""The usual mistakes of attention: projections, norms of heads, rotation, cache, scores, mixing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from inferno.verify.plain_maths import (
    attention_scores,
    can_see,
    linear,
    mix,
    rms_norm,
    rotate,
)
from inferno.verify.plain_rope import plain_cos_sin
from inferno.verify.suspects import Evidence, Suspect
from inferno.verify.taps import at

Suspects = Iterator[Suspect]
_EPS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
_THETAS = (1e4, 1e5, 1.5e5, 5e5, 1e6, 5e6, 1e7)


def attention_suspects(name: str, layer: int, evidence: Evidence) -> Suspects:
    """Mistakes that would show in the tensor `name` of a layer."""
    if (suspects := _SUSPECTS.get(name)) is not None:
        yield from suspects(name, layer, evidence)


def _angles(_: str, __: int, evidence: Evidence) -> Suspects:
    config = evidence.config
    positions = torch.arange(len(evidence.expected["cos_sin"]))
    for shift, words in ((1, "next"), (-1, "one before")):
        yield Suspect(
            f"positions are off by one: each token is turned by the angle of the {words}",
            plain_cos_sin(config, positions + shift),
        )
    for theta in _THETAS:
        yield Suspect(
            f"theta is {theta:g} instead of {config.rope['rope_theta']:g}",
            plain_cos_sin(config, positions, rope_theta=theta),
        )
    yield Suspect(
        "the scaling of frequencies that config.json asks for is left out",
        plain_cos_sin(config, positions, rope_type="default", type="default"),
    )
    cos, sin = evidence.expected["cos_sin"].chunk(2, dim=-1)
    yield Suspect("cosines and sines are swapped", torch.cat((sin, cos), dim=-1))


def _rotation(name: str, layer: int, evidence: Evidence) -> Suspects:
    """The engine's own q or k, turned in other ways."""
    x = evidence.found[at(layer, name.replace("rot", "in"))].float()
    before_norm = evidence.found[at(layer, name[0])].float()
    angles = evidence.expected["cos_sin"]
    cos, sin = angles.chunk(2, dim=-1)
    backwards = torch.cat((cos, -sin), dim=-1)
    yield Suspect(
        "RoPE pairs are interleaved: (2i, 2i+1) instead of (i, i + D/2)", _interleaved(x, angles)
    )
    yield Suspect("RoPE turns the wrong way: the halves are swapped", rotate(x, backwards))
    yield Suspect("nothing is rotated", x)
    yield Suspect("the norm of each head is left out or comes after", rotate(before_norm, angles))
    yield Suspect("positions are off by one", rotate(x, angles.roll(-1, 0)))


def _interleaved(x_THD: Tensor, angles: Tensor) -> Tensor:
    """Pairs (2i, 2i + 1), as the first Llama's own checkpoints have them."""
    apart = torch.cat((x_THD[..., ::2], x_THD[..., 1::2]), dim=-1)
    turned = rotate(apart, angles)
    half = turned.shape[-1] // 2
    return torch.stack((turned[..., :half], turned[..., half:]), dim=-1).flatten(-2)


def _projection(name: str, layer: int, evidence: Evidence) -> Suspects:
    weights, right = evidence.layer(layer), evidence.tap(layer, name)
    if (bias := weights.get(f"self_attn.{name}_proj.bias")) is not None:
        yield Suspect("the bias is left out", right - bias.view(right.shape[1:]))
    for other in "qkv".replace(name, ""):
        yield Suspect(f"it holds {other}", evidence.tap(layer, other))
    yield Suspect(
        "heads are in another order: groups and members are swapped", _regrouped(right, evidence)
    )
    even_odd = torch.cat((right[..., ::2], right[..., 1::2]), dim=-1)
    yield Suspect("the rows of each head are permuted, as for interleaved RoPE", even_odd)
    half = right.shape[-1] // 2
    odd_even = torch.stack((right[..., :half], right[..., half:]), dim=-1).flatten(-2)
    yield Suspect("the rows of each head are permuted, as for interleaved RoPE", odd_even)


def _regrouped(q_THD: Tensor, evidence: Evidence) -> Tensor:
    groups = evidence.config.num_kv_heads
    if q_THD.shape[1] == groups:
        return q_THD.flip(1)
    return q_THD.view(len(q_THD), groups, -1, q_THD.shape[-1]).transpose(1, 2).flatten(1, 2)


def _head_norm(name: str, layer: int, evidence: Evidence) -> Suspects:
    """q_in or k_in, from the oracle's q or k."""
    own, other = name[0], "k" if name[0] == "q" else "q"
    weights, x = evidence.layer(layer), evidence.tap(layer, own)
    yield Suspect(f"the norm of each head of {own} is left out", x)
    weight = weights.get(f"self_attn.{own}_norm.weight")
    if weight is None:
        return
    swapped = weights[f"self_attn.{other}_norm.weight"]
    yield Suspect(
        f"{own} is normalized with the weights of {other}",
        rms_norm(x, swapped, evidence.config.eps),
    )
    for eps in _EPS:
        yield Suspect(_eps_words(eps, evidence), rms_norm(x, weight, eps))
    whole = rms_norm(x.flatten(1), weight.repeat(x.shape[1]), evidence.config.eps)
    yield Suspect("all heads are normalized together", whole.view(x.shape))


def _eps_words(eps: float, evidence: Evidence) -> str:
    return f"eps is {eps:g} instead of {evidence.config.eps:g}"


def _cache(name: str, layer: int, evidence: Evidence) -> Suspects:
    right = evidence.tap(layer, name)
    if name == "keys":
        yield Suspect("keys are stored before they are rotated", evidence.tap(layer, "k_in"))
    yield Suspect(
        "keys and values are swapped", evidence.tap(layer, "values" if name == "keys" else "keys")
    )
    yield Suspect("each position reads what belongs to the one before", right.roll(1, 0))
    yield Suspect("each position reads what belongs to the next", right.roll(-1, 0))


def _scores(_: str, layer: int, evidence: Evidence) -> Suspects:
    q, k = evidence.tap(layer, "q_rot"), evidence.tap(layer, "k_rot")
    scale, size = evidence.config.head_dim**-0.5, evidence.config.head_dim
    window = evidence.config.windows[layer]
    scales = {"1": 1.0, "1/D": 1 / size, "1/D²": size**-2.0, "1/sqrt(E/K)": _shared_scale(evidence)}
    for words, wrong in scales.items():
        yield Suspect(
            f"the scale is {words} instead of 1/sqrt(D)",
            attention_scores(q, k, scale=wrong, is_visible=can_see(len(q), window)),
        )
    for words, wrong_window in _windows(window, len(q)).items():
        yield Suspect(
            words, attention_scores(q, k, scale=scale, is_visible=can_see(len(q), wrong_window))
        )
    unmasked = attention_scores(q, k, scale=scale, is_visible=None)
    yield Suspect("nothing is hidden: the causal mask is left out", unmasked)
    ahead = can_see(len(q), window) | can_see(len(q), window).roll(-1, 0).tril(1)
    yield Suspect("queries see one key too far ahead", unmasked.masked_fill(~ahead, -math.inf))


def _shared_scale(evidence: Evidence) -> float:
    return float((evidence.config.hidden_size / evidence.config.num_kv_heads) ** -0.5)


def _windows(window: int | None, length: int) -> dict[str, int | None]:
    if window is None:
        return {
            f"a window of {size} hides keys, where none should": size for size in range(1, length)
        }
    return {
        "the window is one too wide": window + 1,
        "the window is one too narrow": window - 1,
        "the window is left out": None,
    }


def _sinks(_: str, layer: int, evidence: Evidence) -> Suspects:
    right, scale = evidence.tap(layer, "sinks"), evidence.config.head_dim**-0.5
    yield Suspect("sinks are multiplied by the scale of q k", right * scale)
    yield Suspect("sinks are divided by the scale of q k", right / scale)
    yield Suspect("sinks are negated", -right)


def _mixed(_: str, layer: int, evidence: Evidence) -> Suspects:
    scores, v = evidence.tap(layer, "scores"), evidence.tap(layer, "values")
    sinks = evidence.expected.get(at(layer, "sinks"))
    scale = evidence.config.head_dim**-0.5
    if sinks is not None:
        yield Suspect("sinks are left out", mix(scores, v))
        yield Suspect(
            "sinks are multiplied by the scale of q k", mix(scores, v, sinks.float() * scale)
        )
        yield Suspect("sinks are not scaled as scores are", mix(scores, v, sinks.float() / scale))
    yield Suspect(
        "query heads read the wrong key heads: h % K instead of h // (H/K)",
        _modulo(layer, evidence, sinks),
    )
    for factor, words in ((1 / scale, "1"), (scale, "1/D")):
        scaled = torch.where(scores.isfinite(), scores * factor, scores)
        yield Suspect(f"the scale is {words} instead of 1/sqrt(D)", mix(scaled, v, sinks))
    yield from _mixed_windows(layer, evidence, sinks)


def _modulo(layer: int, evidence: Evidence, sinks: Tensor | None) -> Tensor:
    """Attention where key heads are tiled over query heads instead of repeated."""
    q, k, v = (evidence.tap(layer, name) for name in ("q_rot", "k_rot", "values"))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(1, group, 1), v.repeat(1, group, 1)
    seen = can_see(len(q), evidence.config.windows[layer])
    scores = attention_scores(q, k, scale=evidence.config.head_dim**-0.5, is_visible=seen)
    return mix(scores, v, sinks)


def _mixed_windows(layer: int, evidence: Evidence, sinks: Tensor | None) -> Suspects:
    q, k, v = (evidence.tap(layer, name) for name in ("q_rot", "k_rot", "values"))
    scale = evidence.config.head_dim**-0.5
    for words, window in _windows(evidence.config.windows[layer], len(q)).items():
        seen = can_see(len(q), window)
        scores = attention_scores(q, k, scale=scale, is_visible=seen)
        yield Suspect(words, mix(scores, v, sinks))


def _output(_: str, layer: int, evidence: Evidence) -> Suspects:
    weights, x = evidence.layer(layer), evidence.tap(layer, "mixed")
    weight, bias = weights["self_attn.o_proj.weight"], weights.get("self_attn.o_proj.bias")
    if bias is not None:
        yield Suspect("the bias is left out", linear(x, weight))
    if weight.shape[0] == weight.shape[1]:
        yield Suspect("the output projection is transposed", linear(x, weight.T, bias))
    heads = x.view(len(x), -1, evidence.config.head_dim)
    yield Suspect(
        "heads are in another order", linear(_regrouped(heads, evidence).flatten(1), weight, bias)
    )
    yield Suspect("the output projection is left out", x)


_SUSPECTS: Mapping[str, Callable[[str, int, Evidence], Suspects]] = {
    "cos_sin": _angles,
    "q_rot": _rotation,
    "k_rot": _rotation,
    "q": _projection,
    "k": _projection,
    "v": _projection,
    "q_in": _head_norm,
    "k_in": _head_norm,
    "keys": _cache,
    "values": _cache,
    "scores": _scores,
    "sinks": _sinks,
    "mixed": _mixed,
    "attn_out": _output,
}
