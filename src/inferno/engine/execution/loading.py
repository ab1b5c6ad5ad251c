"""Load a model with its weights onto a device, laid out as that device's kernels read them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inferno import ops
from inferno.config.decoder import DecoderConfig
from inferno.errors import InvalidRequest
from inferno.layers.decoder import CausalLM
from inferno.models import find_model
from inferno.options import EngineOptions
from inferno.quantization import (
    FORMATS,
    FP8,
    FP8_DYNAMIC,
    INT8,
    WeightFormat,
    error_in_words,
    error_of,
    kept_blocks,
)
from inferno.weights.allocate import (
    keeps_blocks,
    kept_format,
    num_bytes,
    of_one_kind,
    stays_packed,
    weight_bytes,
)
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.dummy import fill_dummy
from inferno.weights.loader import load_weights
from inferno.weights.open import open_checkpoint
from inferno.weights.packed_cache import PackedCache
from inferno.weights.pieces import FusedSpec, find_pieces

Progress = Callable[[int, int], None]

_logger = logging.getLogger("inferno")


def load_model(
    options: EngineOptions,
    hf_config: dict[str, Any],
    config: DecoderConfig,
    device: torch.device,
    dtype: torch.dtype,
    progress: Progress | None,
) -> CausalLM:
    """Load the model of a folder; its options must have been checked against the device before.

    Raises ModelError, NotEnoughMemory, and InvalidRequest where the device can't quantize.
    """
    module = find_model(hf_config)
    with torch.device("meta"):
        model = module.build(config)
    fused = module.fused_weights(config)
    layout = _Layout(model, device, dtype, _quantization(options, device), fused)
    if options.load_format == "dummy":
        fill_dummy(
            model,
            device=device,
            dtype=dtype,
            fused=fused,
            format_of=layout.format_of,
            kept_bytes=layout.kept_bytes,
            is_invariant=options.batch_invariant,
            progress=progress,
        )
    else:
        _read(options, model, config, layout, progress)
    return model.to(device)  # the parameters are there already; this moves rotary frequencies


def _read(
    options: EngineOptions,
    model: CausalLM,
    config: DecoderConfig,
    layout: _Layout,
    progress: Progress | None,
) -> None:
    """Fill the model from its checkpoint, or from what was packed of it before."""
    with open_checkpoint(options.model) as checkpoint:
        layout.take_in_blocks(checkpoint)
        _tell_what_changes(checkpoint, layout)
        # Only what takes long is kept: floats, and rows that come packed, merely change places. The
        # files hold weights as the CPU's kernels read them.
        is_kept = layout.is_quantized and config.mixture is None and layout.device.type == "cpu"
        cache = PackedCache.of(checkpoint, model, **layout.choices) if is_kept else None
        if cache is not None and cache.load(model, progress):
            return
        tied = {"lm_head.weight": "model.embed_tokens.weight"} if config.tie_word_embeddings else {}
        load_weights(
            model,
            checkpoint,
            fused=layout.fused,
            tied=tied,
            device=layout.device,
            dtype=layout.dtype,
            format_of=layout.format_of,
            kept_bytes=layout.kept_bytes,
            is_invariant=options.batch_invariant,
            progress=progress,
        )
        if cache is not None:
            cache.save(model, progress)


def _tell_what_changes(checkpoint: Checkpoint, layout: _Layout) -> None:
    """Log which weights in GGUF's blocks or FP8 are kept otherwise, and what all of them take."""
    mixed = checkpoint.coded_bytes(layout.mixed_experts(checkpoint))
    changes = [
        f"{size / 2**20:,.0f} MiB of {name} become {change}"
        for name, whole in checkpoint.coded_bytes().items()
        if (change := layout.change_of(name)) is not None and (size := whole - mixed.get(name, 0))
    ]
    changes += [
        f"{size / 2**20:,.0f} MiB of {name} become {_in_words(name, layout.floats)}, for a layer's "
        "experts are of several types"
        for name, size in mixed.items()
    ]
    if changes:
        total = layout.kept_bytes / 2**20
        is_told = layout.keeps_blocks and checkpoint.rounded_blocks()
        level = logging.WARNING if is_told else logging.INFO
        _logger.log(level, "%s; all weights take %.0f MiB", ", ".join(changes), total)


def _in_words(block_type: str, kept: WeightFormat) -> str:
    """Return the format in which blocks of one of GGUF's types are kept, and how far off it is."""
    return f"{kept.name}{error_in_words(error_of(block_type, kept))}"


