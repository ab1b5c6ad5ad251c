"""Checkpoint 0: config, weights in memory and tokenizer, before anything is computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from inferno.config.decoder import DecoderConfig
from inferno.layers.parameters import packed_weights
from inferno.ops import PackedExperts, PackedWeight
from inferno.quantization import FORMATS
from inferno.verify.checks.quantized import (
    checkpoint_pieces,
    dtype_of,
    far_off,
    num_coarse_groups,
    quantized_type,
    steps_of,
    values_of,
)
from inferno.verify.options import Tell
from inferno.verify.oracles.plain_config import PlainConfig
from inferno.verify.oracles.plain_maths import unpack_mxfp4
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.outcome import MOST_TOLD, Row
from inferno.weights.pieces import FusedSpec, Piece


def config_digest(hf_config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of config.json's content, whatever its layout."""
    return hashlib.sha256(json.dumps(hf_config, sort_keys=True).encode()).hexdigest()


def weights_digest(weights: PlainWeights, tell: Tell) -> str:
    """Return the SHA-256 over every tensor's name, type, shape and bytes."""
    total = hashlib.sha256()
    for index, name in enumerate(weights.names, start=1):
        tell(f"hashing tensor {index} of {len(weights.names)}")
        total.update(weights.digest(name).encode())
    return total.hexdigest()


def config_problems(config: DecoderConfig, plain: PlainConfig) -> list[str]:
    """List the settings in which two readings of config.json differ."""
    ours = {
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope.theta,
        "windows by layer": config.windows,
        "tie_word_embeddings": config.tie_word_embeddings,
    }
    theirs = {
        "num_hidden_layers": plain.num_layers,
        "hidden_size": plain.hidden_size,
        "num_attention_heads": plain.num_heads,
        "num_key_value_heads": plain.num_kv_heads,
        "head_dim": plain.head_dim,
        "rms_norm_eps": plain.eps,
        "rope_theta": plain.rope["rope_theta"],
        "windows by layer": plain.windows,
        "tie_word_embeddings": plain.tied,
    }
    return [
        f"config.json: the model takes {key} to be {ours[key]}, and it is {theirs[key]}"
        for key in ours
        if ours[key] != theirs[key]
    ]


def weight_problems(
    model: nn.Module, weights: PlainWeights, fused: FusedSpec, quantize: str | None, tell: Tell
) -> list[str]:
    """List parameters that don't hold, bit for bit, what the files say, rounded to their type.

    Quantized ones hold it but for half a step. Which tensor belongs where is taken from the model's
    file: if it is mistaken in that, later checkpoints tell.
    """
    problems = []
    laid_out = dict(packed_weights(model))
    names = [*(name for name, _ in model.named_parameters()), *laid_out]
    for index, name in enumerate(names, start=1):
        tell(f"comparing weight {index} of {len(names)} with its file")
        parameter = ParameterValues.of(
            laid_out[name] if name in laid_out else model.get_parameter(name)
        )
        for piece in checkpoint_pieces(name, fused, weights):
            kind = quantized_type(piece.name, quantize) if piece.name in weights else None
            if kind is not None and weights.is_taken_exactly(piece.name, kind):
                kind = None  # its bytes moved
            if problem := _difference(name, piece, parameter, weights, kind):
                problems.append(problem)
        if kind and (problem := _coarseness(name, parameter, kind)):
            problems.append(problem)
    return problems


@dataclass(frozen=True, slots=True)
class ParameterValues:
    """A parameter's values, of the dtype that they were rounded to before anything else.

    steps  of quantized ones: how far apart the values lie that each could take.
    """

    values: Tensor
    dtype: torch.dtype
    steps: Tensor | None = None

    @classmethod
    def of(cls, weight: Tensor | PackedWeight | PackedExperts) -> ParameterValues:
        """Take a parameter's values, or those of what kernels made of it."""
        if isinstance(weight, Tensor):
            return cls(weight, weight.dtype)
        steps, dtype = steps_of(weight), dtype_of(weight)
        return cls(values_of(weight, dtype if steps is None else torch.float32), dtype, steps)


def _stored(source: str, weights: PlainWeights) -> Tensor | None:
    """Return a tensor of the files, or None; packed experts come unpacked."""
    if source in weights:
        return weights[source]
    if f"{source}_blocks" in weights:
        return unpack_mxfp4(weights[f"{source}_blocks"], weights[f"{source}_scales"])
    return None


