"""Translate GGUF's names of tensors to Hugging Face's, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
# The part of a name between "blk.N." and ".weight" or ".bias".
_IN_LAYER: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
# Tensors that hold all experts, and the name of a single expert's.
_OF_EXPERTS: Mapping[str, str] = {
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
# What some kinds of files call otherwise in a layer; None: a name that they don't have.
_OF_KIND: Mapping[str, Mapping[str, str | None]] = {
    "gpt-oss": {
        "ffn_norm": None,
        "post_attention_norm": "post_attention_layernorm",
        "attn_sinks": "self_attn.sinks",
        "ffn_gate_inp": "mlp.router",
    },
    "mixtral": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
}
_WITHOUT_KIND = ("self_attn.sinks",)  # Hugging Face's names that end in neither weight nor bias
_LAYER_NAME = re.compile(r"blk\.(0|[1-9]\d{0,3})\.([a-z_]+)\.(weight|bias)")
# Older files of Mixtral hold every expert's products in tensors of their own: blk.1.ffn_up.7.weight
_ONE_EXPERTS = re.compile(r"(blk\.\d+\.ffn_(?:gate|up|down))\.(0|[1-9]\d{0,3})(\.weight)")

ROPE_FACTORS = "rope_freqs.weight"  # belongs to the config: what rotary frequencies are divided by


def hf_name(name: str, kind: str = "") -> str:
    """Return Hugging Face's name; with "{}" for the number of an expert where a tensor has all.

    kind  of the file (`kind_of`), some of which have names of their own.

    A name that is unknown stays as it is, for the loader to list.
    """
    if name in _WHOLE:
        return _WHOLE[name]
    if one := _ONE_EXPERTS.fullmatch(name):
        of_all = f"{one[1]}_exps{one[3]}"
        theirs = hf_name(of_all, kind)
        return name if theirs == of_all else theirs.replace("{}", one[2])
    match = _LAYER_NAME.fullmatch(name)
    if match is None:
        return name
    layer, module, suffix = match.groups()
    names = {**_IN_LAYER, **_OF_EXPERTS, **_OF_KIND.get(kind, {})}
    known = names.get(module)
    if known is None:
        return name
    if known in _WITHOUT_KIND:
        return f"model.layers.{layer}.{known}" if suffix == "weight" else name
    return f"model.layers.{layer}.{known}.{suffix}"


def is_rotated(name: str) -> bool:
    """Return whether rotary embedding turns what a tensor makes: queries or keys."""
    match = _LAYER_NAME.fullmatch(name)
    return match is not None and match[2] in ("attn_q", "attn_k")


def is_of_all_experts(name: str) -> bool:
    """Return whether a tensor holds all experts of a layer, along its slowest axis."""
    match = _LAYER_NAME.fullmatch(name)
    return match is not None and match[2] in _OF_EXPERTS


def gguf_names(kind: str, num_layers: int) -> Iterator[str]:
    """Yield the names that tensors of a kind may have, in the order in which to write them."""
    modules = {**_IN_LAYER, **_OF_EXPERTS, **_OF_KIND.get(kind, {})}
    yield "token_embd.weight"
    for layer in range(num_layers):
        for module in modules:
            yield f"blk.{layer}.{module}.weight"
            yield f"blk.{layer}.{module}.bias"
    yield "output_norm.weight"
    yield "output.weight"
