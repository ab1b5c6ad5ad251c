"""Load a draft model for speculative decoding: check that it fits its target, make a proposer.

Opening and loading are two functions, because memory is planned in between: see `open_draft`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.engine.execution.batcher import Batcher
from inferno.engine.execution.device import choose_attention, choose_dtype, choose_kv_dtype
from inferno.engine.execution.footprint import dtype_name, measure
from inferno.engine.execution.loading import Progress, load_model
from inferno.engine.execution.runner import Runner
from inferno.engine.kv import kv_cache
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.kv.kv_cache import KVLayout
from inferno.engine.proposers.draft_model import MOST_CAUGHT_UP, DraftModelProposer
from inferno.engine.proposers.same_tokenizer import check_same_tokenizer
from inferno.engine.sampling.sampler import Sampler
from inferno.errors import ConfigError, ModelError, NotEnoughMemory
from inferno.machine import return_free_memory
from inferno.model_files import CONFIG, model_config, model_files
from inferno.ops import KernelContext
from inferno.options import EngineOptions
from inferno.plan.choices import asked_dtype
from inferno.plan.memory import DraftPlan
from inferno.weights.memory import available_bytes

_logger = logging.getLogger("inferno")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDraft:
    """A draft model that fits its target, and is not loaded yet.

    options     the engine's options, with the draft's folder or GGUF file as the model.
    """

    options: EngineOptions
    hf_config: dict[str, Any]
    config: DecoderConfig


def open_draft(path: Path, options: EngineOptions) -> OpenedDraft:
    """Return the draft model at a path, for the engine of these options, without reading weights.

    Raises ModelError where the draft can't be run, and TokenizerError where the tokenizers differ.
    """
    with _named(path):
        hf_config = model_files(path).json(CONFIG, error=ConfigError)
        config = model_config(path, hf_config, allow_unknown=options.allow_unknown_config)
    check_same_tokenizer(path, options.model)
    return OpenedDraft(options=replace(options, model=path), hf_config=hf_config, config=config)


def load_draft(
    draft: OpenedDraft,
    *,
    vocab_size: int,
    max_model_len: int,
    num_tokens: int,
    plan: DraftPlan | None,
    device: torch.device,
    kernels: KernelContext,
    records: bool,
    progress: Progress | None = None,
) -> DraftModelProposer:
    """Load a draft model, make its cache, and return the proposer.

    vocab_size, max_model_len   sizes of the target model.
    num_tokens  tokens tokens that the target's cache holds.
    plan        says how many blocks the draft's cache has; None, as on a GPU: as many as the
                target's, if half of the free memory has room for them.
    records     whether small passes are recorded, as the target's are.

    Raises ModelError and NotEnoughMemory.
    """
    options, config = draft.options, draft.config
    with _named(options.model):
        is_cpu = device.type == "cpu"
        asked = asked_dtype(options.dtype, options.quantize, is_cpu=is_cpu)
        dtype = choose_dtype(asked, draft.hf_config, device)
        with kernels:
            model = load_model(options, draft.hf_config, config, device, dtype, progress)
        return_free_memory()
        kv_dtype = choose_kv_dtype(options, draft.hf_config, dtype, device)
        layout = KVLayout(specs=config.kv_specs(kv_dtype), block_size=options.block_size)
        if plan is not None:
            assert plan.cache.block_bytes == layout.block_bytes, "one arithmetic for both"
            num_blocks = plan.num_blocks
        else:
            num_blocks = kv_cache.choose_num_blocks(
                layout, available_bytes(device), most_tokens=num_tokens
            )
        kv = kv_cache.allocate(layout, num_blocks, device)
    _logger.info(
        "drafts by %s in %s, keys and values in %s, %d blocks of %d tokens",
        *(options.model, dtype_name(dtype), dtype_name(kv_dtype), num_blocks, options.block_size),
    )
    blocks = BlockManager(
        num_blocks,
        options.block_size,
        layout.group_windows,
        enable_prefix_cache=options.prefix_cache,
    )
    max_model_len = min(max_model_len, config.max_model_len)
    graph_capture = ops.graph_capture(device, kernels) if records else None
    batcher = Batcher(
        block_size=options.block_size,
        group_windows=layout.group_windows,
        max_model_len=max_model_len,
        device=device,
        attention=choose_attention(options),
        full_step=MOST_CAUGHT_UP if records else 0,
        max_num_seqs=options.max_num_seqs,
    )
    prefault_bytes = kv_cache.bytes_to_prefault(
        layout, None, measure(model, kv).weights_bytes, available_bytes(device)
    )
    num_common = min(vocab_size, config.vocab_size)
    # Metal has no float64, in which the sampler adds up probabilities.
    sampler_device = torch.device("cpu") if device.type == "mps" else device
    return DraftModelProposer(
        blocks,
        batcher,
        Runner(model, kv, graph_capture, prefault_bytes),
        Sampler(num_common, sampler_device),
        kernels,
        num_common=num_common,
        mask_size=vocab_size,
        max_model_len=max_model_len,
    )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have errors say that they are about the draft model."""
    try:
        yield
    except (ModelError, NotEnoughMemory) as problem:
        raise type(problem)(f"the draft model {path}: {problem}") from None
