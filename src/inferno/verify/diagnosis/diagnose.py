"""The diagnosis of the first failure: where its tensor is wrong, why, and what to do next.

A cause is computed, never guessed: the expected tensors are recomputed with one of the usual
mistakes in them, and a mistake counts if its result is what the engine has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inferno.verify.checks.layers import mask_problem, turned_by_oracle
from inferno.verify.checks.measures import largest, max_error, measure
from inferno.verify.diagnosis.attention import ATTENTION
from inferno.verify.diagnosis.evidence import (
    Evidence,
    Hypotheses,
    Hypothesis,
    Table,
    find_where,
    wrong_part,
)
from inferno.verify.diagnosis.experts import EXPERTS
from inferno.verify.diagnosis.layer import LAYER
from inferno.verify.oracles.plain_maths import choose
from inferno.verify.outcome import Diagnosis, Measure, Row
from inferno.verify.runs.taps import LAYER_TAPS, at

# By checkpoint: where to look. {model} is the model's own file.
_PLACES: Mapping[str, str] = {
    "0": "the file or key that is named; if that is sound, config/families.py, and fused_weights "
    "in {model}",
    "1": "the embedding in layers/decoder.py, layers/norm.py, and rms_norm_eps in config.json",
    "1B": "layers/rope.py, and ops.rotate_and_store",
    "2": "the attention in {model}, its fused_weights, and the head norms of ops.rotate_and_store",
    "3": "engine/kv/block_manager.py, engine/execution/batcher.py, and what "
    "ops.rotate_and_store stores",
    "4": "the scale, windows and sinks that {model} gives to ops.attention",
    "5": "the kernel behind ops.attention; then o_proj in {model}",
    "6": "models/common.py or layers/moe.py; ops.gated_linear, ops.route and ops.experts",
    "7": "layers/decoder.py: what a layer adds to the residual stream",
    "8": "layers/decoder.py: the last norm and the head",
    "12": "engine/sampling/sampler.py and engine/execution/local.py, as the forward pass itself "
    "is right",
    "13": "engine/sampling/ and ops.draw, and what engine/execution/local.py hands to them",
    "P": "ops/cpu/panels.py, and the kernels of ops.linear and ops.experts",
    "Q": "the first of the other checkpoints that fails; without one, --dtype float32",
    "I": "the batcher, executor and sampler in engine/, and kernels that mix up requests",
    "S": "engine/execution/local.py, which says what stands, and engine/scheduling/; without "
    "proposals, at engine/proposers/",
}
_OURS_ALONE = ("0", "12", "13", "I", "S")  # of which a second oracle knows nothing
_LITTLE = 4  # times what is allowed
_LITTLE_WEIGHT = 1e-3  # of an expert, made of the same logits
_AS_CLOSE = 2
# How much closer than what was expected a hypothesis must be, and where that alone has to do.
_CLOSER, _RELATIVELY_CLOSER = (3, 50), (2, 10)
_TABLES: tuple[Table, ...] = (ATTENTION, EXPERTS, LAYER)
_MUCH_CLOSER = 50
_MOST_LISTED = 8
_FEW_UNITS = 2
_HEADS = ("q", "k", "v", "q_in", "k_in", "q_rot", "k_rot", "keys", "values", "mixed")
_COARSER = (torch.float8_e4m3fn, torch.bfloat16, torch.float16)


def diagnose(
    failed: Row, evidence: Evidence, *, model_file: str, against: str, is_gguf: bool
) -> Diagnosis:
    """Find where and why a checkpoint failed, and advise what to do next.

    model_file: where the model's own code is; against: who the oracle is; is_gguf: whether the
    model is a GGUF file.
    """
    shown = None if failed.problems else failed.shown
    has_numbers = shown is not None and _has_numbers(shown, evidence)
    where = cause = None
    if shown is not None and has_numbers:
        shown, evidence = _without_following(shown, _turned(shown, evidence))
        where = find_where(shown, evidence)
        cause = _beyond_window(shown, evidence) or _find_cause(shown, evidence)
    is_little = shown is not None and has_numbers and _is_little(shown)
    advice = _advice(
        failed,
        model_file,
        against,
        second="llama.cpp" if is_gguf else "transformers",
        is_little=is_little,
        has_cause=cause is not None,
    )
    return Diagnosis(where=where, cause=cause, advice=advice)


def _has_numbers(shown: Measure, evidence: Evidence) -> bool:
    """Return whether both sides have every tensor that a mistake is sought with."""
    layer = shown.tap.rpartition(".")[0]
    if "hidden" not in evidence.expected:
        return False  # of an oracle that shows nothing but logits
    if shown.tap not in evidence.found or shown.tap not in evidence.expected:
        return False
    if evidence.found[shown.tap].shape != evidence.expected[shown.tap].shape:
        return False
    return not layer or all(at(int(layer), name) in evidence.expected for name in LAYER_TAPS)


def _turned(shown: Measure, evidence: Evidence) -> Evidence:
    """Replace the expected rotated q and k by the engine's own, turned by the oracle's angles."""
    layer, _, name = shown.tap.rpartition(".")
    if name not in ("q_rot", "k_rot"):
        return evidence
    turned = turned_by_oracle(evidence.found, evidence.expected, int(layer))
    return replace(evidence, expected={**evidence.expected, **turned})


def _without_following(shown: Measure, evidence: Evidence) -> tuple[Measure, Evidence]:
    """Compare the engine's choice of experts with the one that its own logits ask for.

    The oracle follows the engine's choice, and its own logits may break a near tie otherwise.
    """
    router = shown.tap.replace("experts", "router")
    if not shown.tap.endswith("experts") or router not in evidence.found:
        return shown, evidence
    config, logits = evidence.config, evidence.found[router].float()
    due = choose(logits, config.experts_per_token, renormalize=config.renormalize)
    found = measure(shown.tap, shown.name, evidence.found[shown.tap], due, _LITTLE_WEIGHT)
    return found, replace(evidence, expected={**evidence.expected, shown.tap: due, router: logits})


def _beyond_window(shown: Measure, evidence: Evidence) -> str | None:
    """Describe how attention's mask differs, where cached keys or values are wrong; else None.

    Blocks that a window has left are soon others', so whoever reads them finds other values.
    """
    layer, _, name = shown.tap.rpartition(".")
    scores = at(int(layer), "scores") if name in ("keys", "values") else ""
    if scores not in evidence.found or scores not in evidence.expected:
        return None
    words = mask_problem(evidence.found[scores], evidence.expected[scores])
    return f"attention reads other keys than its window shows: {words}" if words else None


def _is_little(shown: Measure) -> bool:
    return not shown.problem and shown.severity < _LITTLE


def _advice(
    failed: Row, model_file: str, against: str, *, second: str, is_little: bool, has_cause: bool
) -> str:
    place = _PLACES.get(failed.number, _PLACES["8"]).format(model=model_file)
    steps = []
    if is_little and not has_cause:
        steps.append("it is off by little: see whether it stays so with --dtype float32")
    if not has_cause and against == "reference" and failed.number not in _OURS_ALONE:
        steps.append(f"ask a second oracle which of the two is right, --against {second}")
    if against == "llama.cpp" and failed.number != "0":
        steps.append(
            "look for the first step that differs with --against reference; if none does, the file "
            "is read wrongly: gguf/config.py and weights/gguf.py"
        )
    steps.append(f"if you are changing inferno, look at {place}")
    steps.append("if you changed nothing, report this, with what --json prints")
    return "; ".join(steps)


def _find_cause(failed: Measure, evidence: Evidence) -> str | None:
    """Return the mistake that explains a tensor that failed, or None.

    Mistakes that the tensor is known for go first, then those that any may suffer, then the former
    at the positions and heads that are wrong only. What explains it no better than a mistake may
    whose own rounding is large, such as a scale that sharpens the softmax, goes last.
    """
    found, expected = evidence.found[failed.tap], evidence.expected[failed.tap]
    named = list(_named(failed.tap, evidence))
    others = general_hypotheses(failed.tap.rpartition(".")[2], found, expected, evidence)
    partly = _in_part(named, failed, evidence)
    fit = Fit(failed, found, largest(expected))
    return fit.best(named) or fit.best(others) or fit.best(partly) or fit.best(named, is_wide=True)


@dataclass(frozen=True, slots=True)
class Fit:
    """The comparison of hypotheses with the tensor found, which says whether they are close enough.

    In 16 bits the relative error is compared, which roundings spoil least; else the largest one.
    scale  the expected tensor's largest value, by which rounding goes.
    """

    failed: Measure
    found: Tensor
    scale: float

    def best(self, hypotheses: Iterable[Hypothesis], *, is_wide: bool = False) -> str | None:
        """Return the words of the first hypothesis about as close as any, within the limits."""
        close = [
            (distance, hypothesis.words)
            for hypothesis in hypotheses
            if hypothesis.expected.shape == self.found.shape
            and (distance := self._distance(hypothesis)) <= self._limit(hypothesis, is_wide=is_wide)
        ]
        least = min((distance for distance, _ in close), default=0.0)
        return next((words for distance, words in close if distance <= _AS_CLOSE * least), None)

    @property
    def _is_relative(self) -> bool:
        return math.isfinite(self.failed.relative_tolerance)

    def _distance(self, hypothesis: Hypothesis) -> float:
        found = measure("", "", self.found, hypothesis.expected, 0.0)
        return found.relative_error if self._is_relative else found.max_error

    def _limit(self, hypothesis: Hypothesis, *, is_wide: bool) -> float:
        """Return the largest error that a hypothesis may leave and still be the cause.

        The narrow limit is what rounding explains, and so far below the error found that it can't
        be by chance. The wide limit may also be a share of the error found.
        """
        growth = largest(hypothesis.expected) / self.scale if self.scale else 1.0
        if self._is_relative:
            error, allowed = self.failed.relative_error, self.failed.relative_tolerance
            closer, much_closer = _RELATIVELY_CLOSER
        else:
            error, allowed = self.failed.max_error, self.failed.tolerance * max(1.0, growth)
            closer, much_closer = _CLOSER
        narrow = min(allowed, error / closer)
        return max(narrow, error / much_closer) if is_wide and math.isfinite(error) else narrow


def _named(tap: str, evidence: Evidence) -> Hypotheses:
    """Yield the mistakes that this tensor is known for."""
    layer, _, name = tap.rpartition(".")
    for table in _TABLES:
        if name in table:
            yield from table[name](name, int(layer or 0), evidence)


def _in_part(hypotheses: Iterable[Hypothesis], failed: Measure, evidence: Evidence) -> Hypotheses:
    """Yield the same mistakes where the tensor is wrong, with expected values elsewhere."""
    expected = evidence.expected[failed.tap].float()
    if failed.tap.endswith("sinks"):
        return
    part = wrong_part(failed, evidence)
    if not part.all():
        for hypothesis in hypotheses:
            if hypothesis.expected.shape == expected.shape:
                merged = torch.where(part, hypothesis.expected.float(), expected)
                yield Hypothesis(hypothesis.words, merged)


def general_hypotheses(
    name: str, found: Tensor, expected: Tensor, evidence: Evidence
) -> Hypotheses:
    """Yield mistakes that need no knowledge of what the tensor is for, the likelier first."""
    yield Hypothesis("all values are zero", torch.zeros_like(expected))
    for what, axis in _axes(name):
        ours, theirs = (_with_heads(x, name, evidence) for x in (found, expected))
        if owners := _owners(_items(ours, axis), _items(theirs, axis)):
            moved = theirs.index_select(axis, torch.tensor(owners)).reshape(expected.shape)
            yield Hypothesis(_ownership(what, owners), moved)
    for dtype in _COARSER:
        if dtype.itemsize < found.dtype.itemsize and _is_rounded(found, expected, dtype):
            yield Hypothesis(f"values are rounded to {str(dtype).removeprefix('torch.')}", found)
    yield from _scaled(found, expected)


def _axes(name: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the index of each axis along which a tensor's values may be mixed up."""
    if name in ("sinks", "scores"):
        yield "head", 0
        return
    yield "position", 0
    if name in _HEADS:
        yield "head", 1
    if name == "experts":
        yield "expert", 1


