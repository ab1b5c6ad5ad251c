"""The oracle that was asked for, by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from inferno.errors import InvalidRequest
from inferno.extras import install_command
from inferno.options import EngineOptions
from inferno.verify.options import Tell, VerifyOptions
from inferno.verify.oracle import Oracle
from inferno.verify.oracle_device import DeviceOracle
from inferno.verify.oracle_reference import ReferenceOracle
from inferno.verify.plain_config import PlainConfig, read_plain_config
from inferno.verify.plain_weights import PlainWeights
from inferno.verify.saved import SavedOracle, load
from inferno.weights.checkpoint import Checkpoint


def choose_oracle(
    options: VerifyOptions,
    engine: EngineOptions,
    hf_config: dict[str, Any],
    checkpoint: Checkpoint,
    tell: Tell,
) -> Oracle:
    """Build the oracle that is asked for.

    Raises InvalidRequest where transformers is not installed, CheckpointError for a bad file.
    """
    if options.saved_oracle is not None:
        return _saved(options.saved_oracle, options.quantize)
    match options.against:
        case "transformers":
            return _transformers(options.model, read_plain_config(hf_config))
        case "cpu":
            plain = replace(engine, device="cpu", dtype="float32", quantize="none")
            return DeviceOracle(plain)
    weights = PlainWeights(checkpoint, torch.float32)
    return ReferenceOracle(options.model, hf_config, weights, tell)


def _saved(path: Path, quantize: str) -> SavedOracle:
    oracle = load(path)
    theirs = oracle.facts.quantize
    if theirs not in ("none", quantize):
        raise InvalidRequest(
            f"--against {path}: was saved with --quantize {theirs}; use that here too",
            param="quantize",
        )
    return oracle


def _transformers(folder: Path, config: PlainConfig) -> Oracle:
    # Imported here because it is an extra, and takes seconds.
    try:
        from inferno.verify.oracle_transformers import TransformersOracle  # noqa: PLC0415
    except ImportError as problem:
        raise InvalidRequest(
            f"--against transformers needs a package ({problem}): {install_command('verify')}, "
            "or leave --against out"
        ) from None
    return TransformersOracle(folder, config)
