"""The usual mistakes of attention: cache, scores, sinks, masks, heads that share keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from inferno.verify.plain_maths import attention_scores, can_see, linear, mix
from inferno.verify.suspects import Evidence, Suspect, Suspects, Table
from inferno.verify.suspects_projection import regrouped
from inferno.verify.taps import at


def _cache(name: str, layer: int, evidence: Evidence) -> Suspects:
    if name == "keys":
        yield Suspect("keys are stored before they are rotated", evidence.tap(layer, "k_in"))
    right, found = evidence.tap(layer, name), evidence.found[at(layer, name)].float()
    before = torch.cat((found[:1], right[:-1]))  # what the first has is anybody's
    yield Suspect("each position reads what belongs to the one before", before)
    other = "values" if name == "keys" else "keys"
    yield Suspect("keys and values are swapped", evidence.tap(layer, other))
    for number in evidence.layers:
        if number != layer:
            yield Suspect(f"they are those of layer {number}", evidence.tap(number, name))


def _scores(_: str, layer: int, evidence: Evidence) -> Suspects:
    right, found = evidence.tap(layer, "scores"), evidence.found[at(layer, "scores")].float()
    for words, factor in _scales(evidence):
        yield Suspect(words, right * factor)
    yield from _masked(layer, evidence, lambda scores: scores)
    if (window := _seen_window(found)) is not None:
        q, k = evidence.tap(layer, "q_rot"), evidence.tap(layer, "k_rot")
        seen, scale = can_see(len(q), window), evidence.config.head_dim**-0.5
        hiding = attention_scores(q, k, scale=scale, is_visible=seen)
        due = evidence.config.windows[layer]
        words = "where none should" if due is None else f"and should be one of {due}"
        yield Suspect(f"a window of {window} hides keys, {words}", hiding)
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


def _other_scale(found: Tensor, right: Tensor, evidence: Evidence) -> Suspect:
    """Suspect a scale of no name, by the ratio of what was found."""
    is_number, due = right.isfinite(), evidence.config.head_dim**-0.5
    if found.shape != right.shape:
        return Suspect("", right[:0])
    a, b = found[is_number].double().nan_to_num(), right[is_number].double()
    ratio = float(a @ b / (b @ b)) if b.any() else 0.0
    words = f"the scale is {ratio * due:.3g} instead of 1/sqrt(D) = {due:.4g}"
    return Suspect(words, torch.where(is_number, right * ratio, right))


def _seen_window(scores: Tensor) -> int | None:
    """Return the window that the last position's hidden keys show, if they show one."""
    seen = scores[0, -1].isfinite().nonzero().flatten()
    first = int(seen[0]) if len(seen) else 0
    return scores.shape[-1] - first if first else None


def _sinks(_: str, layer: int, evidence: Evidence) -> Suspects:
    right = evidence.tap(layer, "sinks")
    for words, wrong in _wrong_sinks(right, evidence.config.head_dim**-0.5):
        yield Suspect(words, wrong)


def _wrong_sinks(right: Tensor, scale: float) -> Iterator[tuple[str, Tensor]]:
    yield "sinks are multiplied by the scale of q k", right * scale
    yield "sinks are divided by the scale of q k", right / scale
    yield "sinks are negated", -right
    yield "each head has the sink of the head before", right.roll(1)
    yield "each head has the sink of the next head", right.roll(-1)
    yield "heads have the sinks in reverse order", right.flip(0)


