"""The usual mistakes before attention: angles, rotation, projections, norms of heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inferno.verify.plain_maths import rms_norm, rotate
from inferno.verify.plain_rope import plain_cos_sin
from inferno.verify.suspects import EPS, Evidence, Suspect, Suspects, Table, seen_eps
from inferno.verify.taps import at

_THETAS = (1e4, 1e5, 1.5e5, 5e5, 1e6, 5e6, 1e7)
# Keys of config.json's section, the mistake of taking them otherwise, and how.
_ROPES = (
    ("default", "the scaling of frequencies that config.json asks for is left out"),
    ("linear", "frequencies are scaled as linear scaling does, which config.json does not ask"),
)


def _angles(_: str, __: int, evidence: Evidence) -> Suspects:
    config, right = evidence.config, evidence.expected["cos_sin"].float()
    yield from _shifted(evidence)
    positions = torch.arange(len(right))
    for theta in (*_THETAS, _seen_theta(evidence.found["cos_sin"].float())):
        words = f"theta is {theta:g} instead of {config.rope['rope_theta']:g}"
        yield Suspect(words, plain_cos_sin(config, positions, rope_theta=theta))
    for kind, words in _ROPES:
        if kind == "default" or "factor" in config.rope:
            yield Suspect(words, plain_cos_sin(config, positions, rope_type=kind, type=kind))
    truncate = config.rope.get("truncate", True)
    yield Suspect(
        f"YaRN's ramp is {'not ' if truncate else ''}rounded to whole dimensions",
        plain_cos_sin(config, positions, truncate=not truncate),
    )
    cos, sin = right.chunk(2, dim=-1)
    yield Suspect("cosines and sines are swapped", torch.cat((sin, cos), dim=-1))
    yield Suspect("angles turn the wrong way", torch.cat((cos, -sin), dim=-1))
    yield _magnified(right, evidence)


def _seen_theta(found: Tensor) -> float:
    """Return the theta that gives the slowest pair's angle at position 1, were it not scaled."""
    pairs = found.shape[1] // 2
    if len(found) < 2 or pairs < 2:
        return 1.0
    cos, sin = float(found[1, pairs - 1]), float(found[1, -1])
    angle = math.atan2(sin, cos)
    return angle ** (-pairs / (pairs - 1)) if 1e-30 < angle < 1 else 1.0


def _shifted(evidence: Evidence) -> Suspects:
    """Suspect other positions: those whose angles the engine has, wherever they are."""
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
        yield Suspect(_shift_words(shift, first, is_even=is_even), table[nearest + count])


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


def _magnified(right: Tensor, evidence: Evidence) -> Suspect:
    """Suspect a wrong factor of cosines and sines: YaRN has one, others none."""
    found = evidence.found["cos_sin"].float()
    if found.shape != right.shape:
        return Suspect("", right[:0])
    due = float(right[0].norm()) / math.sqrt(right.shape[1] / 2)
    factor = float((found * right).sum() / right.square().sum()) * due
    words = f"cosines and sines are multiplied by {factor:.4g}, and should be by {due:.4g}"
    is_yarn = evidence.config.rope.get("rope_type", evidence.config.rope.get("type")) == "yarn"
    return Suspect(words + (": YaRN's attention factor" if is_yarn else ""), right * (factor / due))


