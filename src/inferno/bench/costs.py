"""The least cost of a model's tokens: operations, and bytes that must be read.

Operations are two for each weight that a token is multiplied with: neither the embedding table nor
experts that were not chosen, and the head only where a token is drawn. Bytes are the weights, once
a step, and the keys and values that are attended to. Attention's own operations are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from inferno.bench.job import Work
from inferno.engine.assemble import read_hf_config
from inferno.engine.kv_cache import KVLayout
from inferno.layers.decoder import CausalLM
from inferno.layers.moe import Experts
from inferno.models import find_model, read_model_config
from inferno.options import EngineOptions
from inferno.weights.quantize import num_bytes

_OPERATIONS = 2  # a product and a sum
_MXFP4_VALUES = 2  # in a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCosts:
    """A model's weights by how they are used; `layout` is its KV cache's, in blocks of one token.

    expert_share  the part of a layer's experts that one token uses.
    has_mxfp4     experts are packed so, in the checkpoint and in memory.
    """

    num_parameters: int
    shared_parameters: int
    expert_parameters: int
    head_parameters: int
    shared_bytes: float
    expert_bytes: float
    head_bytes: float
    expert_share: float
    has_mxfp4: bool
    layout: KVLayout

    def operations(self, num_tokens: int, num_drawn: int) -> float:
        """Count the operations of `num_tokens` tokens, after `num_drawn` of which one is drawn."""
        used = self.shared_parameters + self.expert_share * self.expert_parameters
        return _OPERATIONS * (used * num_tokens + self.head_parameters * num_drawn)

    def weight_bytes(self, num_requests: int) -> float:
        """Count the bytes of weights that a step of one token for each request reads.

        As many experts are read as are chosen on average, if each choice is by chance.
        """
        chosen = 1 - (1 - self.expert_share) ** num_requests
        return self.shared_bytes + self.head_bytes + chosen * self.expert_bytes

    def kv_bytes(self, context_len: int) -> int:
        """Count the bytes of keys and values that a token reads, of `context_len` with itself."""
        layer_bytes = self.layout.block_bytes // self.layout.num_storages
        seen = (min(context_len, window or context_len) for window in self.layout.windows)
        return sum(seen) * layer_bytes

    def work(self, *, num_requests: int, at_once: int, prompt_tokens: int, max_tokens: int) -> Work:
        """Count the work of requests of equal length, of which `at_once` run at once."""
        num_steps = max_tokens - 1  # the first token comes of the prompt
        full, rest = divmod(num_requests, at_once)
        step_bytes = full * self.weight_bytes(at_once) + (self.weight_bytes(rest) if rest else 0)
        contexts = range(prompt_tokens + 1, prompt_tokens + max_tokens)
        return Work(
            prefill_operations=self.operations(num_requests * prompt_tokens, num_requests),
            decode_operations=self.operations(num_requests * num_steps, num_requests * num_steps),
            decode_bytes=num_steps * step_bytes + num_requests * sum(map(self.kv_bytes, contexts)),
        )


def model_costs(options: EngineOptions, dtype: torch.dtype, kv_dtype: torch.dtype) -> ModelCosts:
    """Count the costs of the model that these options load, at the dtypes of maths and KV cache."""
    hf_config = read_hf_config(options.model)
    config = read_model_config(hf_config, allow_unknown=options.allow_unknown_config)
    with torch.device("meta"):
        model = find_model(hf_config).build(config)
    quantize = None if options.quantize == "none" else options.quantize
    mixture = config.mixture
    layers, experts = model.model.layers, _experts(model)
    expert_bytes = sum(num_bytes(one, dtype, quantize) for one in experts)
    expert_parameters = sum(map(_count, experts))
    layer_bytes = num_bytes(layers, dtype, quantize)
    # Table and head have the same shape; a tied model has one for both.
    outside = num_bytes(model, dtype, quantize) - layer_bytes
    return ModelCosts(
        num_parameters=_count(model),
        shared_parameters=_count(layers) - expert_parameters,
        expert_parameters=expert_parameters,
        head_parameters=_count(model.model.embed_tokens),
        shared_bytes=layer_bytes - expert_bytes,
        expert_bytes=expert_bytes,
        head_bytes=outside if model.lm_head is None else outside / 2,
        expert_share=mixture.num_chosen / mixture.num_experts if mixture else 0.0,
        has_mxfp4=mixture is not None and mixture.is_packed,
        layout=KVLayout(
            windows=config.windows,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=1,
            dtype=kv_dtype,
        ),
    )


def _experts(model: CausalLM) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Experts)]


def _count(module: nn.Module) -> int:
    """Count parameters as the model's authors do: packed ones by their values, without scales."""
    return sum(
        parameter.numel() * (_MXFP4_VALUES if name.endswith("blocks") else 1)
        for name, parameter in module.named_parameters()
        if not name.endswith("scales")
    )
