"""The checkpoints inside a layer: which tensors each compares, in words, with what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inferno.verify.checks.measures import Tolerances, measure, without_numbers
from inferno.verify.checks.products import EMBEDDING, Products
from inferno.verify.oracles import Choices
from inferno.verify.oracles.plain_maths import rotate
from inferno.verify.outcome import Measure, Row
from inferno.verify.runs.taps import Taps, at, is_compared, why_missing


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A point inside a layer at which tensors are compared.

    tensors: tap -> what it is, in the order in which they are made.
    """

    number: str
    title: str
    compared: str
    tensors: Mapping[str, str]


_LAYER = (
    Checkpoint(
        "1", "RMSNorm", "what enters attention", {"attn_norm": "the layer's normalized input"}
    ),
    Checkpoint(
        "1B",
        "RoPE",
        "angles of all positions; q and k after rotation",
        {"cos_sin": "cosines and sines", "q_rot": "q after rotation", "k_rot": "k after rotation"},
    ),
    Checkpoint(
        "2",
        "QKV",
        "q, k, v after projection, and after head norms",
        {"q": "q", "k": "k", "v": "v", "q_in": "q after its norm", "k_in": "k after its norm"},
    ),
    Checkpoint(
        "3", "KV cache", "what each step reads", {"keys": "cached keys", "values": "cached values"}
    ),
    Checkpoint(
        "4",
        "attention scores",
        "scaled q k of every head, hidden keys, sinks",
        {"scores": "scores", "sinks": "sinks"},
    ),
    Checkpoint(
        "5",
        "attention output",
        "weighted values, and what leaves attention",
        {"mixed": "weighted values", "attn_out": "attention's output"},
    ),
    Checkpoint(
        "6",
        "FFN",
        "input, choice of experts, gate times up, output",
        {
            "ffn_norm": "the FFN's normalized input",
            "router": "router's logits",
            "experts": "chosen experts",
            "ffn_hidden": "gate times up",
            "ffn_out": "the FFN's output",
        },
    ),
)
_EMBEDDING = {"embed": "the embeddings that enter layer 0"}
_NORMED = {"q_in": "q", "k_in": "k"}
_TURNED = {"q_rot": "q_in", "k_rot": "k_in"}
_SHARED = ("embed", "cos_sin")  # by all layers


def layer_rows(
    found: Taps,
    expected: Taps,
    layer: int,
    tolerances: Tolerances,
    kv: KVFindings,
    products: Products,
) -> Iterator[Row]:
    """Yield the rows of checkpoints 1 to 7 of one layer."""
    expected = {**expected, **turned_by_oracle(found, expected, layer)}
    for checkpoint in _LAYER:
        tensors, compared = checkpoint.tensors, checkpoint.compared
        if checkpoint.number == "1" and layer == 0:
            tensors, compared = {**_EMBEDDING, **tensors}, f"embeddings, and {compared}"
        measures = _measures(found, expected, layer, tensors, tolerances)
        yield Row(
            number=checkpoint.number,
            title=checkpoint.title,
            compared=compared,
            layer=layer,
            measures=tuple(_with_problem(one, found, expected, layer, kv) for one in measures),
            products=tuple(_products_of(layer, products, checkpoint.number)),
            findings=kv.findings_of(layer) if checkpoint.number == "3" else (),
        )
    yield residual_row(found, expected, [layer], tolerances, {})


def unseen_layers_row(num_layers: int, kv: KVFindings, products: Products) -> Row:
    """Build the row of all layers where an oracle shows none of their tensors."""
    layers = range(num_layers)
    problems = (kv.problem_of(layer) for layer in layers)
    return Row(
        number="7",
        title="all layers",
        compared="products from the engine's own input, and cached keys and values with what was "
        "written; this oracle shows nothing inside",
        products=tuple(one for layer in layers for one in _products_of(layer, products, None)),
        problems=tuple(problem for problem in problems if problem),
    )


def _products_of(layer: int, products: Products, number: str | None) -> Iterator[Measure]:
    """Yield the measures of a layer's products, of one checkpoint or, if None, of all."""
    for where, measures in products.items():
        owner = "model.layers.0." if where == EMBEDDING else where
        is_of_layer = owner.startswith(f"model.layers.{layer}.")
        if is_of_layer and number in (None, _checkpoint_of(where)):
            yield from measures


def _checkpoint_of(where: str) -> str:
    """Return the number of the checkpoint that a module's product belongs to."""
    if where == EMBEDDING:
        return "1"
    if ".self_attn." not in where:
        return "6"
    return "5" if where.endswith("o_proj") else "2"


def residual_row(
    found: Taps,
    expected: Taps,
    layers: Sequence[int],
    tolerances: Tolerances,
    products: Products,
) -> Row:
    """Build the row of checkpoint 7, of one layer or several side by side, with their products."""
    first, last = layers[0], layers[-1]
    name = "first block" if last == 0 else f"layer {first}"
    stream = f"after layer {first}" if first == last else f"after layers {first} to {last}"
    return Row(
        number="7",
        title=name if first == last else f"layers {first} to {last}",
        compared=f"the residual stream {stream}",
        layer=first if first == last else None,
        measures=tuple(
            one for layer in layers for one in _leaving(found, expected, layer, tolerances)
        ),
        products=tuple(one for layer in layers for one in _products_of(layer, products, None)),
    )


def _leaving(found: Taps, expected: Taps, layer: int, tolerances: Tolerances) -> Iterator[Measure]:
    """Compare a layer's output; where nobody looks into the layer, report odd experts too."""
    is_inside = at(layer, "ffn_out") in found
    if not is_inside and (problem := choice_problem(found, expected, layer, tolerances)):
        tap, name = at(layer, "experts"), f"chosen experts of layer {layer}"
        yield without_numbers(tap, name, 0.0, problem)
    tap, name = at(layer, "residual"), f"the residual stream after layer {layer}"
    yield _measure(tap, name, found, expected, layer, tolerances)