def _with_heads(x: Tensor, name: str, evidence: Evidence) -> Tensor:
    """Cut weighted values, which are one row per position, into heads."""
    return x.view(len(x), evidence.config.num_heads, -1) if name == "mixed" else x


def _items(x: Tensor, axis: int) -> Tensor:
    """Flatten a tensor to [items along the axis, values of one], all of them finite."""
    return x.float().movedim(axis, 0).reshape(x.shape[axis], -1).nan_to_num().clamp(-1e30, 1e30)


def _owners(found: Tensor, expected: Tensor) -> list[int]:
    """Return the item whose values each one holds, itself if unclear; [] if all hold their own."""
    distances = torch.cdist(found, expected)
    nearest = distances.argmin(1)
    own = torch.arange(len(found))
    is_clear = distances[own, nearest] < distances[own, own] / _MUCH_CLOSER
    owners: list[int] = torch.where(is_clear, nearest, own).tolist()
    return owners if owners != own.tolist() else []


def _ownership(what: str, owners: Sequence[int]) -> str:
    wrong = [item for item, owner in enumerate(owners) if owner != item]
    holders, held = _listed(wrong), _listed([owners[item] for item in wrong])
    return f"{what}s are mixed up: {what} {holders} holds what belongs to {what} {held}"


def _listed(items: Sequence[int]) -> str:
    """Write numbers as people do: 3 to 8 where they follow each other."""
    first, last = items[0], items[-1]
    if len(items) > 1 and list(items) == list(range(first, last + 1)):
        return f"{first} to {last}"
    shown = ", ".join(map(str, items[:_MOST_LISTED]))
    return shown + (", ..." if len(items) > _MOST_LISTED else "")


def _is_rounded(found: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """Return whether all values fit a coarser type, and are near the expected ones."""
    is_coarse = torch.equal(found.to(dtype).to(found.dtype), found)
    unit = torch.finfo(dtype).eps * largest(expected)
    return is_coarse and max_error(found, expected) <= _FEW_UNITS * unit


def _scaled(found: Tensor, expected: Tensor) -> Hypotheses:
    """Propose that all values are multiplied by a number, or shifted; hidden ones stay so."""
    is_number = found.isfinite() & expected.isfinite()
    a, b = found[is_number].double(), expected[is_number].double()
    if not b.any():
        return
    ratio, offset = float(a @ b / (b @ b)), float((a - b).mean())
    times, plus = (
        torch.where(expected.isfinite(), x, expected) for x in (expected * ratio, expected + offset)
    )
    yield Hypothesis(f"all values are {ratio:.3g} times what is expected", times)
    yield Hypothesis(f"{offset:.3g} is added to all values", plus)
