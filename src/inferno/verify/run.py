"""`verify`: run the engine and the oracle, and compare them checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch

import inferno
from inferno.verify.case import Case, opened
from inferno.verify.checkpoints import KVFindings, layer_rows, residual_row, turned_by_oracle
from inferno.verify.compare import Tolerances, max_error
from inferno.verify.endings import Generated, ending_rows
from inferno.verify.foundation import Foundation, config_digest, foundation_row, weights_digest
from inferno.verify.hints import find_hint
from inferno.verify.invariance import invariance_row
from inferno.verify.options import Tell, VerifyOptions
from inferno.verify.oracle import Choices, Oracle
from inferno.verify.oracle_reference import ReferenceOracle
from inferno.verify.oracles import choose_oracle
from inferno.verify.outcome import Report, Row
from inferno.verify.prompts import NUM_NEW, TOKENIZER_TEXT, Prompt, unreached
from inferno.verify.quality import quality_row
from inferno.verify.saved import Facts, SavedOracle, check_writable, save
from inferno.verify.subject import Observed, observe
from inferno.verify.suspects import Evidence
from inferno.verify.taps import Taps, at, first_positions


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
        tell("running the engine")
        observed = observe(case.engine, prompt.token_ids, NUM_NEW, layers, case.config.num_layers)
        digests = _digests(case)
        if options.save is not None:
            save(options.save, _facts(case, observed, prompt, layers, digests), observed.taps)
        return _compare(case, oracle, observed, prompt, layers, digests)


def _digests(case: Case) -> dict[str, str]:
    weights = weights_digest(case.weights, case.tell)
    return {"config": config_digest(case.hf_config), "weights": weights}


def _facts(
    case: Case,
    observed: Observed,
    prompt: Prompt,
    layers: tuple[int, ...],
    digests: dict[str, str],
) -> Facts:
    encoded = case.encode(TOKENIZER_TEXT)
    return Facts(
        versions=f"inferno {inferno.__version__}, PyTorch {torch.__version__}",
        device=observed.device,
        dtype=str(observed.dtype).removeprefix("torch."),
        config=digests["config"],
        weights=digests["weights"],
        prompt=prompt.text,
        num_prompt_tokens=len(prompt.token_ids),
        token_ids=observed.token_ids,
        new_ids=observed.new_ids,
        layers=layers,
        encoded=None if encoded is None else tuple(encoded),
    )


def _compare(
    case: Case,
    oracle: Oracle,
    observed: Observed,
    prompt: Prompt,
    layers: tuple[int, ...],
    digests: dict[str, str],
) -> Report:
    token_ids, num_prompt = observed.token_ids, len(prompt.token_ids)
    found, choices = observed.taps, _choices(case, observed)
    expected = oracle.taps(token_ids, layers, choices)
    if isinstance(oracle, SavedOracle):
        length = _num_shared(token_ids, oracle.facts.token_ids)
        oracle.check_fits(found, length)
        found, expected = first_positions(found, length), first_positions(expected, length)
        token_ids = token_ids[:length]
    new_ids = observed.new_ids[: len(token_ids) - num_prompt + 1]
    generated = Generated(num_prompt=num_prompt, new_ids=new_ids, error=observed.error)
    tolerances = _tolerances(case, oracle, observed, layers, expected, choices)
    depth = case.config.num_layers + 1
    allowed = {tap: tolerances.of(tap, expected[tap], depth) for tap in ("hidden", "logits")}
    rows = (
        _foundation(case, oracle, observed, digests),
        *_block_rows(case, observed, found, expected, layers, tolerances),
        *ending_rows(found, expected, generated, allowed, case.decode),
        *_asked_rows(case, oracle, prompt, allowed["logits"]),
    )
    evidence = Evidence(found, expected, case.plain, case.weights)
    failed = next((row for row in rows if not row.passed), None)
    return Report(
        model=case.options.name or str(case.options.model),
        subject=_describe(observed, prompt),
        oracle=oracle.name,
        text=prompt.text or "",
        rows=rows,
        hint=None if failed is None else find_hint(failed, evidence),
        notes=tuple(_notes(case, token_ids, observed.dtype)),
    )


def _choices(case: Case, observed: Observed) -> Choices:
    """The engine's choice of experts, for others to follow where 16 bits may turn a near tie."""
    if observed.dtype.itemsize > 2 or case.config.mixture is None:
        return {}
    taps = ((layer, at(layer, "experts")) for layer in range(case.config.num_layers))
    return {layer: observed.taps[tap] > 0 for layer, tap in taps if tap in observed.taps}


