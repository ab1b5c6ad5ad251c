"""Build an engine from its options: config, model, weights, cache, and the parts that run them."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from inferno import ops
from inferno.compiled_kernels import warn_if_missing
from inferno.config.decoder import DecoderConfig
from inferno.engine.engine import Engine
from inferno.engine.execution.batcher import Batcher
from inferno.engine.execution.device import (
    check_activations,
    check_invariance,
    choose_attention,
    choose_dtype,
    choose_kv_dtype,
    find_device,
)
from inferno.engine.execution.first_layers import FirstLayers, check_num_layers
from inferno.engine.execution.footprint import dtype_name, measure
from inferno.engine.execution.gpu import OnGpu, gpu_memory, peak_of
from inferno.engine.execution.loading import Progress, load_model
from inferno.engine.execution.local import Ahead, LocalExecutor
from inferno.engine.execution.runner import Runner
from inferno.engine.execution.self_check import check_ops
from inferno.engine.execution.static_batcher import StaticBatcher
from inferno.engine.kv import kv_cache
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.kv.kv_cache import HostCache, KVLayout
from inferno.engine.kv.offload import Offload
from inferno.engine.planning import (
    blocks_on_gpu,
    log_actual,
    log_actual_on_gpu,
    log_draft_on_gpu,
    naming_gpu_memory,
    plan_engine,
    plan_on_gpu,
)
from inferno.engine.proposers.early_layers import EarlyLayersProposer
from inferno.engine.proposers.load_draft import OpenedDraft, load_draft, open_draft
from inferno.engine.proposers.ngram import NgramProposer
from inferno.engine.proposers.prediction import PredictionProposer
from inferno.engine.sampling.compiling import ConstraintCompiler, Grammars
from inferno.engine.sampling.device_draws import DeviceDraws
from inferno.engine.sampling.sampler import Sampler
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.scheduling.speculation import Proposer, Speculation
from inferno.engine.warm_up import (
    WarmUpStep,
    capture_steps,
    fullest_steps,
    num_blocks_of,
    warm_up,
)
from inferno.errors import ConfigError, InvalidRequest, ModelError, ModelNotFound
from inferno.hub.find import find_model_folder
from inferno.layers.decoder import CausalLM
from inferno.machine import (
    available_memory,
    num_usable_cores,
    readable_size,
    return_free_memory,
)
from inferno.model_files import CONFIG, model_config, model_files
from inferno.ops import AttentionKind, KernelContext, LayerKV
from inferno.options import SPECULATIONS, EngineOptions
from inferno.plan.choices import asked_dtype, choose_num_host_blocks
from inferno.plan.memory import Plan
from inferno.weights.memory import available_bytes

# Of a model's layers such a part proposes where nobody says how many.
_EARLY_PART = 4

_logger = logging.getLogger("inferno")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """The options of an engine, and what they come to for a model on a device.

    num_early_layers  that propose tokens; None for none.
    steps_ahead       see build_engine.
    """

    options: EngineOptions
    hf_config: dict[str, Any]
    config: DecoderConfig
    max_model_len: int
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    num_early_layers: int | None
    steps_ahead: bool


def build_engine(
    options: EngineOptions,
    progress: Progress | None = None,
    *,
    others: int = 0,
    captures: Progress | None = None,
    steps_ahead: bool = True,
) -> Engine:
    """Load a model and put an engine around it; `progress(done, total)` counts bytes of weights.

    A draft model's bytes are counted after the model's own, from 0 again.

    others       bytes of other processes that options.memory bounds as well.
    captures     counts the steps that are recorded before any request, if capture_graphs asks for
                 that.
    steps_ahead  whether a device that computes on its own begins a step before the last one's
                 tokens are read; without it no step is padded, and each is sampled as on a CPU.

    Raises ModelError, DeviceUnavailable, NotEnoughMemory, and InvalidRequest for a contradictory
    option.
    """
    hf_config = read_hf_config(options.model)
    config = model_config(options.model, hf_config, allow_unknown=options.allow_unknown_config)
    max_model_len = _context(options, config)
    device = find_device(options.device)
    dtype = _compute_dtype(options, hf_config, device)
    kv_dtype = choose_kv_dtype(options, hf_config, dtype, device)
    check_invariance(options, hf_config, config, dtype, device)
    check_activations(options, device, dtype)
    if device.type == "cpu":
        warn_if_missing()
    is_cpu = device.type == "cpu"
    num_early_layers = _early_layers(options, config)
    draft_folder = _draft_folder(options)
    draft = None if draft_folder is None else open_draft(draft_folder, options)
    plan = plan_engine(options, hf_config, config, others, draft) if is_cpu else None
    resolved = _Resolved(
        options=options,
        hf_config=hf_config,
        config=config,
        max_model_len=max_model_len,
        device=device,
        dtype=dtype,
        kv_dtype=kv_dtype,
        num_early_layers=num_early_layers,
        steps_ahead=steps_ahead,
    )
    with ExitStack() as stack:
        if device.type == "cuda":
            plan = plan_on_gpu(options, hf_config, config, device, draft)
            stack.enter_context(naming_gpu_memory(plan, device, options))
            stack.enter_context(torch.cuda.device(device))  # of several the one in force here
        return _load(resolved, plan, draft, progress, captures)


def _load(
    resolved: _Resolved,
    plan: Plan | None,
    draft: OpenedDraft | None,
    progress: Progress | None,
    captures: Progress | None,
) -> Engine:
    """Load the model of a checked config and put an engine around it, as the plan says."""
    options, config, max_model_len = resolved.options, resolved.config, resolved.max_model_len
    device, dtype, kv_dtype = resolved.device, resolved.dtype, resolved.kv_dtype
    kernels = ops.kernel_context(
        options.threads or num_usable_cores(), getattr(torch, options.activations)
    )
    if device.type == "cuda":
        kernels = OnGpu(device, kernels)
    with kernels:
        model = load_model(options, resolved.hf_config, config, device, dtype, progress)
    return_free_memory()  # through which weights passed
    layout = KVLayout(specs=config.kv_specs(kv_dtype), block_size=options.block_size)
    if device.type not in ("cpu", "cuda"):  # whose kernels are the project's own, and tested
        check_ops(device, dtype, kv_dtype, config)
    if plan is not None:
        assert plan.cache.block_bytes == layout.block_bytes, "one arithmetic for both"
    if plan is not None and device.type == "cuda":
        log_actual_on_gpu(plan, device, options)

        def connect(num_blocks: int) -> Engine:
            plain = replace(
                options,
                graphs=False,
                capture_graphs="lazy",
                preemption="recompute",
                speculative="off",
                speculative_model=None,
                speculative_early_layers=None,
            )
            tried = replace(resolved, options=plain, num_early_layers=None)
            return _connect(tried, model, layout, num_blocks, kernels, proposers=[])

        workspace = _try_fullest_steps(connect, options, layout, max_model_len, device)
        num_blocks = blocks_on_gpu(
            options, plan, device, workspace, has_graphs=_is_recordable(options)
        )
    elif plan is not None:
        num_blocks = plan.num_blocks
        log_actual(plan)
    else:
        num_blocks = options.num_blocks or kv_cache.choose_num_blocks(
            layout, available_bytes(device), most_tokens=options.max_num_seqs * max_model_len
        )
    _logger.info(
        "%s in %s%s, attention %s, keys and values in %s, %d blocks of %d tokens, context %d",
        *(device, dtype_name(dtype)),
        ", bfloat16 beside quantized weights" if options.activations == "bfloat16" else "",
        ops.describe_attention(
            *(device, choose_attention(options), dtype, kv_dtype),
            head_size=config.head_dim,
            block_size=options.block_size,
        ),
        *(dtype_name(kv_dtype), num_blocks, options.block_size, max_model_len),
    )
    proposers: list[Proposer] = []
    if options.speculative != "off":
        proposers.append(PredictionProposer())
    # A device that computes on its own would wait for each token before the next step begins.
    is_ngram_wanted = options.speculative == "ngram" or not ops.is_asynchronous(device)
    if options.speculative not in ("off", "early") and is_ngram_wanted:
        proposers.append(NgramProposer())
    if draft is not None:
        own_before = gpu_memory(device).own if device.type == "cuda" else 0
        proposers.append(
            load_draft(
                draft,
                vocab_size=config.vocab_size,
                max_model_len=max_model_len,
                num_tokens=num_blocks * options.block_size // len(layout.group_windows),
                plan=None if plan is None else plan.draft,
                device=device,
                kernels=kernels,
                records=_is_recordable(options),
                progress=progress,  # a second round of it: without, loading would seem to hang
            )
        )
        if plan is not None and device.type == "cuda":
            log_draft_on_gpu(plan, device, options, own_before)
    planned = plan.total_bytes if plan is not None and device.type == "cpu" else None
    engine = _connect(resolved, model, layout, num_blocks, kernels, proposers, planned)
    if options.capture_graphs == "start":
        most_tokens = num_blocks // len(layout.group_windows) * options.block_size
        _capture(engine, capture_steps(options, max_model_len, most_tokens), captures)
    return engine


def _capture(engine: Engine, steps: Sequence[WarmUpStep], captures: Progress | None) -> None:
    """Run the steps that are to be recorded; the engine is closed where one fails."""
    _logger.info("recording %d sizes of steps before the first request", len(steps))
    begin = time.monotonic()
    try:
        warm_up(engine, steps, captures)
    except BaseException:
        engine.close()
        raise
    _logger.info("they were recorded in %.1f s", time.monotonic() - begin)


def problem_with(path: Path) -> str | None:
    """Return why a model with this config can't be run; None if it can."""
    try:
        model_config(path, read_hf_config(path))
    except ModelError as problem:
        return str(problem)
    return None


