"""Lint of a config: positions that its rope scaling doesn't reach, and what the tokenizer says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inferno.errors import ModelError
from inferno.lint.checks import Finding
from inferno.model_files import TOKENIZER_CONFIG, ModelFiles

_REALISTIC = 10**9  # a tokenizer's model_max_length above it means that nobody set it


def config_findings(config: Mapping[str, Any], files: ModelFiles) -> Iterator[Finding]:
    """Yield what is odd in a config though the engine takes it; what it refuses it tells itself."""
    context = config.get("max_position_embeddings")
    if type(context) is not int:
        return
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if isinstance(scaling, dict) and "yarn" in (scaling.get("rope_type"), scaling.get("type")):
        yield from _yarn(scaling, context)
    if (own := _tokenizer_context(files)) is not None and own < context:
        yield Finding(
            "tokenizer's context",
            f"tokenizer_config.json's model_max_length is {own}, and config.json has "
            f"{context} positions",
        )


def _yarn(scaling: Mapping[str, Any], context: int) -> Iterator[Finding]:
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if not isinstance(factor, int | float) or type(original) is not int:
        return
    if context > factor * original:
        yield Finding(
            "context",
            f"config.json has {context} positions, and YaRN stretches {original} by {factor:g} to "
            f"{int(factor * original)}",
        )


def _tokenizer_context(files: ModelFiles) -> int | None:
    try:
        has_one = files.has(TOKENIZER_CONFIG)
        value = files.json(TOKENIZER_CONFIG, error=ModelError).get("model_max_length")
    except ModelError:
        return None
    is_set = isinstance(value, int | float) and 0 < value <= _REALISTIC
    return int(value) if has_one and is_set else None