@dataclass(frozen=True, slots=True)
class KVFindings:
    """The findings of the KV cache's log, by layer: how many reads, and which changes."""

    num_reads: Mapping[int, int]
    changes: Mapping[int, Sequence[str]]

    def findings_of(self, layer: int) -> tuple[str, ...]:
        num_reads = self.num_reads.get(layer, 0)
        if self.changes.get(layer) or not num_reads:
            return ()
        return (f"{num_reads} reads of a key and a value, each bit for bit as written",)

    def problem_of(self, layer: int) -> str:
        return next(iter(self.changes.get(layer, ())), "")


def turned_by_oracle(found: Taps, expected: Taps, layer: int) -> dict[str, Tensor]:
    """Rotate the engine's own q and k by the oracle's angles: RoPE alone, apart from QKV."""
    angles = expected["cos_sin"]
    pairs = [(at(layer, after), at(layer, before)) for after, before in _TURNED.items()]
    return {
        after: rotate(found[before].float(), angles)
        for after, before in pairs
        if before in found and len(found[before]) == len(angles)
    }


def _with_problem(one: Measure, found: Taps, expected: Taps, layer: int, kv: KVFindings) -> Measure:
    """Add to a measure what the log of the KV cache, or the mask, shows to be wrong."""
    if one.problem:
        return one
    match one.tap.rpartition(".")[2]:
        case "keys":
            return replace(one, problem=kv.problem_of(layer))
        case "scores":
            return replace(one, problem=mask_problem(found[one.tap], expected[one.tap]))
    return one


def mask_problem(scores: Tensor, expected: Tensor) -> str:
    """Describe the first position that sees other keys than it should; "" if there is none."""
    ours, theirs = scores[0].isfinite(), expected[0].isfinite()
    if ours.shape != theirs.shape or torch.equal(ours, theirs):
        return ""
    position = int((ours != theirs).any(1).nonzero()[0])
    seen, due = (mask[position].nonzero().flatten().tolist() for mask in (ours, theirs))
    return f"position {position} sees {_span(seen)}, and should see {_span(due)}"


def _span(positions: Sequence[int]) -> str:
    return f"keys {positions[0]} to {positions[-1]}" if positions else "no keys"


def _measures(
    found: Taps, expected: Taps, layer: int, tensors: Mapping[str, str], tolerances: Tolerances
) -> Iterator[Measure]:
    for name, words in tensors.items():
        tap = name if name in _SHARED else at(layer, name)
        if not is_compared(tap, found, expected):
            continue
        if name in _NORMED and not _has_norm(found, expected, layer, name):
            continue
        one = _measure(tap, words, found, expected, layer, tolerances)
        if name == "experts" and not one.problem:
            one = replace(one, problem=choice_problem(found, expected, layer, tolerances))
        yield one


def _measure(
    tap: str, words: str, found: Taps, expected: Taps, layer: int, tolerances: Tolerances
) -> Measure:
    if problem := why_missing(tap, words, found, expected):
        return without_numbers(tap, words, 0.0, problem)
    if tap == "cos_sin":  # an angle has the rounding of its position, in float32 always
        allowed = torch.finfo(torch.float32).eps * (16 + len(expected[tap]))
        return measure(tap, words, found[tap], expected[tap], allowed)
    allowed, relative = tolerances.of(tap, expected[tap], layer + 1), tolerances.relative_of(tap)
    return measure(tap, words, found[tap], expected[tap], allowed, relative)


def _has_norm(found: Taps, expected: Taps, layer: int, name: str) -> bool:
    """Return whether heads are normalized before they rotate, by the engine or the oracle."""
    before, after = at(layer, _NORMED[name]), at(layer, name)
    both = [taps for taps in (found, expected) if {before, after} <= taps.keys()]
    return any(not torch.equal(taps[before], taps[after]) for taps in both)


def choices_of(found: Taps, num_layers: int, num_chosen: int) -> Choices:
    """Return the chosen experts by layer, where all tokens have as many as they should: [T, X]."""
    chosen = {layer: found[tap] > 0 for layer in range(num_layers) if (tap := _tap(layer)) in found}
    return {layer: mask for layer, mask in chosen.items() if (mask.sum(1) == num_chosen).all()}


def choice_problem(found: Taps, expected: Taps, layer: int, tolerances: Tolerances) -> str:
    """Describe what is wrong with a layer's choice of experts; "" if the oracle can't tell."""
    router = at(layer, "router")
    if router not in expected or _tap(layer) not in found:
        return ""
    logits = expected[router].float()
    allowed = tolerances.of(router, logits, layer + 1)
    chosen = found[_tap(layer)] > 0
    return passed_over(chosen, logits, allowed) if chosen.shape == logits.shape else ""


def passed_over(chosen: Tensor, logits: Tensor, allowed: float) -> str:
    """Describe the first token that uses an expert though it leaves out a better one; else "".

    A gap between logits that rounding explains does not count.
    """
    lowest_chosen = logits.masked_fill(~chosen, float("inf")).amin(1)
    best_left_out = logits.masked_fill(chosen, float("-inf")).amax(1)
    gaps = best_left_out - lowest_chosen
    for token in (gaps > 2 * allowed).nonzero().flatten().tolist()[:1]:
        return (
            f"position {token} leaves out an expert whose logit is {float(gaps[token]):.2g} above "
            f"one that it uses"
        )
    return ""


def _tap(layer: int) -> str:
    return at(layer, "experts")
