"""The usual mistakes of attention: angles, projections, head norms, cache, scores, masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from inferno.verify.diagnosis.evidence import (
    EPS,
    Evidence,
    Hypotheses,
    Hypothesis,
    Table,
    observed_eps,
)
from inferno.verify.oracles.plain_config import plain_cos_sin
from inferno.verify.oracles.plain_maths import (
    attention_scores,
    can_see,
    linear,
    mix,
    rms_norm,
    rotate,
)
from inferno.verify.runs.taps import at

_THETAS = (1e4, 1e5, 1.5e5, 5e5, 1e6, 5e6, 1e7)
# Keys of config.json's section, the mistake of taking them otherwise, and how.
_ROPES = (
    ("default", "the scaling of frequencies that config.json asks for is left out"),
    ("linear", "frequencies are scaled as linear scaling does, which config.json does not ask"),
)


def _angles(_: str, __: int, evidence: Evidence) -> Hypotheses:
    config, right = evidence.config, evidence.expected["cos_sin"].float()
    yield from _shifted(evidence)
    positions = torch.arange(len(right))
    for theta in (*_THETAS, _observed_theta(evidence.found["cos_sin"].float())):
        words = f"theta is {theta:g} instead of {config.rope['rope_theta']:g}"
        yield Hypothesis(words, plain_cos_sin(config, positions, rope_theta=theta))
    for kind, words in _ROPES:
        if kind == "default" or "factor" in config.rope:
            yield Hypothesis(words, plain_cos_sin(config, positions, rope_type=kind, type=kind))
    truncate = config.rope.get("truncate", True)
    yield Hypothesis(
        f"YaRN's ramp is {'not ' if truncate else ''}rounded to whole dimensions",
        plain_cos_sin(config, positions, truncate=not truncate),
    )
    cos, sin = right.chunk(2, dim=-1)
    yield Hypothesis("cosines and sines are swapped", torch.cat((sin, cos), dim=-1))
    yield Hypothesis("angles turn the wrong way", torch.cat((cos, -sin), dim=-1))
    yield _magnified(right, evidence)


def _observed_theta(found: Tensor) -> float:
    """Return the theta that gives the slowest pair's angle at position 1, were it not scaled."""
    pairs = found.shape[1] // 2
    if len(found) < 2 or pairs < 2:
        return 1.0
    cos, sin = float(found[1, pairs - 1]), float(found[1, -1])
    angle = math.atan2(sin, cos)
    return angle ** (-pairs / (pairs - 1)) if 1e-30 < angle < 1 else 1.0


def _shifted(evidence: Evidence) -> Hypotheses:
    """Propose other positions: those whose angles the engine has, wherever they are."""
    found, count = evidence.found["cos_sin"].float(), len(evidence.expected["cos_sin"])
    candidates = torch.arange(-count, 2 * count)
    table = plain_cos_sin(evidence.config, candidates)
    if found.shape[1:] != table.shape[1:]:
        return
    nearest = candidates[torch.cdist(found, table).argmin(1)]
    shifts = nearest - torch.arange(len(nearest))
    wrong = shifts.nonzero().flatten().tolist()
    if wrong:
        shift, first = int(shifts[wrong[0]]), wrong[0]
        is_even = bool((shifts[wrong] == shift).all())
        yield Hypothesis(_shift_words(shift, first, is_even=is_even), table[nearest + count])


def _shift_words(shift: int, first: int, *, is_even: bool) -> str:
    if not is_even and first + shift == 0:
        return f"positions are counted anew: token {first} is turned as the first should be"
    if not is_even:
        return f"positions are mixed up: token {first} is turned by the angle of {first + shift}"
    if abs(shift) == 1:
        neighbour = "next" if shift > 0 else "one before"
        return f"positions are off by one: each token is turned by the angle of the {neighbour}"
    return (
        f"positions are off by {abs(shift)}: token {first} is turned as {first + shift} should be"
    )


def _magnified(right: Tensor, evidence: Evidence) -> Hypothesis:
    """Propose a wrong factor of cosines and sines: YaRN has one, others none."""
    found = evidence.found["cos_sin"].float()
    if found.shape != right.shape:
        return Hypothesis("", right[:0])
    due = float(right[0].norm()) / math.sqrt(right.shape[1] / 2)
    factor = float((found * right).sum() / right.square().sum()) * due
    words = f"cosines and sines are multiplied by {factor:.4g}, and should be by {due:.4g}"
    is_yarn = evidence.config.rope.get("rope_type", evidence.config.rope.get("type")) == "yarn"
    return Hypothesis(
        words + (": YaRN's attention factor" if is_yarn else ""), right * (factor / due)
    )


