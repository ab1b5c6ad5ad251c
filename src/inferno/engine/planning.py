"""Plan an engine's memory before weights are read, and compare the plan with what is used later."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from inferno import machine
from inferno.config.decoder import DecoderConfig
from inferno.engine.execution.gpu import GpuMemory, gpu_memory
from inferno.engine.proposers.load_draft import OpenedDraft
from inferno.errors import EngineError, ModelError, NotEnoughMemory
from inferno.hub.facts import Tensor
from inferno.machine import readable_size
from inferno.models import find_model
from inferno.options import EngineOptions
from inferno.out_of_memory import is_out_of_memory
from inferno.plan.choices import choose_num_blocks
from inferno.plan.memory import BASE_BYTES, Plan, make_plan
from inferno.plan.report import refusal
from inferno.plan.shape import ModelShape, read_shape
from inferno.weights.pieces import find_pieces

_logger = logging.getLogger("inferno")

# What a loaded model may take beyond its plan before that is worth a warning.
_SLACK_SHARE, _SLACK_BYTES = 1.05, 256 << 20
_CURE = (
    "end those processes, lower --max-num-batched-tokens, raise --gpu-memory-utilization, or "
    "choose a smaller model"
)


def plan_engine(
    options: EngineOptions,
    hf_config: Mapping[str, Any],
    config: DecoderConfig,
    others: int,
    draft: OpenedDraft | None = None,
) -> Plan:
    """Return the memory plan of an engine on the CPU; this process has its tokenizer already.

    others  bytes of other processes that count towards --memory too.

    Raises NotEnoughMemory, with the plan's table, where the model doesn't fit.
    """
    shape = _shape(options, hf_config, config)
    of_draft = None
    if draft is not None:
        of_draft = _shape(draft.options, draft.hf_config, draft.config)
    own, available = machine.own_memory(), machine.available_memory()
    base = BASE_BYTES if own is None else own
    plan = make_plan(
        shape,
        options,
        None if available is None else base + available,
        base=base,
        has_text=False,
        others=others,
        draft=of_draft,
    )
    if not plan.fits:
        raise refusal(shape, options, plan, of_draft)
    return plan


def plan_on_gpu(
    options: EngineOptions,
    hf_config: Mapping[str, Any],
    config: DecoderConfig,
    device: torch.device,
    draft: OpenedDraft | None = None,
) -> Plan:
    """Return the memory plan of an engine on a GPU, of which it may take a share.

    Raises NotEnoughMemory where the model doesn't fit, or where other processes hold memory that
    gpu_memory_utilization asks for.
    """
    shape = _shape(options, hf_config, config)
    of_draft = None
    if draft is not None:
        of_draft = _shape(draft.options, draft.hf_config, draft.config)
    memory = gpu_memory(device)
    plan = make_plan(
        shape,
        options,
        memory.own + memory.free,
        base=memory.own,
        has_text=False,
        gpu_total=memory.total,
        draft=of_draft,
    )
    asked = options.gpu_memory_utilization
    there = describe_gpu(device, memory, options)
    if asked is not None and not plan.is_bound:
        most = (memory.own + memory.free) / memory.total
        raise NotEnoughMemory(
            f"gpu_memory_utilization {asked:g} asks for more than {there}; lower it to "
            f"{int(100 * most) / 100:.2f}, or end those processes, which nvidia-smi lists"
        )
    if not plan.fits:
        raise refusal(shape, options, plan, of_draft, bound=there)
    if not plan.is_bound:
        _logger.warning("the KV cache is smaller than it could be, as of %s", there)
    return plan


def blocks_on_gpu(
    options: EngineOptions, plan: Plan, device: torch.device, workspace: int, *, has_graphs: bool
) -> int:
    """Return how many blocks the KV cache gets, by the memory left once the model is loaded.

    workspace   bytes that the fullest steps took; graphs of steps, if there are any, take as much
                again.

    Raises NotEnoughMemory where hardly one block fits.
    """
    if options.num_blocks is not None:
        return options.num_blocks
    memory = gpu_memory(device)
    granted = min(memory.free, int(memory.total * options.gpu_share) - memory.own)
    free = granted - workspace * (2 if has_graphs else 1)
    if plan.draft is not None:
        free -= plan.draft.weights_bytes + plan.draft.cache_bytes + plan.draft.workspace
    scratch = plan.cache.block_bytes  # the block that nobody reads
    if free < 4 * scratch:
        raise NotEnoughMemory(
            f"no KV cache fits beside the model: steps take {readable_size(workspace)} of "
            f"{describe_gpu(device, memory, options)}; {_CURE}"
        )
    return choose_num_blocks(
        plan.cache.block_bytes,
        free - scratch,
        block_size=options.block_size,
        num_groups=len(plan.cache.windows),
        most_tokens=options.max_num_seqs * plan.context,
        share=1.0,
    )


def log_actual_on_gpu(plan: Plan, device: torch.device, options: EngineOptions) -> None:
    """Log how much of a GPU the loaded model takes, and warn where that is unexpected."""
    planned = plan.base + plan.weights_bytes
    _log_taken("the model", planned, gpu_memory(device).own, device, options)


def log_draft_on_gpu(
    plan: Plan, device: torch.device, options: EngineOptions, own_before: int
) -> None:
    """Log how much of a GPU the draft model and its cache took beside what the engine had."""
    if plan.draft is not None:
        planned = plan.draft.weights_bytes + plan.draft.cache_bytes
        taken = gpu_memory(device).own - own_before
        _log_taken("the draft model", planned, taken, device, options)


def _log_taken(
    what: str, planned: int, taken: int, device: torch.device, options: EngineOptions
) -> None:
    _logger.info(
        "%s: planned %s, took %s of %s",
        *(what, readable_size(planned), readable_size(taken)),
        describe_gpu(device, gpu_memory(device), options),
    )
    if taken > planned * _SLACK_SHARE + _SLACK_BYTES:
        _logger.warning(
            "%s takes %s of %s where %s were planned: memory grew unexpectedly",
            *(what, readable_size(taken), device, readable_size(planned)),
        )


@contextmanager
def naming_gpu_memory(plan: Plan, device: torch.device, options: EngineOptions) -> Iterator[None]:
    """Tell who holds a GPU's memory, and what to do, when the memory runs out at the start."""
    try:
        yield
    except (RuntimeError, MemoryError, EngineError, NotEnoughMemory) as problem:
        # A step's error has been put into words by then, and so has that of a loader or a cache.
        if not is_out_of_memory(problem) and "out of memory" not in str(problem):
            raise
        what = ""
        if isinstance(problem, NotEnoughMemory):
            if problem.is_of_host:
                raise
            what = f" ({str(problem).partition(';')[0]})"
        memory = gpu_memory(device)
        raise NotEnoughMemory(
            f"memory ran out on {describe_gpu(device, memory, options)}; the weights were to take "
            f"{readable_size(plan.weights_bytes)}, steps {readable_size(plan.workspace)}, and the "
            f"engine has {readable_size(memory.own)}{what}; {_CURE}"
        ) from problem


