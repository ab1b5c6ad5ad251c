"""The checkpoints inside a layer: which tensors each compares, in words, with what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.verify.compare import Tolerances, measure
from inferno.verify.outcome import Measure, Row
from inferno.verify.plain_maths import rotate
from inferno.verify.taps import Taps, at


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """tensors: tap -> what it is, in the order in which they are made."""

    number: str
    title: str
    compared: str
    tensors: Mapping[str, str]


_LAYER = (
    Checkpoint(
        "1", "RMSNorm", "the layer's input after its first norm", {"attn_norm": "normalized input"}
    ),
    Checkpoint(
        "1B",
        "RoPE",
        "angles of every position; the engine's own q and k, turned by the oracle's angles",
        {"cos_sin": "cosines and sines", "q_rot": "rotated q", "k_rot": "rotated k"},
    ),
    Checkpoint(
        "2",
        "QKV",
        "q, k and v after projection, and after the norm of each head where there is one",
        {"q": "q", "k": "k", "v": "v", "q_in": "normalized q", "k_in": "normalized k"},
    ),
    Checkpoint(
        "3",
        "KV cache",
        "keys and values that each step reads, with what was written and with the oracle's",
        {"keys": "keys", "values": "values"},
    ),
    Checkpoint(
        "4",
        "attention scores",
        "scaled q k of every head, which keys are hidden, and sinks",
        {"scores": "scores", "sinks": "sinks"},
    ),
    Checkpoint(
        "5",
        "attention output",
        "weighted values, then the output projection",
        {"mixed": "weighted values", "attn_out": "projected output"},
    ),
    Checkpoint(
        "6",
        "FFN",
        "its normalized input, gate times up, choice and weights of experts, its output",
        {
            "ffn_norm": "normalized input",
            "router": "router's logits",
            "experts": "weights of the chosen experts",
            "ffn_hidden": "gate times up",
            "ffn_out": "output",
        },
    ),
)
_EMBEDDING = {"embed": "embeddings"}
_NORMED = {"q_in": "q", "k_in": "k"}
_TURNED = {"q_rot": "q_in", "k_rot": "k_in"}


def layer_rows(
    found: Taps, expected: Taps, layer: int, tolerances: Tolerances, kv: KVFindings
) -> Iterator[Row]:
    """Checkpoints 1 to 7 of one layer."""
    expected = {**expected, **turned_by_oracle(found, expected, layer)}
    for checkpoint in _LAYER:
        tensors = checkpoint.tensors
        if checkpoint.number == "1" and layer == 0:
            tensors = {**_EMBEDDING, **tensors}
        yield Row(
            number=checkpoint.number,
            title=checkpoint.title,
            compared=checkpoint.compared,
            layer=layer,
            measures=tuple(_measures(found, expected, layer, tensors, tolerances)),
            findings=kv.findings_of(layer) if checkpoint.number == "3" else (),
            problems=tuple(_problems(checkpoint.number, found, expected, layer, tolerances, kv)),
        )
    yield residual_row(found, expected, [layer], tolerances)


def residual_row(found: Taps, expected: Taps, layers: Sequence[int], tolerances: Tolerances) -> Row:
    """Checkpoint 7 of one layer, or of several that lie side by side."""
    first, last = layers[0], layers[-1]
    name = "first block" if last == 0 else f"block {first}"
    measures = []
    for layer in layers:
        tap = at(layer, "residual")
        allowed = tolerances.of(tap, expected[tap], layer + 1)
        words = f"the residual stream after layer {layer}"
        measures.append(measure(tap, words, found[tap], expected[tap], allowed))
    return Row(
        number="7",
        title=name if first == last else f"blocks {first} to {last}",
        compared="the residual stream after the layer" + ("s" if first != last else ""),
        layer=first if first == last else None,
        measures=tuple(measures),
    )


@dataclass(frozen=True, slots=True)
class KVFindings:
    """What the ledger of the KV cache says, by layer."""

    num_reads: Mapping[int, int]
    changes: Mapping[int, Sequence[str]]

    def findings_of(self, layer: int) -> tuple[str, ...]:
        if self.changes.get(layer):
            return ()
        num_reads = self.num_reads.get(layer, 0)
        return (f"{num_reads} reads of a key and a value, each bit for bit as written",)

    def problems_of(self, layer: int) -> tuple[str, ...]:
        return tuple(self.changes.get(layer, ()))[:3]


def turned_by_oracle(found: Taps, expected: Taps, layer: int) -> dict[str, Tensor]:
    """The engine's own q and k as the oracle's angles turn them: RoPE alone, apart from QKV."""
    angles = expected["cos_sin"]
    return {
        at(layer, after): rotate(found[at(layer, before)].float(), angles)
        for after, before in _TURNED.items()
    }


def _problems(
    number: str, found: Taps, expected: Taps, layer: int, tolerances: Tolerances, kv: KVFindings
) -> Iterator[str]:
    """What fails a checkpoint besides numbers."""
    if number == "3":
        yield from kv.problems_of(layer)
    if number == "4" and at(layer, "scores") in found:
        yield from mask_problems(found[at(layer, "scores")], expected[at(layer, "scores")])
    if number == "6" and {at(layer, "router"), at(layer, "experts")} <= found.keys() & expected:
        logits = expected[at(layer, "router")].float()
        allowed = tolerances.of(at(layer, "router"), logits, layer + 1)
        yield from choice_problems(found[at(layer, "experts")] > 0, logits, allowed)


def mask_problems(scores: Tensor, expected: Tensor) -> Iterator[str]:
    """The first position that sees other keys than it should."""
    ours, theirs = scores[0].isfinite(), expected[0].isfinite()
    if ours.shape != theirs.shape or torch.equal(ours, theirs):
        return
    position = int((ours != theirs).any(1).nonzero()[0])
    seen, due = (mask[position].nonzero().flatten().tolist() for mask in (ours, theirs))
    yield f"position {position} sees {_span(seen)}, and should see {_span(due)}"


def _span(positions: Sequence[int]) -> str:
    return f"keys {positions[0]} to {positions[-1]}" if positions else "no keys"


def choice_problems(chosen: Tensor, logits: Tensor, allowed: float) -> Iterator[str]:
    """Tokens whose experts are not the best by the oracle's logits, by more than rounding."""
    lowest_chosen = logits.masked_fill(~chosen, torch.inf).amin(1)
    best_left_out = logits.masked_fill(chosen, -torch.inf).amax(1)
    gaps = best_left_out - lowest_chosen
    for token in (gaps > 2 * allowed).nonzero().flatten().tolist()[:1]:
        yield (
            f"position {token} leaves out an expert whose logit is {float(gaps[token]):.2g} above "
            f"one that it uses"
        )


