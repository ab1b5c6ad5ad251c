"""The oracle that others wrote: `transformers`, in float32 with eager attention, observed by hooks.

The only file besides tests that imports transformers; `choose` imports it when it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    AutoTokenizer,
)
from transformers.masking_utils import eager_mask

from inferno.verify.oracles import Choices
from inferno.verify.oracles.plain_config import PlainConfig
from inferno.verify.oracles.plain_maths import choose
from inferno.verify.runs.taps import Taps, at

_ATTENTION = "inferno_verify"


class TransformersOracle:
    """An oracle that runs a text at once, without a cache, and keeps what `taps` names."""

    def __init__(self, folder: Path, config: PlainConfig) -> None:
        self.name = f"transformers {transformers.__version__} in float32"
        AttentionInterface.register(_ATTENTION, self._attend)
        AttentionMaskInterface.register(_ATTENTION, eager_mask)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=_ATTENTION, local_files_only=True
        ).eval()
        self._folder = folder
        self._config = config
        self._head_dim: int = self._model.model.layers[0].self_attn.head_dim
        self._layers: frozenset[int] = frozenset()
        self._choices: Choices = {}
        self._taps: dict[str, Tensor] = {}

    @torch.inference_mode()
    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        self._taps, self._layers, self._choices = {}, frozenset(layers), choices
        handles = list(self._observe_model(self._model.model))
        try:
            self._taps["logits"] = self._run(token_ids)
        finally:
            for handle in handles:
                handle.remove()
            self._layers = frozenset()
        return self._taps

    @torch.inference_mode()
    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        for token_ids in texts:
            yield self._run(token_ids)

    def encode(self, text: str) -> list[int] | None:
        if not (self._folder / "tokenizer.json").exists():
            return None
        ids: list[int] = AutoTokenizer.from_pretrained(self._folder)(text).input_ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str | None:
        return None

    def _run(self, token_ids: Sequence[int]) -> Tensor:
        logits: Tensor = self._model(torch.tensor([list(token_ids)]), use_cache=False).logits[0]
        return logits.float()

    def _observe_model(self, model: Any) -> Iterator[Any]:
        yield self._keep_output(model.embed_tokens, "embed")
        yield self._keep_output(model.norm, "hidden")
        yield model.rotary_emb.register_forward_hook(self._keep_angles)
        for index, layer in enumerate(model.layers):
            yield self._keep_output(layer, at(index, "residual"))
            if (router := _router(layer)) is not None:
                yield router.register_forward_hook(partial(self._route, index))
            if index in self._layers:
                yield from self._observe_layer(index, layer)

    def _observe_layer(self, index: int, layer: Any) -> Iterator[Any]:
        attention = layer.self_attn
        outputs = {
            "attn_norm": layer.input_layernorm,
            "q": attention.q_proj,
            "k": attention.k_proj,
            "v": attention.v_proj,
            "attn_out": attention.o_proj,
            "ffn_norm": layer.post_attention_layernorm,
            "ffn_out": layer.mlp,
        }
        for name, module in outputs.items():
            shape = (-1, attention.head_dim) if name in "qkv" else None
            yield self._keep_output(module, at(index, name), shape)
        for name in "qk":
            # Where a family has no norm of heads, what is rotated is what was projected.
            source = getattr(attention, f"{name}_norm", getattr(attention, f"{name}_proj"))
            yield self._keep_output(source, at(index, f"{name}_in"), (-1, attention.head_dim))
        yield self._keep_input(attention.o_proj, at(index, "mixed"))
        if hasattr(layer.mlp, "down_proj"):
            yield self._keep_input(layer.mlp.down_proj, at(index, "ffn_hidden"))

    def _keep_output(
        self, module: nn.Module, name: str, heads: tuple[int, ...] | None = None
    ) -> Any:
        """Keep what a module gives, without its batch of one; q, k and v by heads."""

        def keep(_: nn.Module, __: Any, output: Any) -> None:
            rows = (output[0] if isinstance(output, tuple) else output)[0]
            self._taps[name] = rows if heads is None else rows.reshape(len(rows), *heads)

        return module.register_forward_hook(keep)

    def _keep_input(self, module: nn.Module, name: str) -> Any:
        def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self._taps[name] = inputs[0][0]

        return module.register_forward_pre_hook(keep)

    def _route(
        self, index: int, _: nn.Module, __: Any, output: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Replace a router's choice (logits, weights, experts) by the one to follow, if any."""
        logits, weights, experts = output
        if index in self._choices:
            count, among = experts.shape[1], self._choices[index]
            renormalize = self._config.renormalize
            chosen = choose(logits, count, renormalize=renormalize, among=among)
            experts = chosen.topk(count).indices
            weights = chosen.gather(1, experts).to(weights.dtype)
        dense = torch.zeros_like(logits).scatter(1, experts, weights)
        self._taps |= {at(index, "router"): logits, at(index, "experts"): dense}
        return logits, weights, experts

    def _keep_angles(self, _: nn.Module, __: Any, output: tuple[Tensor, Tensor]) -> None:
        """Keep half of the columns of angles, as each half of a head is turned alike."""
        cos, sin = (angles[0].float() for angles in output)
        half = self._head_dim // 2
        self._taps["cos_sin"] = torch.cat((cos[:, :half], sin[:, :half]), dim=-1)

    def _keep_attention(
        self, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
    ) -> None:
        """Keep rotated heads, and scores by the expression that eager attention has."""
        all_keys = k.repeat_interleave(module.num_key_value_groups, dim=1)
        scores = q @ all_keys.transpose(2, 3) * scale
        if mask is not None:  # it holds the most negative number, not minus infinity
            scores = scores.masked_fill(mask < -1e30, -torch.inf)
        sinks = module.sinks.detach() if hasattr(module, "sinks") else None
        kept = {"scores": scores[0], "sinks": sinks}
        heads = {"q_rot": q, "k_rot": k, "keys": k, "values": v}
        kept |= {name: tensor[0].transpose(0, 1) for name, tensor in heads.items()}
        index = module.layer_idx
        self._taps |= {at(index, name): x for name, x in kept.items() if x is not None}

    def _attend(
        self, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **how: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep attention's inputs, then call the model's own; q, k, v are [1, heads, T, D]."""
        if module.layer_idx in self._layers:
            self._keep_attention(module, q, k, v, mask, how["scaling"])
        eager: Callable[..., tuple[Tensor, Tensor]]
        eager = sys.modules[type(module).__module__].eager_attention_forward
        return eager(module, q, k, v, mask, **how)


def _router(layer: Any) -> Any:
    """Return the module that chooses experts, by either of its names, or None."""
    return getattr(layer.mlp, "gate", getattr(layer.mlp, "router", None))
