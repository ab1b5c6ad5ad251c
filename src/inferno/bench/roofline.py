"""The least time that a model's tokens may take: what they cost, and what this machine can do.

Operations are two for each weight that a token is multiplied with: neither the embedding table nor
experts that were not chosen, and the head only where a token is drawn. Bytes are the weights, once
a step, and the keys and values that are attended to. Attention's own operations are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inferno import machine, ops
from inferno.bench.measurement import Limits, Work
from inferno.config.decoder import KVSpec
from inferno.config.families import read_model_config
from inferno.engine.build import read_hf_config
from inferno.engine.execution.gpu import copy_bandwidth
from inferno.engine.kv.kv_cache import token_bytes
from inferno.layers.decoder import CausalLM
from inferno.layers.moe import Experts
from inferno.models import find_model
from inferno.ops.packed import PackedWeight
from inferno.options import EngineOptions
from inferno.quantization import INT8, WeightFormat
from inferno.weights.allocate import weight_bytes

_OPERATIONS = 2  # a product and a sum
_BUFFER_BYTES = 2**30  # far more than any cache holds
_ROUNDS = 8
# A feed-forward product of a small model over a chunk of a prompt.
_ROWS, _INPUTS, _OUTPUTS = 512, 2048, 5632
_FEWEST_ROWS = 8
_ENOUGH_SECONDS = 0.05  # of a product: beside it a call, and packing its inputs, are nothing
# On a GPU, which smaller ones don't fill; several, beside which waiting is nothing.
_SIDE, _IN_A_ROW = 4096, 10
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCosts:
    """A model's weights by how they are used; `kv_specs` say what each layer keeps.

    expert_share  the part of a layer's experts that one token uses.
    expert_format  in which experts are packed, in the checkpoint and in memory; None: as the rest.
    """

    num_parameters: int
    shared_parameters: int
    expert_parameters: int
    head_parameters: int
    shared_bytes: float
    expert_bytes: float
    head_bytes: float
    expert_share: float
    expert_format: WeightFormat | None
    kv_specs: tuple[KVSpec, ...]

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
        return sum(
            min(context_len, spec.window or context_len) * token_bytes(spec)
            for spec in self.kv_specs
        )

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
    module = find_model(hf_config)
    with torch.device("meta"):
        model = module.build(config)
    quantize = None if options.quantize == "none" else options.quantize
    mixture = config.mixture
    sizes = weight_bytes(model, dtype, quantize, module.fused_weights(config))
    layers, experts = model.model.layers, _experts(model)
    expert_bytes = sum(size for name, size in sizes.items() if name.startswith(tuple(experts)))
    expert_parameters = sum(map(_count, experts.values()))
    layer_bytes = sum(size for name, size in sizes.items() if name.startswith("model.layers."))
    # Table and head have the same shape; a tied model has one for both.
    outside = sum(sizes.values()) - layer_bytes
    return ModelCosts(
        num_parameters=_count(model),
        shared_parameters=_count(layers) - expert_parameters,
        expert_parameters=expert_parameters,
        head_parameters=_count(model.model.embed_tokens),
        shared_bytes=layer_bytes - expert_bytes,
        expert_bytes=expert_bytes,
        head_bytes=outside if model.lm_head is None else outside / 2,
        expert_share=mixture.num_chosen / mixture.num_experts if mixture else 0.0,
        expert_format=mixture.format if mixture else None,
        kv_specs=config.kv_specs(kv_dtype),
    )


def _experts(model: CausalLM) -> dict[str, nn.Module]:
    """Return the experts of each layer, by the beginning of their parameters' names."""
    return {f"{name}.": one for name, one in model.named_modules() if isinstance(one, Experts)}


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def measure_limits(num_threads: int, arithmetic: str, device: torch.device = _CPU) -> Limits:
    """Measure the limits of memory and arithmetic with so many threads.

    Both are what a process reaches with the threads that inferno uses, not a data sheet's figures.
    `arithmetic` is a dtype's name, int8 for quantized weights. On a CPU its limit is the quicker
    one of PyTorch's product and our kernels'.
    """
    dtype = getattr(torch, arithmetic)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return Limits(
            bandwidth=copy_bandwidth(device),
            peak=measure_peak(dtype, device=device),
            arithmetic=arithmetic,
        )
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        return Limits(
            bandwidth=measure_bandwidth(),
            peak=max(measure_peak(dtype), measure_kernels(dtype, num_threads)),
            arithmetic=arithmetic,
        )
    finally:
        torch.set_num_threads(before)


