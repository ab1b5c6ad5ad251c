"""The observer of a recorded run, which gathers the tensors that `taps` names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from inferno.ops import Activation, Batch, LayerKV, PlainSwiGLU, reference
from inferno.ops.batch import first_visible
from inferno.verify.oracles.plain_maths import attention_scores
from inferno.verify.runs.recorder import ROOT, Call
from inferno.verify.runs.taps import Taps, at

PRODUCTS = ("embedding", "linear", "gated_linear", "experts")
HEAD = "lm_head"
_MOST_ROWS = 64  # kept of a step: so a long prompt does not fill the memory
_LAYERS = "model.layers."
_OPS = ("rotate_and_store", "attention", "gated_linear")

Rows = dict[int, tuple[Tensor, Tensor]]  # position -> key [K, D], value [K, D]


@dataclass(slots=True)
class KVLog:
    """The log, by layer, of what was written and what was read last; `changes`: differences.

    A write is read back from its slot at once, a read goes through the block table, as attention
    does. Memory must not round, so they must agree bit for bit on every device.
    """

    changes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    num_reads: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _written: dict[int, Rows] = field(default_factory=lambda: defaultdict(dict))
    _read: dict[int, Rows] = field(default_factory=lambda: defaultdict(dict))

    def write(self, layer: int, batch: Batch, kv: LayerKV) -> Tensor:
        """Note what a step has put into its tokens' slots; returns the keys [T, K, D]."""
        slots, block_size = batch.groups[kv.group].slots_T, kv.keys_NSKD.shape[1]
        where = (slots // block_size, slots % block_size)
        keys, values = (cache[where].contiguous().cpu() for cache in (kv.keys_NSKD, kv.values_NSKD))
        start = batch.context_lens[0] - batch.query_lens[0]
        for offset, row in enumerate(zip(keys, values, strict=True)):
            self._written[layer][start + offset] = row
        return keys

    def read(self, layer: int, batch: Batch, kv: LayerKV) -> tuple[int, Tensor]:
        """Read what a step's queries see: the first position, and the keys from there on."""
        tables = batch.groups[kv.group]
        length, block_size = batch.context_lens[0], kv.keys_NSKD.shape[1]
        first = first_visible(length - batch.query_lens[0], tables.window)
        blocks = tables.block_tables_RB[0].cpu()[first // block_size : -(-length // block_size)]
        skipped = first % block_size
        keys, values = (
            cache[blocks.to(cache.device)].flatten(0, 1)[skipped:][: length - first].cpu()
            for cache in (kv.keys_NSKD, kv.values_NSKD)
        )
        keys, values = keys.contiguous(), values.contiguous()
        self._compare(layer, first, keys, values, block_size)
        return first, keys

    def taps(self) -> Taps:
        """Return the keys and values of every position, as they were read last."""
        result = {}
        for layer, rows in self._read.items():
            keys, values = zip(*(rows[position] for position in sorted(rows)), strict=True)
            result[at(layer, "keys")] = torch.stack(keys)
            result[at(layer, "values")] = torch.stack(values)
        return result

    def _compare(
        self, layer: int, first: int, keys: Tensor, values: Tensor, block_size: int
    ) -> None:
        bad: dict[int, list[int]] = defaultdict(list)
        for offset, row in enumerate(zip(keys, values, strict=True)):
            position = first + offset
            self._read[layer][position] = row
            written = self._written[layer].get(position)
            if written is None:
                continue  # by another op than we observe; that it lacks is told elsewhere
            self.num_reads[layer] += 1
            if not all(map(_same_bits, row, written)):
                bad[position // block_size].append(position)
        for block, positions in bad.items():
            self.changes[layer].append(
                f"block {block} of the request is stale: when position {first + len(keys) - 1} "
                f"reads positions {positions[0]} to {positions[-1]}, they are not as written"
            )


def _same_bits(found: Tensor, expected: Tensor) -> bool:
    return torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@dataclass(slots=True)
class TensorObserver:
    """The observer of a recorded run, which gathers one request's tensors, step after step.

    Norms, the residual stream and what blocks give are read where modules begin and end, so that
    they are seen however they are computed; ops tell what happens inside attention and experts.

    layers      those whose insides are kept.
    num_tokens  that a step began to compute.
    products    of every layer, with what entered and what came out.
    """

    layers: frozenset[int]
    num_tokens: int = 0
    kv_log: KVLog = field(default_factory=KVLog)
    products: dict[str, ProductCalls] = field(default_factory=dict)
    _parts: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    _whole: dict[str, Tensor] = field(default_factory=dict)

    def taps(self) -> Taps:
        """Return everything seen so far, a row per position."""
        rows = {
            name: torch.cat(parts) for name, parts in self._parts.items() if "scores" not in name
        }
        scores = {n: _stack(parts) for n, parts in self._parts.items() if n.endswith("scores")}
        return {**rows, **scores, **self._whole, **self.kv_log.taps()}

    def wants(self, op: str, where: str) -> bool:
        """Return whether to observe: products and routes of all layers, other ops of asked ones."""
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
            keep_product(self.products, call)
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
        written = self.kv_log.write(layer, given["batch"], given["kv"])
        self._add_all(layer, k_rot=written)

    def _see_attention(self, layer: int, call: Call) -> None:
        given = call.arguments
        batch: Batch = given["batch"]
        window = batch.groups[given["kv"].group].window
        first, keys = self.kv_log.read(layer, batch, given["kv"])
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


@dataclass(slots=True)
class ProductCalls:
    """A module's inputs and outputs, a row per token; of experts, who chose whom by what share."""

    op: str
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    experts: list[Tensor] = field(default_factory=list)
    shares: list[Tensor] = field(default_factory=list)
    activation: Activation = field(default_factory=PlainSwiGLU)

    def add(self, call: Call) -> None:
        """Keep some rows of a call, evenly spread."""
        given = call.arguments
        first, *_ = given.values()
        rows = _some_rows(len(first))
        self.inputs.append(_rows(first, rows))
        self.outputs.append(_rows(call.result, rows))
        if self.op == "experts":
            self.experts.append(_rows(given["experts_TA"], rows))
            self.shares.append(_rows(given["weights_TA"], rows))
            self.activation = given["activation"]


def keep_product(seen: dict[str, ProductCalls], call: Call) -> None:
    """Keep a call of one of PRODUCTS; the head is called from outside all modules."""
    seen.setdefault(call.where or HEAD, ProductCalls(call.op)).add(call)


def keep_head(seen: dict[str, ProductCalls], hidden: Tensor, logits: Tensor) -> None:
    """Keep the logits of all positions, beside those that tokens were chosen by."""
    head = seen.setdefault(HEAD, ProductCalls("linear"))
    head.inputs.append(hidden)
    head.outputs.append(logits)


def _some_rows(count: int) -> Tensor:
    every = torch.arange(count)
    return every if count <= _MOST_ROWS else every[torch.linspace(0, count - 1, _MOST_ROWS).long()]


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    return x.detach()[rows.to(x.device)].cpu()