def _difference(
    name: str, piece: Piece, parameter: ParameterValues, weights: PlainWeights, kind: str | None
) -> str | None:
    """Return how a piece of the parameter `name` differs from its file.

    kind            what the tensor should be quantized to; None: it stays what it is.
    """
    source, part = piece.name, piece.part(parameter.values)
    stored = _stored(source, weights)
    if stored is None:
        return f"{source} is a weight of the model and in no file of the checkpoint"
    steps = None if parameter.steps is None else piece.part(parameter.steps).flatten()
    # What stays in a format of codes was rounded to no floats before.
    stays_coded = kind is None and steps is not None and bool(steps.any())
    rounded = stored if stays_coded else stored.to(parameter.dtype)
    expected, found = rounded.to(part.dtype).flatten(), part.cpu().flatten()
    if expected.shape != found.shape:
        return f"{source} has {found.numel()} values in memory, and {expected.numel()} in its file"
    differing, how = found != expected, "differ"
    if steps is not None and kind is not None:
        differing, how = far_off(found, expected, steps, kind), "are more than half a step off"
    if not differing.any():
        return None
    return (
        f"{source} in memory is not what its file holds: {int(differing.sum())} of {found.numel()} "
        f"values {how}{'' if source == name else f'; it is kept in {name}'}"
    )


def _coarseness(name: str, parameter: ParameterValues, kind: str) -> str | None:
    count = (
        0 if parameter.steps is None else num_coarse_groups(parameter.values, parameter.steps, kind)
    )
    if not count:
        return None
    return (
        f"{name} in memory is coarser than {kind} has to be, in {count} groups of "
        f"{FORMATS[kind].group} values"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """The facts that checkpoint 0 compares: config, weights, and the tokenizer's ids.

    encoded, expected_encoded  the fixed text's ids by us and by the oracle; None: no tokenizer.
    prompt, expected_prompt    the prompt's; None: it is no text, or the oracle can't tell.
    digests, expected_digests  SHA-256 of config and weights; those of a saved run, if there is one.
    """

    config: DecoderConfig
    plain: PlainConfig
    model: nn.Module
    weights: PlainWeights
    fused: FusedSpec
    quantize: str | None
    encoded: Sequence[int] | None
    expected_encoded: Sequence[int] | None
    prompt: Sequence[int]
    expected_prompt: Sequence[int] | None
    digests: Mapping[str, str]
    expected_digests: Mapping[str, str]


def foundation_row(given: Foundation, tell: Tell) -> Row:
    """Build the row of checkpoint 0."""
    problems = [
        *_digest_problems(given.digests, given.expected_digests),
        *config_problems(given.config, given.plain),
        *weight_problems(given.model, given.weights, given.fused, given.quantize, tell),
        *_tokenizer_problems(given),
    ]
    return Row(
        number="0",
        title="foundation",
        compared="config.json, weights against their files, the tokenizer",
        findings=tuple(_findings(given)),
        problems=tuple(problems[:MOST_TOLD]),
    )


def _digest_problems(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    for what, digest in theirs.items():
        if ours[what] != digest:
            here = ours[what][:12]
            yield f"the saved run had another {what}: SHA-256 {digest[:12]}, here {here}"


def _tokenizer_problems(given: Foundation) -> Iterator[str]:
    texts = {"": (given.encoded, given.expected_encoded)}
    texts["of the prompt "] = (given.prompt, given.expected_prompt)
    for what, (ours, theirs) in texts.items():
        if ours is None or theirs is None or list(ours) == list(theirs):
            continue
        pairs = zip(ours, theirs, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
        shown = [list(ids)[first : first + 8] for ids in (ours, theirs)]
        yield (
            f"the tokenizer gives {what}{shown[0]}..., the oracle's {shown[1]}..., from number "
            f"{first} on"
        )


def _findings(given: Foundation) -> Iterator[str]:
    hashes = ", ".join(f"{what} {digest[:12]}" for what, digest in given.digests.items())
    count = len(given.weights.names)
    yield f"{count} tensors, SHA-256 of {hashes}"
    if given.encoded is None:
        yield "no tokenizer.json: token ids are made up"
    elif given.expected_encoded is None:
        yield "the oracle has no tokenizer to compare"
    else:
        yield (
            f"tokenizer: {len(given.encoded)} ids equal"
            if not any(_tokenizer_problems(given))
            else "tokenizer: ids differ"
        )