def measure_bandwidth(most_bytes: int = _BUFFER_BYTES, rounds: int = _ROUNDS) -> float:
    """Measure the bytes that are read a second, by the sum of a large buffer."""
    available = machine.available_memory() or 4 * most_bytes
    buffer = torch.ones(min(most_bytes, available // 4) // torch.float32.itemsize)
    return buffer.nbytes / _seconds(buffer.sum, rounds)


def measure_peak(dtype: torch.dtype, rounds: int = _ROUNDS, device: torch.device = _CPU) -> float:
    """Measure the operations a second of PyTorch's matrix product."""
    if device.type != "cpu":
        return _peak_elsewhere(dtype, rounds, device)
    if dtype is torch.int8:
        weight = torch.randint(-127, 128, (_INPUTS, _OUTPUTS), dtype=dtype)
        x = torch.randint(-127, 128, (_ROWS, _INPUTS), dtype=dtype)
        return _rate_of_rows(lambda num_rows: torch._int_mm(x[:num_rows], weight), rounds)
    x, weight = torch.randn(_ROWS, _INPUTS).to(dtype), _weight(dtype)
    return _rate_of_rows(lambda num_rows: F.linear(x[:num_rows], weight), rounds)


def measure_kernels(dtype: torch.dtype, num_threads: int, rounds: int = _ROUNDS) -> float:
    """Measure the operations a second of the product that engines compute on a CPU.

    dtype  of plain weights; int8: of those that are quantized, whichever their format is.
    """
    is_quantized = dtype is torch.int8
    floats = torch.float32 if is_quantized else dtype
    x_TI, values_OI = torch.randn(_ROWS, _INPUTS).to(floats), _weight(floats)
    before = torch.get_num_threads()
    try:
        with ops.kernel_context(num_threads):
            packed = ops.pack(values_OI, INT8 if is_quantized else ops.float_format(dtype))
            weight_OI = cast(Tensor | PackedWeight, packed)  # experts alone are neither
            return _rate_of_rows(lambda num_rows: ops.linear(x_TI[:num_rows], weight_OI), rounds)
    finally:
        torch.set_num_threads(before)


def _weight(dtype: torch.dtype) -> Tensor:
    return torch.randn(1, _INPUTS).to(dtype).repeat(_OUTPUTS, 1)


def _rate_of_rows(multiply: Callable[[int], object], rounds: int) -> float:
    """Return the operations a second of a product, by as many rows as don't take long.

    Kernels that a processor has no instructions for take hundreds of times as long as others.
    """
    num_rows, seconds = _FEWEST_ROWS, _seconds(lambda: multiply(_FEWEST_ROWS), 1)
    while num_rows < _ROWS and seconds < _ENOUGH_SECONDS:
        num_rows = min(_ROWS, 4 * num_rows)
        seconds = _seconds(partial(multiply, num_rows), rounds)
    return _OPERATIONS * num_rows * _INPUTS * _OUTPUTS / seconds


def _peak_elsewhere(dtype: torch.dtype, rounds: int, device: torch.device) -> float:
    """Measure the same of a device that computes after the call has returned."""
    x = torch.randn(_SIDE, _SIDE, device=device).to(dtype)

    def multiply() -> None:
        product = x
        for _ in range(_IN_A_ROW):
            product = F.linear(x, x)
        product[0, 0].item()  # waits for it

    return _IN_A_ROW * 2 * _SIDE**3 / _seconds(multiply, rounds)


def _seconds(function: Callable[[], object], rounds: int) -> float:
    """Return the time of the quickest of several calls, after one that warms up."""
    function()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return min(taken)