def _measures(
    found: Taps, expected: Taps, layer: int, tensors: Mapping[str, str], tolerances: Tolerances
) -> Iterator[Measure]:
    for name, words in tensors.items():
        tap = name if name in ("embed", "cos_sin") else at(layer, name)
        if tap not in expected:
            continue  # sinks and experts: not every model has them
        if name in _NORMED and not _has_norm(found, expected, layer, name):
            continue
        yield _measure(tap, words, found, expected, layer, tolerances)


def _measure(
    tap: str, words: str, found: Taps, expected: Taps, layer: int, tolerances: Tolerances
) -> Measure:
    if tap not in found:
        return measure(
            tap, f"{words}, which the engine does not have,", torch.ones(1), torch.zeros(1), 0
        )
    allowed = tolerances.of(tap, expected[tap], layer + 1)
    if tap == "cos_sin":  # an angle has the rounding of its position, in float32 always
        allowed = torch.finfo(torch.float32).eps * (16 + len(expected[tap]))
    return measure(tap, words, found[tap], expected[tap], allowed)


def _has_norm(found: Taps, expected: Taps, layer: int, name: str) -> bool:
    before, after = at(layer, _NORMED[name]), at(layer, name)
    return any(not torch.equal(taps[before], taps[after]) for taps in (found, expected))
