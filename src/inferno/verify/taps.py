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
