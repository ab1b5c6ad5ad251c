"""Words for why a tensor was not seen at all, or not at every position."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from inferno.verify.taps import Taps, at

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
# What every layer has.
LAYER_TAPS = tuple(name for name in _CALLS if name not in ("router", "experts", "ffn_hidden"))
# What not every model has: sinks, experts, and the hidden row of a single feed-forward network.
_OPTIONAL = {"sinks", "router", "experts", "ffn_hidden"}


def is_due(tap: str, found: Taps, expected: Taps) -> bool:
    """Return whether to compare a tensor: an oracle may not give it, a model may not have it."""
    if tap in expected:
        return True
    return tap not in found and tap.rpartition(".")[2] not in _OPTIONAL


def unseen(tap: str, words: str, found: Taps, expected: Taps) -> str:
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