def read_hf_config(path: Path) -> dict[str, Any]:
    """Return config.json of a model in a folder or a GGUF file; raise ModelNotFound without one."""
    if not path.exists():
        raise ModelNotFound(f"{path} is not there; give a model's folder or a GGUF file")
    files = model_files(path)
    if not files.has(CONFIG):
        raise ModelNotFound(f"{path} holds no config.json, so it is not a Hugging Face model")
    return files.json(CONFIG, error=ConfigError)


def _compute_dtype(
    options: EngineOptions, hf_config: dict[str, Any], device: torch.device
) -> torch.dtype:
    is_cpu = device.type == "cpu"
    asked = asked_dtype(options.dtype, options.quantize, is_cpu=is_cpu)
    return choose_dtype(asked, hf_config, device)


def _grammars(path: Path, vocab_size: int, max_length: int) -> ConstraintCompiler:
    """Return what constrains the sequences of requests that have a grammar.

    Nothing is imported or read before the first of them comes.
    """

    def load() -> Grammars:
        grammar = import_module("inferno.engine.sampling.grammar")
        library: Grammars = grammar.GrammarCompiler(path, vocab_size, max_length)
        return library

    return ConstraintCompiler(load)


def _try_fullest_steps(
    connect: Callable[[int], Engine],
    options: EngineOptions,
    layout: KVLayout,
    max_model_len: int,
    device: torch.device,
) -> int:
    """Run the steps that take the most memory, in an engine of a small cache; return how much.

    Kernels are compiled with it, so that they aren't when the first request waits.

    connect     makes an engine of so many blocks around the model.
    """
    steps = fullest_steps(options, max_model_len)
    num_blocks = num_blocks_of(steps, options.block_size, len(layout.group_windows))

    def run() -> None:
        engine = connect(num_blocks)
        try:
            warm_up(engine, steps)
        finally:
            engine.close()

    peak = peak_of(device, run)
    gc.collect()  # its cache makes room
    torch.cuda.empty_cache()
    return max(0, peak - (num_blocks + 1) * layout.block_bytes)