class _Layout:
    """The layout of a model's weights on a device."""

    def __init__(
        self,
        model: CausalLM,
        device: torch.device,
        dtype: torch.dtype,
        quantize: str | None,
        fused: FusedSpec,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.fused = fused
        self._model = model
        self._quantize = quantize
        self.kept_bytes = math.ceil(num_bytes(model, dtype, quantize, fused))
        self.keeps_blocks = keeps_blocks(device, dtype, quantize)

    def take_in_blocks(self, checkpoint: Checkpoint) -> None:
        """Count the weights as they are kept, those of its blocks too that become no floats."""
        blocks = {
            name: format for name, format in checkpoint.blocks().items() if self._keeps(format)
        }
        sizes = weight_bytes(self._model, self.dtype, self._quantize, self.fused, blocks)
        self.kept_bytes = math.ceil(sum(sizes.values()))

    @property
    def is_quantized(self) -> bool:
        return self._quantize is not None

    @property
    def floats(self) -> WeightFormat:
        """Return the type that plain floats are kept in."""
        return ops.float_format(self.dtype)

    def mixed_experts(self, checkpoint: Checkpoint) -> set[str]:
        """Return the tensors that would stay packed, but for others beside them of another type."""
        mixed: set[str] = set()
        for name, parameter in self._model.named_parameters():
            pieces = find_pieces(name, self.fused)
            stored = [
                checkpoint.stored[one.name] for one in pieces if one.name in checkpoint.stored
            ]
            formats = [one.format for one in stored]
            alike = of_one_kind(parameter, formats)
            mixed.update(
                one.parts[0].name
                for one, common in zip(stored, alike, strict=True)
                if common != one.format
                and not self.format_of(name, parameter, one.format).is_float
                and self.format_of(name, parameter, common).is_float
            )
        return mixed

    def change_of(self, block_type: str) -> str | None:
        """Return what becomes of blocks of one of GGUF's types, and how far off it is; or None.

        FP8 counts as one.
        """
        quantized = FORMATS[self._quantize] if self._quantize is not None else FP8
        if block_type == FP8.name and quantized.takes_exactly(FP8) and self._keeps(FP8):
            return None
        kept = kept_blocks(block_type, has_kernels=self.keeps_blocks)
        if kept is None:
            kept = self.floats if self._quantize is None else FORMATS[self._quantize]
        return None if kept.name == block_type.lower() else _in_words(block_type, kept)

    @property
    def choices(self) -> dict[str, str]:
        """Return all that shapes the packed weights of a checkpoint."""
        return {"quantize": str(self._quantize), "dtype": str(self.dtype)}

    def format_of(self, name: str, parameter: Tensor, stored: WeightFormat) -> WeightFormat:
        """Return the format in which a matrix is kept."""
        known = stored if self._keeps(stored) else None
        return kept_format(name, parameter, known, self.dtype, self._quantize)

    def _keeps(self, stored: WeightFormat) -> bool:
        """Return whether what comes in a format stays in it, as far as kernels are concerned."""
        return stays_packed(stored, self.device, self.dtype, self._quantize)


def _quantization(options: EngineOptions, device: torch.device) -> str | None:
    if options.quantize == "none":
        return None
    format = FORMATS[options.quantize]
    if format == FP8_DYNAMIC and device.type == "cuda" and not ops.has_kernels(device, format):
        raise InvalidRequest(
            f"quantize={format} needs a GPU whose tensor cores multiply 8-bit floats, such as an "
            f"L40S or H100, which {device} is not; use {FP8}",
            param="quantize",
        )
    if not ops.has_kernels(device, format) and ops.has_kernels(device, INT8):
        raise InvalidRequest(
            f"quantize={format} needs kernels that only GPUs have, and the model is to run on "
            f"{device}; int8 takes as much there, and errs less",
            param="quantize",
        )
    if not ops.has_kernels(device, format):
        raise InvalidRequest(
            f"quantize={options.quantize} needs inferno's compiled kernels, which do not run on "
            f"{device} here; leave it out, or see `inferno doctor`",
            param="quantize",
        )
    if options.dtype == "float16" and device.type == "cpu":
        raise InvalidRequest(
            f"quantize={options.quantize} goes with dtype float32 or bfloat16, not float16; leave "
            "--dtype out",
            param="quantize",
        )
    return options.quantize
