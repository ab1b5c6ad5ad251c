"""The usual mistakes outside attention: embedding, norms, feed-forward, residual stream, head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from inferno.verify.plain_maths import linear, rms_norm, swiglu
from inferno.verify.suspects import Evidence, Suspect
from inferno.verify.suspects_experts import choice_suspects, output_suspects

Suspects = Iterator[Suspect]
_EPS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)


def layer_suspects(name: str, layer: int, evidence: Evidence) -> Suspects:
    """Mistakes that would show in the tensor `name` of a layer, or of the whole model."""
    if (suspects := _SUSPECTS.get(name)) is not None:
        yield from suspects(layer, evidence)


def _embedding(_: int, evidence: Evidence) -> Suspects:
    right = evidence.expected["embed"].float()
    yield Suspect("embeddings are multiplied by sqrt(E)", right * right.shape[1] ** 0.5)


def _first_norm(layer: int, evidence: Evidence) -> Suspects:
    weights = evidence.layer(layer)
    yield from _norm(
        evidence.input_of(layer),
        weights["input_layernorm.weight"],
        weights["post_attention_layernorm.weight"],
        evidence,
    )


def _second_norm(layer: int, evidence: Evidence) -> Suspects:
    weights, before = evidence.layer(layer), evidence.input_of(layer)
    own, other = (weights[f"{name}_layernorm.weight"] for name in ("post_attention", "input"))
    yield from _norm(before + evidence.tap(layer, "attn_out"), own, other, evidence)
    eps = evidence.config.eps
    yield Suspect(
        "the residual is not added before it", rms_norm(evidence.tap(layer, "attn_out"), own, eps)
    )
    yield Suspect("attention's output is not added before it", rms_norm(before, own, eps))


def _last_norm(_: int, evidence: Evidence) -> Suspects:
    config = evidence.config
    x, weight = evidence.input_of(config.num_layers), evidence.weights["model.norm.weight"]
    yield from _norm(x, weight, torch.ones_like(weight), evidence)


def _norm(x: Tensor, weight: Tensor, other: Tensor, evidence: Evidence) -> Suspects:
    right = evidence.config.eps
    for eps in _EPS:
        yield Suspect(f"eps differs: it is {eps:g} instead of {right:g}", rms_norm(x, weight, eps))
    yield Suspect("the weights of another norm are used", rms_norm(x, other, right))
    yield Suspect("the norm's weights are left out", rms_norm(x, torch.ones_like(weight), right))
    yield Suspect("one is added to the norm's weights", rms_norm(x, weight + 1, right))
    centred = x - x.mean(-1, keepdim=True)
    yield Suspect("the mean is subtracted, as LayerNorm does", rms_norm(centred, weight, right))
    yield Suspect("nothing is normalized", x)


def _hidden(layer: int, evidence: Evidence) -> Suspects:
    weights, x = evidence.layer(layer), evidence.tap(layer, "ffn_norm")
    if "mlp.gate_proj.weight" not in weights:
        return
    gate, up = (
        linear(x, weights[f"mlp.{name}_proj.weight"], weights.get(f"mlp.{name}_proj.bias"))
        for name in ("gate", "up")
    )
    yield Suspect("gate and up are swapped", swiglu(up, gate))
    yield Suspect("the activation is GELU instead of SiLU", F.gelu(gate) * up)
    yield Suspect(
        "the activation is GELU (tanh) instead of SiLU", F.gelu(gate, approximate="tanh") * up
    )
    yield Suspect("the activation is ReLU instead of SiLU", F.relu(gate) * up)
    yield Suspect("the activation is left out", gate * up)
    both = torch.cat((gate, up), dim=-1)
    yield Suspect("gate and up are taken as interleaved", swiglu(both[:, ::2], both[:, 1::2]))


def _ffn_output(layer: int, evidence: Evidence) -> Suspects:
    yield from output_suspects(layer, evidence)
    weights = evidence.layer(layer)
    if (bias := weights.get("mlp.down_proj.bias")) is not None:
        yield Suspect("the bias is left out", evidence.tap(layer, "ffn_out") - bias)


def _residual(layer: int, evidence: Evidence) -> Suspects:
    before = evidence.input_of(layer)
    attention, feed_forward = evidence.tap(layer, "attn_out"), evidence.tap(layer, "ffn_out")
    yield Suspect("the layer's input is not added", attention + feed_forward)
    yield Suspect("attention's output is not added", before + feed_forward)
    yield Suspect("the FFN's output is not added", before + attention)


def _logits(_: int, evidence: Evidence) -> Suspects:
    hidden = evidence.expected["hidden"].float()
    tied = linear(hidden, evidence.weights.embedding())
    yield Suspect("the embedding table serves as head, although the head is not tied", tied)
    if not evidence.config.tied:
        bare = evidence.input_of(evidence.config.num_layers)
        yield Suspect("the last norm is left out", linear(bare, evidence.weights["lm_head.weight"]))


_SUSPECTS: Mapping[str, Callable[[int, Evidence], Suspects]] = {
    "embed": _embedding,
    "attn_norm": _first_norm,
    "ffn_norm": _second_norm,
    "ffn_hidden": _hidden,
    "experts": choice_suspects,
    "ffn_out": _ffn_output,
    "residual": _residual,
    "hidden": _last_norm,
    "logits": _logits,
}