def _rotation(name: str, layer: int, evidence: Evidence) -> Suspects:
    """Yield the engine's own q or k, turned in other ways."""
    x = evidence.found[at(layer, name.replace("rot", "in"))].float()
    before_norm = evidence.found[at(layer, name[0])].float()
    angles = evidence.expected["cos_sin"].float()
    cos, sin = angles.chunk(2, dim=-1)
    yield Suspect(
        "RoPE pairs are interleaved: (2i, 2i+1) instead of (i, i + D/2)", _interleaved(x, angles)
    )
    backwards = torch.cat((cos, -sin), dim=-1)
    yield Suspect("RoPE turns the wrong way: the halves are swapped", rotate(x, backwards))
    yield Suspect("nothing is rotated", x)
    yield Suspect("the norm of each head is left out or comes after", rotate(before_norm, angles))
    for shift, words in ((1, "next"), (-1, "one before")):
        turned = rotate(x, plain_cos_sin(evidence.config, torch.arange(len(x)) + shift))
        yield Suspect(
            f"positions are off by one: each is turned by the angle of the {words}", turned
        )
    half = x.shape[-1] // 2
    partly = torch.cat((rotate(x, angles)[..., :half], x[..., half:]), dim=-1)
    yield Suspect("only the first half of each head is rotated", partly)


def _interleaved(x_THD: Tensor, angles: Tensor) -> Tensor:
    """Rotate pairs (2i, 2i + 1), as the first Llama's own checkpoints have them."""
    apart = torch.cat((x_THD[..., ::2], x_THD[..., 1::2]), dim=-1)
    turned = rotate(apart, angles)
    half = turned.shape[-1] // 2
    return torch.stack((turned[..., :half], turned[..., half:]), dim=-1).flatten(-2)


def _projection(name: str, layer: int, evidence: Evidence) -> Suspects:
    weights, right = evidence.layer(layer), evidence.tap(layer, name)
    if (bias := weights.get(f"self_attn.{name}_proj.bias")) is not None:
        yield Suspect("the bias is left out", right - bias.view(right.shape[1:]))
        yield Suspect("the bias is added twice", right + bias.view(right.shape[1:]))
    for other in "qkv".replace(name, ""):
        yield Suspect(f"it holds {other}", evidence.tap(layer, other))
    yield Suspect(
        "heads are in another order: groups and members are swapped",
        regrouped(right, evidence.config.num_kv_heads),
    )
    permuted = "the rows of each head are permuted, as for interleaved RoPE"
    yield Suspect(permuted, torch.cat((right[..., ::2], right[..., 1::2]), dim=-1))
    half = right.shape[-1] // 2
    odd_even = torch.stack((right[..., :half], right[..., half:]), dim=-1).flatten(-2)
    yield Suspect(permuted, odd_even)


def regrouped(x_THD: Tensor, groups: int) -> Tensor:
    """Order heads by member and group instead of by group and member."""
    if x_THD.shape[1] == groups:
        return x_THD.flip(1)
    return x_THD.view(len(x_THD), groups, -1, x_THD.shape[-1]).transpose(1, 2).flatten(1, 2)


def _head_norm(name: str, layer: int, evidence: Evidence) -> Suspects:
    """Yield mistakes of q_in or k_in, from the oracle's q or k."""
    own, other = name[0], "k" if name[0] == "q" else "q"
    weights, x, right = evidence.layer(layer), evidence.tap(layer, own), evidence.config.eps
    yield Suspect(f"the norm of each head of {own} is left out", x)
    weight = weights.get(f"self_attn.{own}_norm.weight")
    if weight is None:
        return
    swapped = weights[f"self_attn.{other}_norm.weight"]
    yield Suspect(f"{own} is normalized with the weights of {other}", rms_norm(x, swapped, right))
    yield Suspect("the norm's weights are left out", rms_norm(x, torch.ones_like(weight), right))
    for eps in (*EPS, seen_eps(evidence.found[at(layer, name)], x, weight)):
        yield Suspect(f"eps is {eps:.3g} instead of {right:g}", rms_norm(x, weight, eps))
    whole = rms_norm(x.flatten(1), weight.repeat(x.shape[1]), right)
    yield Suspect("all heads are normalized together", whole.view(x.shape))


PROJECTION: Table = {
    "cos_sin": _angles,
    **dict.fromkeys(("q_rot", "k_rot"), _rotation),
    **dict.fromkeys(("q", "k", "v"), _projection),
    **dict.fromkeys(("q_in", "k_in"), _head_norm),
}
