"""Names of the tensors that are compared, and the dictionary that holds them.

Whoever runs a text, be it the engine or an oracle, gives the same tensors by the same names, on the
CPU, one row per position of the text. T positions, H query heads, K key/value heads, D head size,
E model width, F feed-forward width, V vocabulary.

Of the whole model:
    embed       [T, E]  rows of the embedding table
    cos_sin     [T, D]  D/2 cosines and D/2 sines of each position
    N.residual  [T, E]  the residual stream after layer N; of every layer
    hidden      [T, E]  after the last norm
    logits      [T, V]
Of an asked layer N, each with `N.` in front:
    attn_norm           [T, E]     the layer's input, normalized
    q, k, v             [T, *, D]  after projection
    q_in, k_in          [T, *, D]  what is rotated: after the norm of each head, where there is one
    q_rot, k_rot        [T, *, D]  after rotation
    keys, values        [T, K, D]  as attention reads them
    scores              [H, T, T]  scaled; -inf where a query must not look
    sinks               [H]        the logit of looking nowhere, where the model has it
    mixed               [T, H*D]   values by their weights, before the output projection
    attn_out            [T, E]     after it
    ffn_norm            [T, E]     the residual stream, normalized once more
    ffn_hidden          [T, F]     silu(gate) * up
    router              [T, X]     logits that experts are chosen by
    experts             [T, X]     each expert's weight for each token, 0 where it is not chosen
    ffn_out             [T, E]
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Taps = Mapping[str, Tensor]

_ROTATION, _ATTENTION = "ops.rotate_and_store", "ops.attention"
_ROUTE, _ACTIVATION = "ops.route", "ops.gated_linear"

# Whose call shows a tensor of a layer.
_CALLS: Mapping[str, str] = {
    "attn_norm": "self_attn",
    **dict.fromkeys(("q", "k", "v", "q_in", "k_in", "q_rot", "k_rot"), _ROTATION),
    **dict.fromkeys(("keys", "values", "scores", "mixed"), _ATTENTION),
    "attn_out": "self_attn",
    "ffn_norm": "mlp",
    "router": _ROUTE,
    "experts": _ROUTE,
    "ffn_hidden": _ACTIVATION,
    "ffn_out": "mlp",
}
# Tensors that every layer has.
LAYER_TAPS = tuple(name for name in _CALLS if name not in ("router", "experts", "ffn_hidden"))
# Tensors that some models have: sinks, experts, and the hidden row of a lone feed-forward network.
_OPTIONAL = {"sinks", "router", "experts", "ffn_hidden"}


def at(layer: int, name: str) -> str:
    """Return the name of a layer's tensor."""
    return f"{layer}.{name}"


def first_positions(taps: Taps, length: int) -> Taps:
    """Cut every tensor to its first `length` positions."""
    return {name: _first(name.rpartition(".")[2], x, length) for name, x in taps.items()}


def _first(name: str, tensor: Tensor, length: int) -> Tensor:
    match name:
        case "sinks":
            return tensor
        case "scores":
            return tensor[:, :length, :length]
        case _:
            return tensor[:length]


def is_compared(tap: str, found: Taps, expected: Taps) -> bool:
    """Return whether to compare a tensor: an oracle may not give it, a model may not have it."""
    if tap in expected:
        return True
    return tap not in found and tap.rpartition(".")[2] not in _OPTIONAL


def why_missing(tap: str, words: str, found: Taps, expected: Taps) -> str:
    """Describe why there is no tensor, or not a row per position; "" where there is."""
    layer, _, name = tap.rpartition(".")
    if tap not in found:
        return _never_called(layer, name, words, found)
    rows, due = _num_rows(name, found[tap]), _num_rows(name, expected[tap])
    if rows == due:
        return ""
    caller = f"the model called {_call(layer, name)}"
    if rows < due:
        return f"{caller} for {rows} of {due} positions only"
    return f"{caller} for {rows} positions, where there are {due}"


def _never_called(layer: str, name: str, words: str, found: Taps) -> str:
    if layer and at(int(layer), "residual") not in found:
        return f"the model never ran layer {layer}"
    if name == "sinks":
        return f"the model called {_ATTENTION} in layer {layer} without sinks"
    return f"the model never called {_call(layer, name)}, which would have shown {words}"


def _call(layer: str, name: str) -> str:
    if name == "cos_sin":
        return "its rotary embedding (model.rotary)"
    if name in ("embed", "residual"):
        return f"layer {layer or 0}"
    return f"{_CALLS.get(name, name)} in layer {layer}"


def _num_rows(name: str, tensor: Tensor) -> int:
    """Count the positions that a tensor has; sinks have none."""
    if name == "sinks":
        return 0
    return tensor.shape[1] if name == "scores" else len(tensor)
