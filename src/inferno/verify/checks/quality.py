"""The cost of quantizing and rounding: how well a text is predicted, how precise tensors are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.errors import InvalidRequest, ModelError
from inferno.json_file import read_file
from inferno.options import EngineOptions
from inferno.text.tokenizer import Tokenizer
from inferno.verify.checks.measures import measure, noise_between
from inferno.verify.options import Tell
from inferno.verify.oracles import Oracle
from inferno.verify.outcome import Measure, Row
from inferno.verify.runs.taps import Taps, at

MAX_TEXT_BYTES = 4 * 2**20
MOST_TOKENS = 16384
_SEGMENT = 256  # tokens computed at a time; each segment begins without a past
_MOST = 2  # times the error of plain maths, as FlashAttention's tests allow (arXiv:2205.14135)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """The figures of each token: log-probability by each side, KL divergence, equal choice."""

    ours: Tensor
    theirs: Tensor
    divergence: Tensor
    agrees: Tensor


def quality_row(
    path: Path,
    threshold: float | None,
    options: EngineOptions,
    oracle: Oracle,
    tokenizer: Tokenizer | None,
    max_model_len: int,
    tell: Tell,
) -> Row:
    """Compare perplexity, KL divergence and top-1 agreement of engine and oracle over a text.

    Raises InvalidRequest for a file that can't be read or is too short.
    """
    segments = _segments(path, tokenizer, min(_SEGMENT, max_model_len))
    tell(f"{oracle.name}: {path.name}")
    engine = build_engine(options)
    sums = _join(_compare(engine, oracle, segments, tell))
    num_tokens, mean = len(sums.ours), float(sums.divergence.mean())
    agreement = float(sums.agrees.double().mean())
    num_lost = int((~sums.divergence.isfinite()).sum())
    return Row(
        number="Q",
        title="quality",
        compared=f"predictions of {num_tokens} tokens of {path.name}; KL divergence in nats",
        measures=(_divergence(sums.divergence, threshold),),
        findings=(
            f"perplexity {_perplexity(sums.ours):.4f}, the oracle's {_perplexity(sums.theirs):.4f}",
            f"the same likeliest token {100 * agreement:.2f} % of the time",
            f"mean KL divergence {mean:.3g}"
            + (" (no --threshold was given)" if threshold is None else f", allowed {threshold:g}"),
        ),
        problems=(f"{num_lost} of {num_tokens} predictions are NaN or infinite",)
        if num_lost
        else (),
    )


def _segments(path: Path, tokenizer: Tokenizer | None, length: int) -> list[list[int]]:
    if tokenizer is None:
        raise InvalidRequest(
            "--quality needs a tokenizer.json in the model's folder", param="quality"
        )
    try:
        content = read_file(path, error=ModelError, max_bytes=MAX_TEXT_BYTES)
    except ModelError as problem:
        raise InvalidRequest(f"--quality: {problem}", param="quality") from None
    ids = tokenizer.encode(content.decode("utf-8", errors="replace"))[:MOST_TOKENS]
    segments = [ids[start : start + length] for start in range(0, len(ids), length)]
    segments = [segment for segment in segments if len(segment) > 1]
    if not segments:
        raise InvalidRequest(
            f"--quality: {path} has too little text to predict anything", param="quality"
        )
    return segments


def _compare(
    engine: Engine, oracle: Oracle, segments: Sequence[Sequence[int]], tell: Tell
) -> Iterator[_Sums]:
    for index, (ids, truth) in enumerate(zip(segments, oracle.logits(segments), strict=True)):
        tell(f"comparing segment {index + 1} of {len(segments)}")
        ours, theirs = (
            logits[:-1].double().log_softmax(-1) for logits in (engine.logits(ids), truth)
        )
        targets = torch.tensor(ids[1:])[:, None]
        yield _Sums(
            ours=ours.gather(1, targets).flatten(),
            theirs=theirs.gather(1, targets).flatten(),
            divergence=(theirs.exp() * (theirs - ours)).sum(-1).clamp(min=0),
            agrees=ours.argmax(-1) == theirs.argmax(-1),
        )


def _join(parts: Iterator[_Sums]) -> _Sums:
    every = list(parts)
    return _Sums(
        ours=torch.cat([part.ours for part in every]),
        theirs=torch.cat([part.theirs for part in every]),
        divergence=torch.cat([part.divergence for part in every]),
        agrees=torch.cat([part.agrees for part in every]),
    )


def _perplexity(log_probabilities: Tensor) -> float:
    return math.exp(min(-float(log_probabilities.mean()), 700.0))


def _divergence(divergence: Tensor, threshold: float | None) -> Measure:
    """Measure the KL divergence by its mean, for which the threshold is."""
    mean = float(divergence.mean())
    return Measure(
        tap="",
        name="mean KL divergence",
        max_error=mean if math.isfinite(mean) else math.inf,
        mean_error=mean,
        relative_error=math.nan,
        cosine=math.nan,
        tolerance=math.inf if threshold is None else threshold,
    )


def precision_row(found: Taps, rounded: Taps, original: Taps, num_layers: int) -> Row:
    """Build the row that allows the engine twice the error of plain maths that rounds alike."""
    measures = tuple(_measures(found, rounded, original, num_layers))
    ours, theirs = measures[-1].relative_error, measures[-1].relative_tolerance / _MOST
    return Row(
        number="P",
        title="precision",
        compared="what leaves layers and the model, with float32 over the weights of the files",
        measures=measures,
        findings=(f"logits are off by {ours:.2g} of their length, plain maths by {theirs:.2g}",),
    )


def _measures(found: Taps, rounded: Taps, original: Taps, num_layers: int) -> Iterator[Measure]:
    layers = {at(layer, "residual"): f"layer {layer}'s output" for layer in range(num_layers)}
    names = {**layers, "hidden": "the last norm's output", "logits": "logits"}
    for tap, name in names.items():
        if tap not in found:
            continue  # that nobody saw it is told where it is due
        noise = noise_between(rounded[tap], original[tap])
        allowed, relative = _MOST * noise.largest, _MOST * noise.relative
        yield measure(tap, name, found[tap], original[tap], allowed, relative)