def _step_target(options: EngineOptions) -> float | None:
    """Return the seconds that a step may take; None is "auto"."""
    target = options.step_target_ms
    return None if isinstance(target, str) else target / 1000


def _draft_folder(options: EngineOptions) -> Path | None:
    """Return where the draft model is, None where none is named; ModelNotFound where it isn't."""
    name = options.draft_name
    if name is None:
        return None
    try:
        return find_model_folder(name)
    except ModelNotFound as problem:
        words = ", ".join(SPECULATIONS)
        raise ModelNotFound(
            f"the draft model of speculation, which may be {words} or a model, is not there: "
            f"{problem}"
        ) from None


def _early_layers(options: EngineOptions, config: DecoderConfig) -> int | None:
    """Return how many first layers propose tokens, None for none; InvalidRequest if they can't."""
    num_layers = len(config.kv_specs(torch.float32))
    asked = options.speculative_early_layers
    if asked is None and options.speculative == "early":
        asked = max(1, num_layers // _EARLY_PART)
    if asked is not None:
        check_num_layers(asked, of=num_layers)
    return asked


def _is_recordable(options: EngineOptions) -> bool:
    # An attention that is asked for by name is the reference's, in plain torch.
    return options.graphs and options.attention == AttentionKind.AUTO


def _context(options: EngineOptions, config: DecoderConfig) -> int:
    asked = options.max_model_len
    if asked is not None and asked > config.max_model_len:
        raise InvalidRequest(
            f"max_model_len must be at most the model's context of {config.max_model_len} tokens, "
            f"not {asked}",
            param="max_model_len",
        )
    return asked or config.max_model_len


def _host_cache(
    options: EngineOptions, kv: Sequence[LayerKV], layout: KVLayout, device: torch.device
) -> HostCache | None:
    """Return host memory for blocks of preempted sequences; None where none is to be kept."""
    is_cuda = device.type == "cuda"
    num_blocks = choose_num_host_blocks(
        options.preemption,
        options.swap_space,
        layout.block_bytes,
        is_cuda=is_cuda,
        free_bytes=available_memory() if is_cuda else None,  # on the CPU the plan has counted it
    )
    if num_blocks:
        size = readable_size(num_blocks * layout.block_bytes)
        _logger.info("%d blocks of host memory, %s, for preempted sequences", num_blocks, size)
        return HostCache(kv, num_blocks)
    if options.preemption == "swap":
        raise InvalidRequest(
            f"swap_space of {options.swap_space:g} GiB, or half of what is free, holds no block of "
            f"the KV cache, which takes {layout.block_bytes} bytes: make it larger, or use "
            "--preemption recompute",
            param="swap_space",
        )
    return None


def _offload(
    options: EngineOptions, blocks: BlockManager, host_cache: HostCache | None
) -> Offload | None:
    """Return what says which blocks are copied to host memory and back."""
    if host_cache is None:
        return None
    seconds = 0.0  # copied whenever there is room
    if options.preemption == "auto":
        seconds = host_cache.measure_seconds_per_block()
        _logger.info("the copy of a block to host memory or back takes %.0f us", seconds * 1e6)
    return Offload(blocks, host_cache.num_blocks, seconds)


def _connect(
    resolved: _Resolved,
    model: CausalLM,
    layout: KVLayout,
    num_blocks: int,
    kernels: KernelContext,
    proposers: list[Proposer],
    planned_bytes: int | None = None,
) -> Engine:
    """Put the parts of an engine around a loaded model, with a cache of so many blocks."""
    options, config, max_model_len = resolved.options, resolved.config, resolved.max_model_len
    device, num_early_layers = resolved.device, resolved.num_early_layers
    kv = kv_cache.allocate(layout, num_blocks, device)
    blocks = BlockManager(
        num_blocks,
        options.block_size,
        layout.group_windows,
        enable_prefix_cache=options.prefix_cache,
    )
    host_cache = _host_cache(options, kv, layout, device)
    graph_capture = ops.graph_capture(device, kernels) if _is_recordable(options) else None
    # Metal has no float64, in which the sampler adds up probabilities.
    sampler_device = torch.device("cpu") if device.type == "mps" else device
    sampler = Sampler(config.vocab_size, sampler_device)
    batcher = Batcher(
        block_size=options.block_size,
        group_windows=layout.group_windows,
        max_model_len=max_model_len,
        device=device,
        attention=choose_attention(options),
        full_step=options.max_num_batched_tokens if graph_capture is not None else 0,
        max_num_seqs=options.max_num_seqs,
    )
    ahead = None
    if ops.is_asynchronous(device) and resolved.steps_ahead and num_early_layers is None:
        draws = DeviceDraws(sampler, options.max_num_seqs, device)
        static_batcher = StaticBatcher(
            block_size=options.block_size,
            group_windows=layout.group_windows,
            max_model_len=max_model_len,
            device=device,
            attention=choose_attention(options),
            max_tokens=options.max_num_batched_tokens,
            max_num_seqs=options.max_num_seqs,
            drawn_N=draws.drawn_N,
        )
        ahead = Ahead(static_batcher, draws)
    prefault_bytes = kv_cache.bytes_to_prefault(
        layout, options.num_blocks, measure(model, kv).weights_bytes, available_bytes(device)
    )
    runner = Runner(model, kv, graph_capture, prefault_bytes)
    first_layers = None
    if num_early_layers is not None:
        first_layers = FirstLayers(
            batcher,
            runner,
            num_layers=num_early_layers,
            num_tokens=options.max_num_batched_tokens,
        )
        proposers.append(
            EarlyLayersProposer(
                first_layers,
                Sampler(config.vocab_size, sampler_device),
                kernels,
                config.vocab_size,
            )
        )
    executor = LocalExecutor(
        batcher,
        runner,
        sampler,
        kernels,
        first_layers=first_layers,
        host_cache=host_cache,
        ahead=ahead,
        depth=0 if ahead is None else 1,
    )
    num_proposed = options.num_speculative_tokens
    scheduler = Scheduler(
        blocks,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=max_model_len,
        priority_aging=options.priority_aging,
        step_target=_step_target(options),
        speculation=Speculation(
            proposers,
            num_tokens=None if isinstance(num_proposed, str) else num_proposed,
            is_on=options.speculative != "off",
        ),
        offload=_offload(options, blocks, host_cache),
    )
    return Engine(
        scheduler,
        executor,
        vocab_size=config.vocab_size,
        max_model_len=max_model_len,
        constraints=_grammars(options.model, config.vocab_size, max_model_len),
        planned_bytes=planned_bytes,
    )
