"""The usual mistakes of a mixture of experts: choice, weights, activation, unpacking."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from inferno.verify.plain_experts import (
    Gate,
    Unpack,
    activation,
    choose,
    clamped_swiglu,
    combine,
    has_experts,
    router_logits,
    unpack_mxfp4,
    unpack_nibbles,
)
from inferno.verify.plain_maths import swiglu
from inferno.verify.suspects import Evidence, Suspect

Suspects = Iterator[Suspect]


def choice_suspects(layer: int, evidence: Evidence) -> Suspects:
    """Mistakes that would show in the weights of the chosen experts."""
    config, weights = evidence.config, evidence.layer(layer)
    logits = router_logits(evidence.tap(layer, "ffn_norm"), weights)
    count = config.experts_per_token
    yield Suspect(
        "the chosen experts' weights are not made to sum to one"
        if config.renormalize
        else "the chosen experts' weights are made to sum to one, which config.json does not ask",
        choose(logits, count, renormalize=not config.renormalize),
    )
    for wrong in (count - 1, count + 1):
        if 0 < wrong <= logits.shape[1]:
            yield Suspect(
                f"each token has {wrong} experts instead of {count}",
                choose(logits, wrong, renormalize=config.renormalize),
            )
    sigmoid = torch.where(evidence.tap(layer, "experts") > 0, logits.sigmoid(), 0.0)
    yield Suspect("weights are sigmoids instead of a softmax", sigmoid)
    if (bias := weights.get("mlp.router.bias")) is not None:
        without = choose(logits - bias, count, renormalize=config.renormalize)
        yield Suspect("the router's bias is left out", without)


def output_suspects(layer: int, evidence: Evidence) -> Suspects:
    """Mistakes that would show in the experts' combined output."""
    weights = evidence.layer(layer)
    if not has_experts(weights):
        return
    x, chosen = evidence.tap(layer, "ffn_norm"), evidence.tap(layer, "experts")
    right, gate = unpack_mxfp4, activation(evidence.config)
    for words, unpack in _UNPACKINGS.items():
        yield Suspect(words, combine(x, chosen, weights, gate, unpack))
    for words, wrong in _gates(evidence).items():
        yield Suspect(words, combine(x, chosen, weights, wrong, right))
    biasless = {name: b for name, b in weights.items() if not name.endswith("_proj_bias")}
    zeros = {n: torch.zeros_like(b) for n, b in weights.items() if n.endswith("_proj_bias")}
    yield Suspect(
        "the experts' biases are left out", combine(x, chosen, {**biasless, **zeros}, gate, right)
    )
    equal = (chosen > 0).float()
    yield Suspect("the experts' weights are left out", combine(x, equal, weights, gate, right))


def _swapped(blocks: Tensor, scales: Tensor) -> Tensor:
    return unpack_nibbles(blocks >> 4, blocks & 15, scales)


def _apart(blocks: Tensor, scales: Tensor) -> Tensor:
    """All low halves of a block, then all high ones."""
    pairs = torch.cat((blocks & 15, blocks >> 4), dim=-1)
    return unpack_nibbles(pairs[..., ::2], pairs[..., 1::2], scales)


def _doubled(blocks: Tensor, scales: Tensor) -> Tensor:
    return 2 * unpack_mxfp4(blocks, scales)


def _halved(blocks: Tensor, scales: Tensor) -> Tensor:
    return unpack_mxfp4(blocks, scales) / 2


_UNPACKINGS: dict[str, Unpack] = {
    "MXFP4's two values of a byte are swapped: the low half comes first": _swapped,
    "MXFP4's low halves of a block come before all high ones, and should alternate": _apart,
    "MXFP4's scales are one power of two too large: their bias is 127": _doubled,
    "MXFP4's scales are one power of two too small: their bias is 127": _halved,
}


def _gates(evidence: Evidence) -> dict[str, Gate]:
    right, config = activation(evidence.config), evidence.config
    gates: dict[str, Gate] = {"gate and up are swapped": lambda gate, up: right(up, gate)}
    if (limit := config.swiglu_limit) is not None:
        gates |= {
            "the activation is plain SwiGLU instead of the clamped one": swiglu,
            "nothing is clamped before the activation": clamped_swiglu(config.swiglu_alpha, 1e30),
            "one is not added to up": clamped_swiglu(config.swiglu_alpha, limit, plus=0.0),
            "alpha is left out of the activation": clamped_swiglu(1.0, limit),
        }
    return gates
