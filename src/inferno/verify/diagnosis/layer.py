"""The usual mistakes outside attention: embedding, norms, feed-forward, residual stream, head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.verify.diagnosis.evidence import (
    EPS,
    Evidence,
    Hypotheses,
    Hypothesis,
    Table,
    observed_eps,
)
from inferno.verify.oracles.plain_maths import linear, rms_norm, swiglu
from inferno.verify.runs.taps import at


def _embedding(_: str, __: int, evidence: Evidence) -> Hypotheses:
    right = evidence.expected["embed"].float()
    root = right.shape[1] ** 0.5
    yield Hypothesis(f"embeddings are multiplied by sqrt(E) = {root:.4g}", right * root)
    yield Hypothesis(f"embeddings are divided by sqrt(E) = {root:.4g}", right / root)
    eps = evidence.config.eps
    yield Hypothesis("embeddings are normalized", rms_norm(right, torch.ones(right.shape[1]), eps))
    table, ids = evidence.weights.embedding(), torch.tensor(evidence.token_ids)
    for shift, words in ((1, "next"), (-1, "one before")):
        off = (ids + shift) % len(table)
        yield Hypothesis(f"token ids are off by one: each has the row of the {words}", table[off])


def _first_norm(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, stream = evidence.layer(layer), evidence.input_of(layer)
    own, other = (weights[f"{kind}_layernorm.weight"] for kind in ("input", "post_attention"))
    yield from _norm(evidence.found[at(layer, name)], stream, own, other, evidence)
    last = evidence.expected.get(at(layer - 1, "ffn_out"))
    if layer > 0 and last is not None:
        eps, words = evidence.config.eps, f"the output of layer {layer - 1}'s FFN"
        yield Hypothesis(f"the residual is not added to {words}", rms_norm(last.float(), own, eps))
        yield Hypothesis(f"{words} is not added before it", rms_norm(stream - last, own, eps))
        yield Hypothesis(f"{words} is added twice before it", rms_norm(stream + last, own, eps))


def _second_norm(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, before = evidence.layer(layer), evidence.input_of(layer)
    own, other = (weights[f"{kind}_layernorm.weight"] for kind in ("post_attention", "input"))
    middle = before + evidence.tap(layer, "attn_out")
    yield from _norm(evidence.found[at(layer, name)], middle, own, other, evidence)
    attention, eps = evidence.tap(layer, "attn_out"), evidence.config.eps
    for words, stream in {
        "the residual is not added before it": attention,
        "attention's output is not added before it": before,
        "the residual is added twice before it": 2 * before + attention,
        "attention's output is added twice before it": before + 2 * attention,
    }.items():
        yield Hypothesis(words, rms_norm(stream, own, eps))
    again = evidence.tap(layer, "attn_norm")
    yield Hypothesis("the FFN gets what attention got", again)


def _last_norm(name: str, __: int, evidence: Evidence) -> Hypotheses:
    config = evidence.config
    x, weight = evidence.input_of(config.num_layers), evidence.weights["model.norm.weight"]
    yield Hypothesis("the last norm is left out", x)
    yield from _norm(evidence.found[name], x, weight, torch.ones_like(weight), evidence)
    if config.num_layers > 1:
        earlier = rms_norm(evidence.input_of(config.num_layers - 1), weight, config.eps)
        yield Hypothesis("the last layer is left out", earlier)


def _norm(
    found: Tensor, x: Tensor, weight: Tensor, other: Tensor, evidence: Evidence
) -> Hypotheses:
    right = evidence.config.eps
    for eps in (*EPS, observed_eps(found, x, weight)):
        yield Hypothesis(
            f"eps differs: it is {eps:.3g} instead of {right:g}", rms_norm(x, weight, eps)
        )
    yield Hypothesis("the weights of another norm are used", rms_norm(x, other, right))
    yield Hypothesis("the norm's weights are left out", rms_norm(x, torch.ones_like(weight), right))
    yield Hypothesis("one is added to the norm's weights", rms_norm(x, weight + 1, right))
    centred = x - x.mean(-1, keepdim=True)
    yield Hypothesis("the mean is subtracted, as LayerNorm does", rms_norm(centred, weight, right))
    root = x.square().mean(-1, keepdim=True).sqrt()
    yield Hypothesis("eps is added to the root instead of below it", weight * x / (root + right))
    yield Hypothesis("nothing is normalized", x)


def _hidden(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, x = evidence.layer(layer), evidence.tap(layer, "ffn_norm")
    if "mlp.gate_proj.weight" not in weights:
        return
    gate, up = (
        linear(x, weights[f"mlp.{name}_proj.weight"], weights.get(f"mlp.{name}_proj.bias"))
        for name in ("gate", "up")
    )
    both = torch.cat((gate, up), dim=-1)
    for words, hidden in {
        "gate and up are swapped": swiglu(up, gate),
        "the activation is GELU instead of SiLU": F.gelu(gate) * up,
        "the activation is GELU (tanh) instead of SiLU": F.gelu(gate, approximate="tanh") * up,
        "the activation is ReLU instead of SiLU": F.relu(gate) * up,
        "the activation is a sigmoid instead of SiLU": gate.sigmoid() * up,
        "the activation is left out": gate * up,
        "up is left out": F.silu(gate),
        "up is added instead of multiplied": F.silu(gate) + up,
        "gate and up are taken as interleaved": swiglu(both[:, ::2], both[:, 1::2]),
    }.items():
        yield Hypothesis(words, hidden)
    biases = [weights.get(f"mlp.{name}_proj.bias") for name in ("gate", "up")]
    if biases[0] is not None and biases[1] is not None:
        bare = swiglu(gate - biases[0], up - biases[1])
        yield Hypothesis("the biases of gate and up are left out", bare)


def _ffn_output(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, right = evidence.layer(layer), evidence.tap(layer, "ffn_out")
    if (bias := weights.get("mlp.down_proj.bias")) is not None:
        yield Hypothesis("the bias is left out", right - bias)
        yield Hypothesis("the bias is added twice", right + bias)
    yield Hypothesis("the FFN hands on its input", evidence.tap(layer, "ffn_norm"))


def _residual(name: str, layer: int, evidence: Evidence) -> Hypotheses:
    before = evidence.input_of(layer)
    attention, last = evidence.tap(layer, "attn_out"), evidence.tap(layer, "ffn_out")
    middle = before + attention
    for words, stream in {
        "the layer's input is not added": attention + last,
        "attention's output is not added": before + last,
        "the FFN's output is not added": middle,
        "only the FFN's output is handed on": last,
        "the layer changes nothing": before,
        "the residual is added twice after the FFN": 2 * middle + last,
        "the layer's input is added twice": before + middle + last,
        "attention's output is added twice": middle + attention + last,
        "the FFN's output is added twice": middle + 2 * last,
        "the FFN's output is subtracted": middle - last,
    }.items():
        yield Hypothesis(words, stream)
    yield _weighted(evidence.found[at(layer, name)], before, attention, last)


def _weighted(found: Tensor, *parts: Tensor) -> Hypothesis:
    """Fit the factors by which a layer's input, attention and FFN outputs are summed."""
    columns = torch.stack([part.flatten().double() for part in parts], dim=1)
    factors = torch.linalg.lstsq(columns, found.flatten().double()[:, None]).solution.flatten()
    words = "the input is handed on {:.3g} times, attention's output {:.3g}, the FFN's {:.3g} times"
    return Hypothesis(words.format(*factors.tolist()), (columns @ factors).view_as(found).float())


def _logits(_: str, __: int, evidence: Evidence) -> Hypotheses:
    hidden = evidence.expected["hidden"].float()
    tied = linear(hidden, evidence.weights.embedding())
    yield Hypothesis("the embedding table serves as head, although the head is not tied", tied)
    right = evidence.expected["logits"].float()
    for cap in (15.0, 30.0, 50.0):
        yield Hypothesis(f"logits are capped at {cap:g} by a tanh", cap * torch.tanh(right / cap))
    yield Hypothesis("logits are probabilities: a softmax too many", right.softmax(-1))
    yield Hypothesis("logits are log-probabilities: a softmax too many", right.log_softmax(-1))


LAYER: Table = {
    "embed": _embedding,
    "attn_norm": _first_norm,
    "ffn_norm": _second_norm,
    "ffn_hidden": _hidden,
    "ffn_out": _ffn_output,
    "residual": _residual,
    "hidden": _last_norm,
    "logits": _logits,
}