def _mixed(_: str, layer: int, evidence: Evidence) -> Suspects:
    scores, v = evidence.tap(layer, "scores"), evidence.tap(layer, "values")
    sinks = evidence.expected.get(at(layer, "sinks"))
    if sinks is not None:
        yield Suspect("sinks are left out", mix(scores, v))
        for words, wrong in _wrong_sinks(sinks.float(), evidence.config.head_dim**-0.5):
            yield Suspect(words, mix(scores, v, wrong))
    yield from _wrong_heads(layer, evidence, sinks)
    for words, factor in _scales(evidence):
        yield Suspect(words, mix(scores * factor, v, sinks))
    yield Suspect("exponentials are to base 2 instead of e", mix(scores * math.log(2), v, sinks))
    for cap in (15.0, 30.0, 50.0):
        capped = cap * torch.tanh(scores / cap)
        hidden = torch.where(scores.isfinite(), capped, scores)
        yield Suspect(f"scores are capped at {cap:g} by a tanh", mix(hidden, v, sinks))
    flat = torch.where(scores.isfinite(), 0.0, scores)
    yield Suspect("all keys weigh the same: scores are left out", mix(flat, v, sinks))
    yield from _masked(layer, evidence, lambda scores: mix(scores, v, sinks))


def _wrong_heads(layer: int, evidence: Evidence, sinks: Tensor | None) -> Suspects:
    """Suspect that query heads read other key or value heads than h // (H/K)."""
    q, k, v = (evidence.tap(layer, name) for name in ("q_rot", "k_rot", "values"))
    group, scale = q.shape[1] // k.shape[1], evidence.config.head_dim**-0.5
    seen = can_see(len(q), evidence.config.windows[layer])

    def mixed(keys: Tensor, values: Tensor) -> Tensor:
        scores = attention_scores(q, keys, scale=scale, is_visible=seen)
        return mix(scores, values, sinks)

    k_tiled, v_tiled = k.repeat(1, group, 1), v.repeat(1, group, 1)
    rule = "h % K instead of h // (H/K)"
    yield Suspect(
        f"query heads read the wrong key and value heads: {rule}", mixed(k_tiled, v_tiled)
    )
    yield Suspect(
        f"query heads read the wrong key heads, {rule}; values are right", mixed(k_tiled, v)
    )
    yield Suspect(
        f"query heads read the wrong value heads, {rule}; keys are right", mixed(k, v_tiled)
    )
    yield Suspect("key and value heads are in reverse order", mixed(k.flip(1), v.flip(1)))
    yield Suspect("key heads are in reverse order; values are right", mixed(k.flip(1), v))
    yield Suspect("value heads are in reverse order; keys are right", mixed(k, v.flip(1)))
    first = "all query heads read the first key and value head"
    yield Suspect(first, mixed(k[:, :1], v[:, :1]))


def _masked(layer: int, evidence: Evidence, finish: Callable[[Tensor], Tensor]) -> Suspects:
    """Suspect that other keys are hidden than should be, for each mistake of a mask."""
    q, k = evidence.tap(layer, "q_rot"), evidence.tap(layer, "k_rot")
    scale = evidence.config.head_dim**-0.5
    unmasked = attention_scores(q, k, scale=scale, is_visible=None)
    for words, seen in _masks(layer, evidence, len(q)):
        yield Suspect(words, finish(unmasked.masked_fill(~seen, -math.inf)))


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


def _output(_: str, layer: int, evidence: Evidence) -> Suspects:
    weights, x = evidence.layer(layer), evidence.tap(layer, "mixed")
    weight, bias = weights["self_attn.o_proj.weight"], weights.get("self_attn.o_proj.bias")
    if bias is not None:
        yield Suspect("the bias is left out", linear(x, weight))
        yield Suspect("the bias is added twice", linear(x, weight, 2 * bias))
    if weight.shape[0] == weight.shape[1]:
        yield Suspect("the output projection is transposed", linear(x, weight.T, bias))
    heads = x.view(len(x), -1, evidence.config.head_dim)
    swapped = regrouped(heads, evidence.config.num_kv_heads).flatten(1)
    yield Suspect("heads are in another order", linear(swapped, weight, bias))
    yield Suspect("the output projection is left out", x)


ATTENTION: Table = {
    **dict.fromkeys(("keys", "values"), _cache),
    "scores": _scores,
    "sinks": _sinks,
    "mixed": _mixed,
    "attn_out": _output,
}
