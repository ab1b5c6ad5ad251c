"""`verify`: run the engine and the oracle, compare them checkpoint by checkpoint, and report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

import inferno
from inferno.verify.case import Case, opened
from inferno.verify.diagnosis import diagnose
from inferno.verify.foundation import Foundation, config_digest, foundation_row, weights_digest
from inferno.verify.invariance import invariance_row
from inferno.verify.options import Tell, VerifyOptions
from inferno.verify.oracle import Oracle
from inferno.verify.oracle_reference import ReferenceOracle
from inferno.verify.oracles import choose_oracle
from inferno.verify.outcome import Diagnosis, Report, Row
from inferno.verify.precision import precision_row
from inferno.verify.prompts import TOKENIZER_TEXT, Prompt, unreached
from inferno.verify.quality import quality_row
from inferno.verify.saved import Facts, SavedOracle, check_writable, save
from inferno.verify.subject import Observed
from inferno.verify.watched import Watched, evidence_of, judge, watch


def verify(options: VerifyOptions, tell: Tell) -> Report:
    """Compare a model's forward pass with an oracle's; `tell` hears what is being done.

    Raises ModelError, DeviceUnavailable, NotEnoughMemory, InvalidRequest, EngineError.
    """
    if options.save is not None:
        check_writable(options.save)
    with opened(options, tell) as case:
        oracle = choose_oracle(options, case.engine, case.hf_config, case.checkpoint, tell)
        saved = oracle if isinstance(oracle, SavedOracle) else None
        prompt, layers = case.prompt(saved), case.layers(saved)
        watched = watch(case, oracle, prompt, layers)
        digests = _digests(case)
        if options.save is not None:
            save(options.save, _facts(case, watched, prompt, digests), watched.observed.taps)
        foundation = _foundation(case, oracle, watched.observed, digests)
        watched, rows = judge(case, watched)
        if saved is None and (layer := _unseen_layer(rows)) is not None:
            wanted = tuple(sorted({*layers, layer}))
            watched, rows = judge(case, watch(case, oracle, prompt, wanted))
        rows = (foundation, *rows, *_precision_rows(case, oracle, watched))
        rows = (*rows, *_asked_rows(case, oracle, prompt, watched))
        return _report(case, prompt, watched, rows)


def _unseen_layer(rows: Sequence[Row]) -> int | None:
    """Return the layer that fails first, if nobody looked into it: it is worth another run."""
    failed = next((row for row in rows if not row.passed), None)
    if failed is None or failed.number != "7":
        return None
    both = (*failed.measures, *failed.products)
    layer = min(int(one.tap.partition(".")[0]) for one in both if not one.passed)
    return layer if not any(row.number == "6" and row.layer == layer for row in rows) else None


def _digests(case: Case) -> dict[str, str]:
    weights = weights_digest(case.weights, case.tell)
    return {"config": config_digest(case.hf_config), "weights": weights}


def _facts(case: Case, watched: Watched, prompt: Prompt, digests: dict[str, str]) -> Facts:
    encoded, observed = case.encode(TOKENIZER_TEXT), watched.observed
    return Facts(
        versions=f"inferno {inferno.__version__}, PyTorch {torch.__version__}",
        device=observed.device,
        dtype=_name(observed.dtype),
        quantize=case.engine.quantize,
        config=digests["config"],
        weights=digests["weights"],
        prompt=prompt.text,
        num_prompt_tokens=len(prompt.token_ids),
        token_ids=observed.token_ids,
        new_ids=observed.new_ids,
        layers=watched.layers,
        encoded=None if encoded is None else tuple(encoded),
    )


def _foundation(case: Case, oracle: Oracle, observed: Observed, digests: dict[str, str]) -> Row:
    saved = oracle.facts if isinstance(oracle, SavedOracle) else None
    given = Foundation(
        config=case.config,
        plain=case.plain,
        model=observed.model,
        weights=case.weights,
        fused=case.fused,
        quantize=case.quantize,
        encoded=case.encode(TOKENIZER_TEXT),
        expected_encoded=oracle.encode(TOKENIZER_TEXT),
        digests=digests,
        expected_digests={}
        if saved is None
        else {"config": saved.config, "weights": saved.weights},
    )
    return foundation_row(given, case.tell)


def _precision_rows(case: Case, oracle: Oracle, watched: Watched) -> Iterator[Row]:
    """Compare with the files' weights too, where others are compared on the quantized ones."""
    if watched.rounded and watched.plain.over_held and isinstance(oracle, ReferenceOracle):
        original = oracle.taps(watched.observed.token_ids, (), watched.plain.choices)
        yield precision_row(watched.found, watched.rounded, original, case.config.num_layers)


def _asked_rows(case: Case, oracle: Oracle, prompt: Prompt, watched: Watched) -> Iterator[Row]:
    """Yield the rows that --quality and --invariance ask for."""
    options = case.options
    if options.quality is not None:
        yield quality_row(
            options.quality,
            options.threshold,
            case.engine,
            oracle,
            case.tokenizer,
            case.config.max_model_len,
            case.tell,
        )
    if options.invariance:
        num_groups, depth = len(set(case.config.windows)), case.config.num_layers + 1
        # Twice, for both runs round.
        allowed = {tap: 2 * watched.allowed(tap, depth) for tap in ("hidden", "logits")}
        yield invariance_row(
            case.engine,
            prompt.token_ids,
            case.config.max_model_len,
            num_groups,
            options.invariance,
            allowed,
            case.tell,
        )


def _report(case: Case, prompt: Prompt, watched: Watched, rows: tuple[Row, ...]) -> Report:
    failed = next((row for row in rows if not row.passed), None)
    diagnosis = Diagnosis()
    if failed is not None:
        case.tell("looking for the cause")
        evidence, against = evidence_of(case, watched), case.options.against
        diagnosis = diagnose(failed, evidence, model_file=case.model_file, against=against)
    return Report(
        model=case.options.name or str(case.options.model),
        subject=_describe(case, watched.observed, prompt),
        oracle=watched.oracle,
        text=prompt.text or "",
        rows=rows,
        diagnosis=diagnosis,
        notes=tuple(_notes(case, watched)),
    )


def _describe(case: Case, observed: Observed, prompt: Prompt) -> str:
    num_prompt, num_new = len(prompt.token_ids), len(observed.new_ids)
    weights = "" if case.quantize is None else f" with {case.quantize} weights"
    return (
        f"{_name(observed.dtype)}{weights} on {observed.device}; {num_prompt} prompt tokens in "
        f"chunks of {observed.chunk}, then {num_new} new ones one by one, over a paged KV cache"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _notes(case: Case, watched: Watched) -> Iterator[str]:
    for window in unreached(case.config.windows, watched.num_tokens):
        yield (
            f"the window of {window} tokens hid nothing from {watched.num_tokens}: it is checked "
            f"only by a longer --prompt"
        )
    is_followed = case.options.against in ("reference", "transformers")
    if case.config.mixture is not None and not is_followed:
        yield (
            "a near tie between experts may fall either way, and this oracle can't follow the "
            "engine's choice: compare with the reference where they differ"
        )
