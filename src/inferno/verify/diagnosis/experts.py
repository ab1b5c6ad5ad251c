"""The usual mistakes of a mixture of experts: choice, weights, activation, unpacking."""

from __future__ import annotations

import torch
from torch import Tensor

from inferno.verify.diagnosis.evidence import Evidence, Hypotheses, Hypothesis, Table
from inferno.verify.oracles.plain_maths import (
    Gate,
    Unpack,
    Weights,
    activation,
    choose,
    clamped_swiglu,
    combine,
    has_experts,
    router_logits,
    swiglu,
    unpack_mxfp4,
    unpack_nibbles,
)


def _router(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    weights, x = evidence.layer(layer), evidence.tap(layer, "ffn_norm")
    if (bias := weights.get("mlp.router.bias")) is not None:
        yield Hypothesis("the router's bias is left out", evidence.tap(layer, "router") - bias)
    stream = evidence.input_of(layer) + evidence.tap(layer, "attn_out")
    yield Hypothesis("the router's input is not normalized", router_logits(stream, weights))
    backwards = router_logits(x.flip(-1), weights)
    yield Hypothesis("the router's input is in reverse order", backwards)


def _choice(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    """Yield mistakes that would show in the weights of the chosen experts."""
    config, logits = evidence.config, evidence.tap(layer, "router")
    count, renormalize = config.experts_per_token, config.renormalize
    right = choose(logits, count, renormalize=renormalize)
    yield from _wrong_weights(right, count)
    yield Hypothesis(
        "the chosen experts' weights are not made to sum to one"
        if renormalize
        else "the chosen experts' weights are made to sum to one, which config.json does not ask",
        choose(logits, count, renormalize=not renormalize),
    )
    for wrong in (count - 1, count + 1):
        if 0 < wrong <= logits.shape[1]:
            yield Hypothesis(
                f"each token has {wrong} experts instead of {count}",
                choose(logits, wrong, renormalize=renormalize),
            )
    worst = choose(-logits, count, renormalize=renormalize)
    yield Hypothesis("the experts of the lowest logits are chosen", worst)
    lowest = torch.where(worst > 0, logits, -torch.inf).softmax(-1)
    yield Hypothesis("the experts of the lowest logits are chosen", lowest)
    sigmoid = torch.where(right > 0, logits.sigmoid(), 0.0)
    yield Hypothesis("weights are sigmoids instead of a softmax", sigmoid)
    yield Hypothesis("weights are logits instead of a softmax", torch.where(right > 0, logits, 0.0))
    weights = evidence.layer(layer)
    if (bias := weights.get("mlp.router.bias")) is not None:
        without = choose(logits - bias, count, renormalize=renormalize)
        yield Hypothesis("the router's bias is left out", without)


def _wrong_weights(right: Tensor, count: int) -> Hypotheses:
    """Propose wrong weights of right experts, or right weights at wrong experts; right: [T, X]."""
    equal = (right > 0).float()
    yield Hypothesis("all of a token's experts have the same weight", equal / count)
    yield Hypothesis("the experts' weights are left out", equal)
    total = right.sum(-1, keepdim=True)
    yield Hypothesis("all of a token's experts have the same weight", equal * total / count)
    ranked = right.topk(count)
    backwards = torch.zeros_like(right).scatter(1, ranked.indices, ranked.values.flip(1))
    yield Hypothesis("the experts' weights are in reverse order: the best has the least", backwards)
    for shift, words in ((1, "next"), (-1, "one before")):
        yield Hypothesis(
            f"experts are off by one: each token has the {words} of those that it should have",
            right.roll(shift, 1),
        )
    single = torch.zeros_like(right).scatter(1, ranked.indices[:, :1], ranked.values[:, :1])
    yield Hypothesis("only the best expert of each token counts", single)


def _output(_: str, layer: int, evidence: Evidence) -> Hypotheses:
    """Yield mistakes that would show in the experts' combined output."""
    weights, config = evidence.layer(layer), evidence.config
    if not has_experts(weights):
        return
    x, chosen = evidence.tap(layer, "ffn_norm"), evidence.tap(layer, "experts")
    right, gate = unpack_mxfp4, activation(config)
    for words, unpack in _UNPACKINGS.items():
        yield Hypothesis(words, combine(x, chosen, weights, gate, unpack))
    for words, wrong in _gates(evidence).items():
        yield Hypothesis(words, combine(x, chosen, weights, wrong, right))
    for words, names in _BIASES.items():
        zeros = {n: torch.zeros_like(b) for n, b in weights.items() if n in names}
        if zeros:
            yield Hypothesis(words, combine(x, chosen, {**weights, **zeros}, gate, right))
    if stacked := _halved_rows(weights):
        words = "gate and up are taken as halves, and their rows alternate"
        yield Hypothesis(words, combine(x, chosen, {**weights, **stacked}, gate, right))
    for hypothesis in _wrong_weights(chosen, config.experts_per_token):
        yield Hypothesis(hypothesis.words, combine(x, hypothesis.expected, weights, gate, right))


def _halved_rows(weights: Weights) -> dict[str, Tensor]:
    """Reorder gpt-oss's stacked gates and ups, so that each reads what lies in its half."""
    stacked = {n: w for n, w in weights.items() if n.startswith("mlp.experts.gate_up_proj")}
    return {name: _alternated(w, -1 if name.endswith("proj") else 1) for name, w in stacked.items()}


def _alternated(x: Tensor, axis: int) -> Tensor:
    """Reorder 2F rows as 0, F, 1, F + 1, ..."""
    order = torch.arange(x.shape[axis]).view(2, -1).T.flatten()
    return x.index_select(axis, order)


def _swapped(blocks: Tensor, scales: Tensor) -> Tensor:
    return unpack_nibbles(blocks >> 4, blocks & 15, scales)


def _apart(blocks: Tensor, scales: Tensor) -> Tensor:
    """Unpack all low halves of a block, then all high ones."""
    pairs = torch.cat((blocks & 15, blocks >> 4), dim=-1)
    return unpack_nibbles(pairs[..., ::2], pairs[..., 1::2], scales)


def _doubled(blocks: Tensor, scales: Tensor) -> Tensor:
    return 2 * unpack_mxfp4(blocks, scales)


def _halved(blocks: Tensor, scales: Tensor) -> Tensor:
    return unpack_mxfp4(blocks, scales) / 2


_DOWN, _GATE_UP = (f"mlp.experts.{name}_proj_bias" for name in ("down", "gate_up"))
_BIASES = {
    "the experts' biases are left out": (_DOWN, _GATE_UP),
    "the bias of the experts' output is left out": (_DOWN,),
    "the biases of the experts' gate and up are left out": (_GATE_UP,),
}
_UNPACKINGS: dict[str, Unpack] = {
    "MXFP4's two values of a byte are swapped: the low half comes first": _swapped,
    "MXFP4's low halves of a block come before all high ones, and should alternate": _apart,
    "MXFP4's scales are one power of two too large: their bias is 127": _doubled,
    "MXFP4's scales are one power of two too small: their bias is 127": _halved,
}


def _gates(evidence: Evidence) -> dict[str, Gate]:
    right, config = activation(evidence.config), evidence.config
    gates: dict[str, Gate] = {
        "gate and up are swapped": lambda gate, up: right(up, gate),
        "the activation is left out": lambda gate, up: gate * up,
    }
    if (limit := config.swiglu_limit) is not None:
        alpha = config.swiglu_alpha
        gates |= {
            "the activation is plain SwiGLU instead of the clamped one": swiglu,
            "nothing is clamped before the activation": clamped_swiglu(alpha, 1e30),
            "one is not added to up": clamped_swiglu(alpha, limit, plus=0.0),
            "alpha is left out of the activation": clamped_swiglu(1.0, limit),
        }
    return gates


EXPERTS: Table = {"router": _router, "experts": _choice, "ffn_out": _output}