def _rotation(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    """Yield the engine's own q or k, turned in other ways."""
    x = evidence.found[at(layer, name.replace("rot", "in"))].float()
    before_norm = evidence.found[at(layer, name[0])].float()
    angles = evidence.expected["cos_sin"].float()
    cos, sin = angles.chunk(2, dim=-1)
    yield Hypothesis(
        "RoPE pairs are interleaved: (2i, 2i+1) instead of (i, i + D/2)", _interleaved(x, angles)
    )
    backwards = torch.cat((cos, -sin), dim=-1)
    yield Hypothesis("RoPE turns the wrong way: the halves are swapped", rotate(x, backwards))
    yield Hypothesis("nothing is rotated", x)
    yield Hypothesis(
        "the norm of each head is left out or comes after", rotate(before_norm, angles)
    )
    for shift, words in ((1, "next"), (-1, "one before")):
        turned = rotate(x, plain_cos_sin(evidence.config, torch.arange(len(x)) + shift))
        yield Hypothesis(
            f"positions are off by one: each is turned by the angle of the {words}", turned
        )
    half = x.shape[-1] // 2
    partly = torch.cat((rotate(x, angles)[..., :half], x[..., half:]), dim=-1)
    yield Hypothesis("only the first half of each head is rotated", partly)


def _interleaved(x_THD: Tensor, angles: Tensor) -> Tensor:
    """Rotate pairs (2i, 2i + 1), as the first Llama's own checkpoints have them."""
    apart = torch.cat((x_THD[..., ::2], x_THD[..., 1::2]), dim=-1)
    turned = rotate(apart, angles)
    half = turned.shape[-1] // 2
    return torch.stack((turned[..., :half], turned[..., half:]), dim=-1).flatten(-2)


def _projection(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, right = evidence.layer(layer), evidence.tap(layer, name)
    if (bias := weights.get(f"self_attn.{name}_proj.bias")) is not None:
        yield Hypothesis("the bias is left out", right - bias.view(right.shape[1:]))
        yield Hypothesis("the bias is added twice", right + bias.view(right.shape[1:]))
    for other in "qkv".replace(name, ""):
        yield Hypothesis(f"it holds {other}", evidence.tap(layer, other))
    yield Hypothesis(
        "heads are in another order: groups and members are swapped",
        _regrouped(right, evidence.config.num_kv_heads),
    )
    permuted = "the rows of each head are permuted, as for interleaved RoPE"
    yield Hypothesis(permuted, torch.cat((right[..., ::2], right[..., 1::2]), dim=-1))
    half = right.shape[-1] // 2
    odd_even = torch.stack((right[..., :half], right[..., half:]), dim=-1).flatten(-2)
    yield Hypothesis(permuted, odd_even)


def _regrouped(x_THD: Tensor, groups: int) -> Tensor:
    """Order heads by member and group instead of by group and member."""
    if x_THD.shape[1] == groups:
        return x_THD.flip(1)
    return x_THD.view(len(x_THD), groups, -1, x_THD.shape[-1]).transpose(1, 2).flatten(1, 2)


def _head_norm(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    """Yield mistakes of q_in or k_in, from the oracle's q or k."""
    own, other = name[0], "k" if name[0] == "q" else "q"
    weights, x, right = evidence.layer(layer), evidence.tap(layer, own), evidence.config.eps
    yield Hypothesis(f"the norm of each head of {own} is left out", x)
    weight = weights.get(f"self_attn.{own}_norm.weight")
    if weight is None:
        return
    swapped = weights[f"self_attn.{other}_norm.weight"]
    yield Hypothesis(
        f"{own} is normalized with the weights of {other}", rms_norm(x, swapped, right)
    )
    yield Hypothesis("the norm's weights are left out", rms_norm(x, torch.ones_like(weight), right))
    for eps in (*EPS, observed_eps(evidence.found[at(layer, name)], x, weight)):
        yield Hypothesis(f"eps is {eps:.3g} instead of {right:g}", rms_norm(x, weight, eps))
    whole = rms_norm(x.flatten(1), weight.repeat(x.shape[1]), right)
    yield Hypothesis("all heads are normalized together", whole.view(x.shape))


def _cache(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    if name == "keys":
        yield Hypothesis("keys are stored before they are rotated", evidence.tap(layer, "k_in"))
    right, found = evidence.tap(layer, name), evidence.found[at(layer, name)].float()
    before = torch.cat((found[:1], right[:-1]))  # what the first has is anybody's
    yield Hypothesis("each position reads what belongs to the one before", before)
    other = "values" if name == "keys" else "keys"
    yield Hypothesis("keys and values are swapped", evidence.tap(layer, other))
    for number in evidence.layers:
        if number != layer:
            yield Hypothesis(f"they are those of layer {number}", evidence.tap(number, name))


def _scores(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    right, found = evidence.tap(layer, "scores"), evidence.found[at(layer, "scores")].float()
    for words, factor in _scales(evidence):
        yield Hypothesis(words, right * factor)
    yield from _masked(layer, evidence, lambda scores: scores)
    if (window := _observed_window(found)) is not None:
        q, k = evidence.tap(layer, "q_rot"), evidence.tap(layer, "k_rot")
        seen, scale = can_see(len(q), window), evidence.config.head_dim**-0.5
        hiding = attention_scores(q, k, scale=scale, is_visible=seen)
        due = evidence.config.windows[layer]
        words = "where none should" if due is None else f"and should be one of {due}"
        yield Hypothesis(f"a window of {window} hides keys, {words}", hiding)
    yield _other_scale(found, right, evidence)


def _scales(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield wrong scales by name, and by how much scores are too large with them."""
    config = evidence.config
    size, width = config.head_dim, config.hidden_size
    due = size**-0.5
    wrong = {
        "1": 1.0,
        "1/D": 1 / size,
        "1/D²": size**-2.0,
        "1/sqrt(E)": width**-0.5,
        "1/sqrt(E/H)": (width / config.num_heads) ** -0.5,
        "1/sqrt(E/K)": (width / config.num_kv_heads) ** -0.5,
        "sqrt(D)": size**0.5,
    }
    for words, scale in wrong.items():
        if not math.isclose(scale, due):
            yield (
                f"the scale is {words} = {scale:.4g} instead of 1/sqrt(D) = {due:.4g}",
                scale / due,
            )


def _other_scale(found: Tensor, right: Tensor, evidence: Evidence) -> Hypothesis:
    """Propose a scale of no name, by the ratio of what was found."""
    is_number, due = right.isfinite(), evidence.config.head_dim**-0.5
    if found.shape != right.shape:
        return Hypothesis("", right[:0])
    a, b = found[is_number].double().nan_to_num(), right[is_number].double()
    ratio = float(a @ b / (b @ b)) if b.any() else 0.0
    words = f"the scale is {ratio * due:.3g} instead of 1/sqrt(D) = {due:.4g}"
    return Hypothesis(words, torch.where(is_number, right * ratio, right))


def _observed_window(scores: Tensor) -> int | None:
    """Return the window that the last position's hidden keys show, if they show one."""
    seen = scores[0, -1].isfinite().nonzero().flatten()
    first = int(seen[0]) if len(seen) else 0
    return scores.shape[-1] - first if first else None


def _sinks(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    right = evidence.tap(layer, "sinks")
    for words, wrong in _wrong_sinks(right, evidence.config.head_dim**-0.5):
        yield Hypothesis(words, wrong)


def _wrong_sinks(right: Tensor, scale: float) -> Iterator[tuple[str, Tensor]]:
    yield "sinks are multiplied by the scale of q k", right * scale
    yield "sinks are divided by the scale of q k", right / scale
    yield "sinks are negated", -right
    yield "each head has the sink of the head before", right.roll(1)
    yield "each head has the sink of the next head", right.roll(-1)
    yield "heads have the sinks in reverse order", right.flip(0)


def _mixed(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    scores, v = evidence.tap(layer, "scores"), evidence.tap(layer, "values")
    sinks = evidence.expected.get(at(layer, "sinks"))
    if sinks is not None:
        yield Hypothesis("sinks are left out", mix(scores, v))
        for words, wrong in _wrong_sinks(sinks.float(), evidence.config.head_dim**-0.5):
            yield Hypothesis(words, mix(scores, v, wrong))
    yield from _wrong_heads(layer, evidence, sinks)
    for words, factor in _scales(evidence):
        yield Hypothesis(words, mix(scores * factor, v, sinks))
    yield Hypothesis("exponentials are to base 2 instead of e", mix(scores * math.log(2), v, sinks))
    for cap in (15.0, 30.0, 50.0):
        capped = cap * torch.tanh(scores / cap)
        hidden = torch.where(scores.isfinite(), capped, scores)
        yield Hypothesis(f"scores are capped at {cap:g} by a tanh", mix(hidden, v, sinks))
    flat = torch.where(scores.isfinite(), 0.0, scores)
    yield Hypothesis("all keys weigh the same: scores are left out", mix(flat, v, sinks))
    yield from _masked(layer, evidence, lambda scores: mix(scores, v, sinks))


def _wrong_heads(layer: int, evidence: Evidence, sinks: Tensor | None) -> Hypotheses:
    """Propose that query heads read other key or value heads than h // (H/K)."""
    q, k, v = (evidence.tap(layer, name) for name in ("q_rot", "k_rot", "values"))
    group, scale = q.shape[1] // k.shape[1], evidence.config.head_dim**-0.5
    seen = can_see(len(q), evidence.config.windows[layer])

    def mixed(keys: Tensor, values: Tensor) -> Tensor:
        scores = attention_scores(q, keys, scale=scale, is_visible=seen)
        return mix(scores, values, sinks)

    k_tiled, v_tiled = k.repeat(1, group, 1), v.repeat(1, group, 1)
    rule = "h % K instead of h // (H/K)"
    yield Hypothesis(
        f"query heads read the wrong key and value heads: {rule}", mixed(k_tiled, v_tiled)
    )
    yield Hypothesis(
        f"query heads read the wrong key heads, {rule}; values are right", mixed(k_tiled, v)
    )
    yield Hypothesis(
        f"query heads read the wrong value heads, {rule}; keys are right", mixed(k, v_tiled)
    )
    yield Hypothesis("key and value heads are in reverse order", mixed(k.flip(1), v.flip(1)))
    yield Hypothesis("key heads are in reverse order; values are right", mixed(k.flip(1), v))
    yield Hypothesis("value heads are in reverse order; keys are right", mixed(k, v.flip(1)))
    first = "all query heads read the first key and value head"
    yield Hypothesis(first, mixed(k[:, :1], v[:, :1]))


def _masked(layer: int, evidence: Evidence, finish: Callable[[Tensor], Tensor]) -> Hypotheses:
    """Propose that other keys are hidden than should be, for each mistake of a mask."""
    q, k = evidence.tap(layer, "q_rot"), evidence.tap(layer, "k_rot")
    scale = evidence.config.head_dim**-0.5
    unmasked = attention_scores(q, k, scale=scale, is_visible=None)
    for words, seen in _masks(layer, evidence, len(q)):
        yield Hypothesis(words, finish(unmasked.masked_fill(~seen, -math.inf)))


def _masks(layer: int, evidence: Evidence, length: int) -> Iterator[tuple[str, Tensor]]:
    window, windows = evidence.config.windows[layer], set(evidence.config.windows)
    right, back = can_see(length, window), torch.arange(length)
    if window is not None:
        yield "the window is one too wide", can_see(length, window + 1)
        yield "the window is one too narrow", can_see(length, max(window - 1, 1))
        yield "the window is left out", can_see(length, None)
    for other in sorted(other for other in windows - {window} if other is not None):
        yield f"the window is {other}, which other layers have", can_see(length, other)
    # A step's queries can't see keys of later steps, which are not there yet.
    step = torch.where(back < evidence.num_prompt, back // evidence.chunk, back)
    is_there = step <= step[:, None]
    ahead = right | (back == back[:, None] + 1)
    yield "queries see one key too far ahead", ahead & is_there
    behind = right | (back > back[:, None])
    yield "nothing is hidden: the causal mask is left out", behind & is_there
    not_own = (back[:, None] != back) | (back[:, None] == 0)  # the first has no other
    yield "queries do not see their own key", right & not_own
    yield "queries see no key of an earlier step", right & (step[:, None] == step)


def _output(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, x = evidence.layer(layer), evidence.tap(layer, "mixed")
    weight, bias = weights["self_attn.o_proj.weight"], weights.get("self_attn.o_proj.bias")
    if bias is not None:
        yield Hypothesis("the bias is left out", linear(x, weight))
        yield Hypothesis("the bias is added twice", linear(x, weight, 2 * bias))
    if weight.shape[0] == weight.shape[1]:
        yield Hypothesis("the output projection is transposed", linear(x, weight.T, bias))
    heads = x.view(len(x), -1, evidence.config.head_dim)
    swapped = _regrouped(heads, evidence.config.num_kv_heads).flatten(1)
    yield Hypothesis("heads are in another order", linear(swapped, weight, bias))
    yield Hypothesis("the output projection is left out", x)


ATTENTION: Table = {
    "cos_sin": _angles,
    **dict.fromkeys(("q_rot", "k_rot"), _rotation),
    **dict.fromkeys(("q", "k", "v"), _projection),
    **dict.fromkeys(("q_in", "k_in"), _head_norm),
    **dict.fromkeys(("keys", "values"), _cache),
    "scores": _scores,
    "sinks": _sinks,
    "mixed": _mixed,
    "attn_out": _output,
}
