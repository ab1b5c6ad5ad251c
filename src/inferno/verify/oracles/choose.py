"""The oracle that was asked for, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.errors import InvalidRequest
from inferno.extras import install_command
from inferno.gguf.file import is_gguf_name
from inferno.machine import num_usable_cores
from inferno.model_files import TOKENIZER, model_files
from inferno.options import EngineOptions
from inferno.text.tokenizer import load_tokenizer
from inferno.verify.case import engine_keeps_blocks
from inferno.verify.options import Tell, VerifyOptions
from inferno.verify.oracles import Choices, Oracle
from inferno.verify.oracles.llamacpp import open_llama_cpp
from inferno.verify.oracles.plain_config import PlainConfig, read_plain_config
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.oracles.reference import ReferenceOracle
from inferno.verify.oracles.saved import SavedOracle, load
from inferno.verify.runs.engine_run import observe
from inferno.verify.runs.taps import Taps
from inferno.weights.checkpoint import Checkpoint

# The ends of YaRN's ramp in llama.cpp, in turns, whatever a file says.
_BETAS_OF_LLAMA_CPP = {"beta_fast": 32.0, "beta_slow": 1.0}


def choose_oracle(
    options: VerifyOptions,
    engine: EngineOptions,
    hf_config: dict[str, Any],
    checkpoint: Checkpoint,
    tell: Tell,
) -> Oracle:
    """Build the oracle that is asked for.

    Raises InvalidRequest where its package is not installed, CheckpointError for a bad file.
    """
    if options.saved_oracle is not None:
        return _saved(options.saved_oracle, options.quantize)
    match options.against:
        case "transformers":
            return _transformers(options.model, read_plain_config(hf_config))
        case "cpu":
            plain = replace(
                engine, device="cpu", dtype="float32", quantize="none", gpu_memory_utilization=None
            )
            return DeviceOracle(plain)
        case "llama.cpp":
            _refuse_other_ramps(read_plain_config(hf_config))
            threads = engine.threads or num_usable_cores()
            return open_llama_cpp(options.model, checkpoint, threads, tell)
    weights = PlainWeights(checkpoint, torch.float32, as_kept=engine_keeps_blocks(engine))
    return ReferenceOracle(options.model, hf_config, weights, tell)


def _refuse_other_ramps(config: PlainConfig) -> None:
    """Refuse models whose positions are others in llama.cpp, such as gpt-oss."""
    for name, theirs in _BETAS_OF_LLAMA_CPP.items():
        if (ours := config.rope.get(name, theirs)) != theirs:
            raise InvalidRequest(
                f"--against llama.cpp: it doesn't read a file's YaRN {name}: it takes {theirs:g} "
                f"for {ours:g}, so its positions and its logits are others; leave --against out, "
                "or compare its safetensors --against transformers",
                param="against",
            )
    if config.rope.get("truncate") is False:
        raise InvalidRequest(
            "--against llama.cpp: it rounds the ends of YaRN's ramp in every model, and this one "
            "was published without (truncate is false), so its logits are others; leave --against "
            "out, or compare its safetensors --against transformers",
            param="against",
        )


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
    if is_gguf_name(folder):
        raise InvalidRequest(
            f"--against transformers reads folders of safetensors, and {folder} is a GGUF file; "
            "choose llama.cpp, or leave --against out",
            param="against",
        )
    # Imported here because it is an extra, and takes seconds.
    try:
        from inferno.verify.oracles.hf_transformers import TransformersOracle  # noqa: PLC0415
    except ImportError as problem:
        raise InvalidRequest(
            f"--against transformers needs a package ({problem}): {install_command('verify')}, "
            "or leave --against out"
        ) from None
    return TransformersOracle(folder, config)


class DeviceOracle:
    """An oracle that is the engine with other options."""

    def __init__(self, options: EngineOptions) -> None:
        self.name = f"this engine on {options.device} in {options.dtype}"
        self._options = options

    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        return observe(self._options, token_ids, 1, layers).taps

    @torch.inference_mode()
    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        engine = build_engine(self._options)
        for token_ids in texts:
            yield engine.logits(token_ids)

    def encode(self, text: str) -> list[int] | None:
        files = model_files(self._options.model)
        return load_tokenizer(files).encode(text) if files.has(TOKENIZER) else None

    def decode(self, token_ids: Sequence[int]) -> str | None:
        return None