def describe_gpu(device: torch.device, memory: GpuMemory, options: EngineOptions) -> str:
    """Return who holds the memory of a GPU, in words that end a sentence."""
    return (
        f"{device}'s {readable_size(memory.total)}: {readable_size(memory.free)} are free, other "
        f"processes hold {readable_size(memory.others)}, and the engine may take "
        f"{readable_size(int(memory.total * options.gpu_share))} (--gpu-memory-utilization "
        f"{options.gpu_share:g})"
    )


def log_actual(plan: Plan) -> None:
    """Log how much memory the process takes with the model loaded, beside what was planned."""
    own = machine.own_memory()
    if own is not None:
        _logger.info(
            "planned %s, took %s; the KV cache comes to take %s, and steps %s",
            *(readable_size(plan.loaded_bytes), readable_size(own)),
            *(readable_size(plan.cache_bytes), readable_size(plan.workspace)),
        )
        if plan.draft is not None:
            _logger.info(
                "of these the draft model's weights take %s, and its cache comes to take %s",
                *(readable_size(plan.draft.weights_bytes), readable_size(plan.draft.cache_bytes)),
            )


def _shape(
    options: EngineOptions, hf_config: Mapping[str, Any], config: DecoderConfig
) -> ModelShape:
    """Return the model's shape by its files; by its config where they have none, or bad ones.

    The loader says more of what is wrong with files.
    """
    if options.load_format != "dummy":
        try:
            return read_shape(options.model, allow_unknown=options.allow_unknown_config)
        except ModelError:
            pass
    tensors = tuple(_expected_tensors(hf_config, config))
    return ModelShape(
        config=hf_config, decoder=config, tensors=tensors, tokenizer_bytes=0, is_gguf=False
    )


def _expected_tensors(hf_config: Mapping[str, Any], config: DecoderConfig) -> Iterator[Tensor]:
    """Yield the tensors that a checkpoint of this config has."""
    module = find_model(hf_config)
    with torch.device("meta"):
        model = module.build(config)
    fused = module.fused_weights(config)
    for name, parameter in model.named_parameters():
        for piece in find_pieces(name, fused):
            shape = piece.stored_shape(parameter)
            if piece.format is None:
                yield Tensor(piece.name, "", shape, "")
                continue
            shapes = piece.format.stored_shapes(shape)
            for part, stored in zip(piece.format.parts, shapes, strict=True):
                yield Tensor(f"{piece.name}{part.suffix}", "U8", stored, "")
