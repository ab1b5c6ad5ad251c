"""The diagnosis of the first failure: where its tensor is wrong, why, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inferno.verify.checkpoints import mask_problem, turned_by_oracle
from inferno.verify.compare import measure
from inferno.verify.hints import find_cause
from inferno.verify.outcome import Diagnosis, Measure, Row
from inferno.verify.plain_experts import choose
from inferno.verify.suspects import Evidence
from inferno.verify.taps import at
from inferno.verify.unseen import LAYER_TAPS
from inferno.verify.where import find_where

# By checkpoint: where to look. {model} is the model's own file.
_PLACES: Mapping[str, str] = {
    "0": "the file or key that is named; if that is sound, {model}: read_config, fused_weights",
    "1": "layers/embedding.py, layers/norm.py, and rms_norm_eps in config.json",
    "1B": "layers/rope.py, and ops.rotate_and_store",
    "2": "the attention in {model}, its fused_weights, and the head norms of ops.rotate_and_store",
    "3": "engine/blocks.py, engine/batcher.py, and what ops.rotate_and_store stores",
    "4": "the scale, windows and sinks that {model} gives to ops.attention",
    "5": "the kernel behind ops.attention; then o_proj in {model}",
    "6": "layers/mlp.py or layers/moe.py; ops.gated_linear, ops.route and ops.experts",
    "7": "layers/decoder.py: what a layer adds to the residual stream",
    "8": "layers/decoder.py: the last norm and the head",
    "12": "engine/sampler.py and engine/executor.py, as the forward pass itself is right",
    "P": "ops/cpu/panels.py, and the kernels of ops.linear and ops.experts",
    "Q": "the first of the other checkpoints that fails; without one, --dtype float32",
    "I": "the batcher, executor and sampler in engine/, and kernels that mix up requests",
}
_LITTLE = 4  # times what is allowed
_LITTLE_WEIGHT = 1e-3  # of an expert, made of the same logits


def diagnose(failed: Row, evidence: Evidence, *, model_file: str, against: str) -> Diagnosis:
    """Find where and why a checkpoint failed, and advise what to do next.

    model_file: where the model's own code is; against: who the oracle is.
    """
    shown = None if failed.problems else failed.shown
    has_numbers = shown is not None and _has_numbers(shown, evidence)
    where = cause = None
    if shown is not None and has_numbers:
        shown, evidence = _without_following(shown, _turned(shown, evidence))
        where = find_where(shown, evidence)
        cause = _beyond_window(shown, evidence) or find_cause(shown, evidence)
    is_little = shown is not None and has_numbers and _is_little(shown)
    advice = _advice(failed, model_file, against, is_little=is_little, has_cause=cause is not None)
    return Diagnosis(where=where, cause=cause, advice=advice)


def _has_numbers(shown: Measure, evidence: Evidence) -> bool:
    """Return whether both sides have every tensor that a mistake is sought with."""
    layer = shown.tap.rpartition(".")[0]
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


def _advice(failed: Row, model_file: str, against: str, *, is_little: bool, has_cause: bool) -> str:
    place = _PLACES.get(failed.number, _PLACES["8"]).format(model=model_file)
    steps = []
    if is_little and not has_cause:
        steps.append("it is off by little: see whether it stays so with --dtype float32")
    if not has_cause and against == "reference" and failed.number not in ("0", "12", "I"):
        steps.append("ask a second oracle which of the two is right, --against transformers")
    steps.append(f"if you are changing inferno, look at {place}")
    steps.append("if you changed nothing, report this, with what --json prints")
    return "; ".join(steps)
