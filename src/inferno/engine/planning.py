"""The plan that an engine follows: of memory, made before weights are read, compared afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from inferno import machine
from inferno.config.decoder import DecoderConfig
from inferno.engine.proposers.load_draft import OpenedDraft
from inferno.errors import ModelError, NotEnoughMemory
from inferno.hub.facts import Tensor
from inferno.machine import readable_size
from inferno.models import find_model
from inferno.options import EngineOptions
from inferno.plan.memory import BASE_BYTES, Plan, make_plan
from inferno.plan.report import refusal
from inferno.plan.shape import ModelShape, read_shape
from inferno.weights.pieces import find_pieces

_logger = logging.getLogger("inferno")


def plan_engine(
    options: EngineOptions,
    hf_config: Mapping[str, Any],
    config: DecoderConfig,
    others: int,
    draft: OpenedDraft | None = None,
) -> Plan:
    """Return the plan of an engine on the CPU in this process, whose text is made already.

    others  bytes of other processes that --memory bounds as well.

    Raises NotEnoughMemory, with the plan's table, where it doesn't fit.
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
        raise NotEnoughMemory(refusal(shape, options, plan, of_draft))
    return plan


def log_actual(plan: Plan) -> None:
    """Log what the process has now that the weights are there, beside what was planned."""
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