def _num_shared(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Leading tokens that two runs have in common; the prompt is, so there are some."""
    pairs = zip(ours, theirs, strict=False)
    differing = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(differing, min(len(ours), len(theirs)))


def _tolerances(
    case: Case,
    oracle: Oracle,
    observed: Observed,
    layers: Sequence[int],
    expected: Taps,
    choices: Choices,
) -> Tolerances:
    """By the coarser of both dtypes; a 16-bit one is measured on plain maths at that precision."""
    dtype, token_ids = observed.dtype, observed.token_ids
    theirs = getattr(torch, oracle.facts.dtype) if isinstance(oracle, SavedOracle) else dtype
    coarser = max(dtype, theirs, key=lambda one: torch.finfo(one).eps)
    noise: dict[str, float] = {}
    if coarser.itemsize == 2 and case.options.tolerance is None:
        rounded = _reference(case, coarser).taps(token_ids, layers, choices)
        exact = expected
        if isinstance(oracle, SavedOracle):  # its own rounding is in it
            exact = _reference(case, torch.float32).taps(token_ids, layers, choices)
        noise = _noise(rounded, exact, layers)
    return Tolerances(dtype=coarser, relative=case.options.tolerance, noise=noise)


def _reference(case: Case, dtype: torch.dtype) -> ReferenceOracle:
    return ReferenceOracle(
        case.options.model, case.hf_config, case.checkpoint, case.tell, dtype=dtype
    )


def _noise(rounded: Taps, exact: Taps, layers: Sequence[int]) -> dict[str, float]:
    turned = {
        name: tensor
        for layer in layers
        for name, tensor in turned_by_oracle(rounded, exact, layer).items()
    }
    exact = {**exact, **turned}
    return {name: max_error(rounded[name], exact[name]) for name in exact if name in rounded}


def _foundation(case: Case, oracle: Oracle, observed: Observed, digests: dict[str, str]) -> Row:
    saved = oracle.facts if isinstance(oracle, SavedOracle) else None
    given = Foundation(
        config=case.config,
        plain=case.plain,
        model=observed.model,
        weights=case.weights,
        fused=case.fused,
        encoded=case.encode(TOKENIZER_TEXT),
        expected_encoded=oracle.encode(TOKENIZER_TEXT),
        digests=digests,
        expected_digests={}
        if saved is None
        else {"config": saved.config, "weights": saved.weights},
    )
    return foundation_row(given, case.tell)


def _block_rows(
    case: Case,
    observed: Observed,
    found: Taps,
    expected: Taps,
    layers: Sequence[int],
    tolerances: Tolerances,
) -> Iterator[Row]:
    """Asked layers with their insides, those between them by what leaves them."""
    kv = KVFindings(observed.ledger.num_reads, observed.ledger.changes)
    for is_asked, group in groupby(range(case.config.num_layers), key=lambda i: i in layers):
        if is_asked:
            for layer in group:
                yield from layer_rows(found, expected, layer, tolerances, kv)
        else:
            yield residual_row(found, expected, list(group), tolerances)


def _asked_rows(case: Case, oracle: Oracle, prompt: Prompt, allowed: float) -> Iterator[Row]:
    """What --quality and --invariance add."""
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
        num_groups = len(set(case.config.windows))
        ids, count = prompt.token_ids, options.invariance
        allowed = 2 * allowed  # both runs round
        yield invariance_row(case.engine, ids, num_groups, count, allowed, case.tell)


def _describe(observed: Observed, prompt: Prompt) -> str:
    dtype = str(observed.dtype).removeprefix("torch.")
    num_prompt, num_new = len(prompt.token_ids), len(observed.new_ids)
    return (
        f"{dtype} on {observed.device}, {num_prompt} prompt tokens in chunks, then {num_new} new "
        f"ones one by one, over a paged KV cache"
    )


def _notes(case: Case, token_ids: Sequence[int], dtype: torch.dtype) -> Iterator[str]:
    for window in unreached(case.config.windows, len(token_ids)):
        yield (
            f"the window of {window} tokens hid nothing from {len(token_ids)}: it is checked only "
            f"by a longer --prompt"
        )
    is_forced = case.options.against in ("reference", "transformers")
    if case.config.mixture is not None and dtype.itemsize == 2 and not is_forced:
        yield (
            "in 16 bits a near tie between experts may fall either way, and this oracle can't "
            "follow the engine's choice: compare with the reference where they differ"
        )
