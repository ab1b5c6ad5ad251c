"""The observer of a recorded run, which gathers the tensors that `taps` names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from inferno.ops import Batch, reference
from inferno.verify.kv_ledger import KVLedger
from inferno.verify.plain_maths import attention_scores
from inferno.verify.products import PRODUCTS, Seen, see_product
from inferno.verify.recorder import ROOT, Call
from inferno.verify.taps import Taps, at

_LAYERS = "model.layers."
_OPS = ("rotate_and_store", "attention", "gated_linear")


@dataclass(slots=True)
class Observer:
    """A recorder's watcher that gathers one request's tensors, step after step.

    Norms, the residual stream and what blocks give are read where modules begin and end, so that
    they are seen however they are computed; ops tell what happens inside attention and experts.

    layers      those whose insides are kept.
    num_tokens  that a step began to compute.
    products    of every layer, with what entered and what came out.
    """

    layers: frozenset[int]
    num_tokens: int = 0
    ledger: KVLedger = field(default_factory=KVLedger)
    products: dict[str, Seen] = field(default_factory=dict)
    _parts: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    _whole: dict[str, Tensor] = field(default_factory=dict)

    def taps(self) -> Taps:
        """Return everything seen so far, a row per position."""
        rows = {
            name: torch.cat(parts) for name, parts in self._parts.items() if "scores" not in name
        }
        scores = {n: _stack(parts) for n, parts in self._parts.items() if n.endswith("scores")}
        return {**rows, **scores, **self._whole, **self.ledger.taps()}

    def wants(self, op: str, where: str) -> bool:
        """Return whether to watch: products and routes of all layers, other ops of asked ones."""
        is_of_all = op == "route" or op in PRODUCTS
        return is_of_all or (op in _OPS and _place(where)[0] in self.layers)

    def see_enter(self, name: str, inputs: tuple[Any, ...]) -> None:
        layer, part = _place(name)
        if name == ROOT:
            self.num_tokens += len(inputs[0].token_ids_T)
        elif (layer, part) == (0, ""):
            self._add("embed", _summed(inputs[:2]))
        elif layer in self.layers and part == "self_attn":
            self._add(at(layer, "attn_norm"), inputs[0])
        elif layer in self.layers and part == "mlp":
            self._add(at(layer, "ffn_norm"), inputs[0])

    def see_leave(self, name: str, output: Any) -> None:
        layer, part = _place(name)
        if name == ROOT:
            self._add("hidden", output)
        elif name == "model.rotary":
            self._add("cos_sin", output)
        elif layer >= 0 and part == "":
            self._add(at(layer, "residual"), _summed(output))
        elif layer in self.layers and part == "self_attn":
            self._add(at(layer, "attn_out"), output)
        elif layer in self.layers and part == "mlp":
            self._add(at(layer, "ffn_out"), output)

    def see_call(self, call: Call) -> None:
        layer, _ = _place(call.where)
        if call.op in PRODUCTS:
            see_product(self.products, call)
        match call.op:
            case "rotate_and_store":
                self._see_rotation(layer, call)
            case "attention":
                self._see_attention(layer, call)
            case "gated_linear" if layer in self.layers:
                self._add(at(layer, "ffn_hidden"), call.result)
            case "route":
                self._see_route(layer, call)

    def _see_rotation(self, layer: int, call: Call) -> None:
        given = call.arguments
        q, k = given["q_THD"], given["k_TKD"]
        self._add_all(layer, q=q, k=k, v=given["v_TKD"], q_rot=call.result)
        self._add_all(layer, q_in=_normed(q, given, "q_norm_D"), k_in=_normed(k, given, "k_norm_D"))
        written = self.ledger.write(layer, given["batch"], given["kv"])
        self._add_all(layer, k_rot=written)

    def _see_attention(self, layer: int, call: Call) -> None:
        given = call.arguments
        batch: Batch = given["batch"]
        window = batch.groups[given["kv"].group].window
        first, keys = self.ledger.read(layer, batch, given["kv"])
        q = _plain(given["q_THD"])
        length = batch.context_lens[0]
        scores = torch.full((q.shape[1], len(q), length), -torch.inf)
        seen = attention_scores(
            q.float(),
            keys.float(),
            scale=given["scale"],
            is_visible=_visible(batch, first, window),
        )
        scores[..., first:] = seen
        self._add_all(layer, scores=scores, mixed=call.result.flatten(1))
        if (sinks := given.get("sinks_H")) is not None:
            self._whole[at(layer, "sinks")] = _plain(sinks)

    def _see_route(self, layer: int, call: Call) -> None:
        experts, weights = map(_plain, call.result)
        num_tokens, num_experts = call.arguments["logits_TX"].shape
        dense = torch.zeros(num_tokens, num_experts).scatter(1, experts, weights.float())
        self._add_all(layer, router=call.arguments["logits_TX"], experts=dense)

    def _add_all(self, layer: int, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self._add(at(layer, name), tensor)

    def _add(self, name: str, tensor: Tensor) -> None:
        self._parts[name].append(_plain(tensor))


def _normed(x: Tensor, given: dict[str, Any], weight: str) -> Tensor:
    """Replay the first stage of rotate_and_store, the norm of heads."""
    return x if given.get(weight) is None else reference.rms_norm(x, given[weight], given["eps"])


def _visible(batch: Batch, first: int, window: int | None) -> Tensor:
    """Return which of the keys from position `first` on each query of the step sees: [T, L]."""
    keys = torch.arange(first, batch.context_lens[0])
    queries = torch.arange(batch.context_lens[0] - batch.query_lens[0], batch.context_lens[0])
    back = queries[:, None] - keys
    return (back >= 0) & (back < (window or batch.context_lens[0]))


def _stack(parts: Iterable[Tensor]) -> Tensor:
    """Join the scores of all steps; keys that an early step did not have are hidden from it."""
    pieces = list(parts)
    length = pieces[-1].shape[-1]
    padded = [
        torch.nn.functional.pad(piece, (0, length - piece.shape[-1]), value=-torch.inf)
        for piece in pieces
    ]
    return torch.cat(padded, dim=1)


def _place(name: str) -> tuple[int, str]:
    """Return a module's layer, -1 if it is in none, and its name in there, "" for the layer."""
    if not name.startswith(_LAYERS):
        return -1, name
    number, _, part = name.removeprefix(_LAYERS).partition(".")
    return int(number), part


def _summed(pair: tuple[Tensor, Tensor | None]) -> Tensor:
    """Return the residual stream; a layer may hand on the last block's output apart."""
    x, residual = pair
    return x if residual is None else x + residual


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
