"""`verify`: run the engine and the oracle, compare them checkpoint by checkpoint, and report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

import inferno
from inferno.gguf.file import is_gguf_name
from inferno.verify.case import TOKENIZER_TEXT, Case, Prompt, num_new_tokens, open_case, unreached
from inferno.verify.checks.foundation import (
    Foundation,
    config_digest,
    foundation_row,
    weights_digest,
)
from inferno.verify.checks.invariance import invariance_row
from inferno.verify.checks.layers import (
    KVFindings,
    choices_of,
    layer_rows,
    residual_row,
    unseen_layers_row,
)
from inferno.verify.checks.measures import Tolerances
from inferno.verify.checks.noise import PlainForward, plain_forward, remeasured, tolerances_of
from inferno.verify.checks.outputs import Generated, output_rows, sampling_row
from inferno.verify.checks.products import ProductCheck, Products, product_measures
from inferno.verify.checks.quality import precision_row, quality_row
from inferno.verify.checks.speculation import speculation_row
from inferno.verify.diagnosis.diagnose import diagnose
from inferno.verify.diagnosis.evidence import Evidence
from inferno.verify.options import Tell, VerifyOptions
from inferno.verify.oracles import Oracle
from inferno.verify.oracles.choose import choose_oracle
from inferno.verify.oracles.reference import ReferenceOracle
from inferno.verify.oracles.saved import Facts, SavedOracle, check_writable, save
from inferno.verify.outcome import Diagnosis, Report, Row
from inferno.verify.runs.engine_run import Observed, observe
from inferno.verify.runs.observer import HEAD
from inferno.verify.runs.taps import Taps, first_positions


def verify(options: VerifyOptions, tell: Tell) -> Report:
    """Compare a model's forward pass with an oracle's; `tell` hears what is being done.

    Raises ModelError, DeviceUnavailable, NotEnoughMemory, InvalidRequest, EngineError.
    """
    if options.save is not None:
        check_writable(options.save)
    with open_case(options, tell) as case:
        oracle = choose_oracle(options, case.engine, case.hf_config, case.checkpoint, tell)
        saved = oracle if isinstance(oracle, SavedOracle) else None
        prompt, layers = case.prompt(saved), case.layers(saved)
        comparison = _compare(case, oracle, prompt, layers)
        digests = _digests(case)
        if options.save is not None:
            save(options.save, _facts(case, comparison, prompt, digests), comparison.observed.taps)
        foundation = _foundation(case, oracle, prompt, comparison.observed, digests)
        comparison, rows = _check(case, comparison)
        looks_again = saved is None and comparison.shows_layers
        if looks_again and (layer := _unobserved_layer(rows)) is not None:
            wanted = tuple(sorted({*layers, layer}))
            comparison, rows = _check(case, _compare(case, oracle, prompt, wanted))
        rows = (foundation, *rows, *_precision_rows(case, oracle, comparison))
        rows = (*rows, *_optional_rows(case, oracle, prompt, comparison))
        return _report(case, prompt, comparison, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The runs of engine and oracle, and how far apart they may be.

    layers           whose insides were observed.
    oracle           who computed what is expected, in words.
    found, expected  the engine's tensors and the oracle's, of as many positions.
    plain            the same text in plain maths, to measure what rounding does.
    rounded          what that gave; empty where rounding was not measured.
    products         each product of the engine, compared from its own input.
    """

    observed: Observed
    layers: tuple[int, ...]
    oracle: str
    found: Taps
    expected: Taps
    plain: PlainForward
    rounded: Taps
    generated: Generated
    tolerances: Tolerances
    products: Products

    @property
    def num_tokens(self) -> int:
        return len(self.expected["logits"])

    @property
    def shows_layers(self) -> bool:
        """Return whether the oracle gives more than the outcome."""
        return self.expected.keys() != {"logits"}

    def allowed(self, tap: str, depth: int) -> float:
        """Return the largest error that one of the model's outcomes may have."""
        return self.tolerances.of(tap, self.expected.get(tap, self.found[tap]), depth)


def _compare(case: Case, oracle: Oracle, prompt: Prompt, layers: tuple[int, ...]) -> Comparison:
    """Run the engine and the oracle. Raises as `observe` and oracles do."""
    case.tell("running the engine")
    num_new = num_new_tokens(case.max_model_len)
    observed = observe(case.engine, prompt.token_ids, num_new, layers)
    found, token_ids = observed.taps, observed.token_ids
    choices = choices_of(found, case.config.num_layers, case.plain.experts_per_token)
    plain = plain_forward(case, oracle, observed, layers, choices)
    if isinstance(oracle, ReferenceOracle):
        oracle = plain.exact(torch.float32)  # over the weights that the engine holds
    expected = oracle.taps(token_ids, layers, choices)
    if isinstance(oracle, SavedOracle):
        length = _num_shared(token_ids, oracle.facts.token_ids)
        oracle.check_fits(found, length)
        found, expected = first_positions(found, length), first_positions(expected, length)
        token_ids = token_ids[:length]
    tolerances, rounded = tolerances_of(plain, oracle, expected)
    num_prompt = len(prompt.token_ids)
    new_ids = observed.new_ids[: len(token_ids) - num_prompt + 1]
    generated = Generated(
        num_prompt=num_prompt,
        new_ids=new_ids,
        error=observed.error,
        their_text=None if case.tokenizer is None else oracle.decode(new_ids),
    )
    return Comparison(
        observed=observed,
        layers=layers,
        oracle=oracle.name,
        found=found,
        expected=expected,
        plain=plain,
        rounded=rounded,
        generated=generated,
        tolerances=tolerances,
        products=product_measures(product_check(case, observed), observed.products, case.tell),
    )


def product_check(case: Case, observed: Observed) -> ProductCheck:
    """Return what an observed run's products are judged by."""
    return ProductCheck(
        model=observed.model,
        weights=case.weights,
        fused=case.fused,
        quantize=case.quantize,
        dtype=observed.dtype,
        device=torch.device(observed.device),
        relative=case.options.tolerance,
    )


def _check(case: Case, comparison: Comparison) -> tuple[Comparison, tuple[Row, ...]]:
    """Build checkpoints 1 to 12; if one fails, with tolerances that were looked at twice."""
    rows = tuple(_rows(case, comparison))
    if all(row.passed for row in rows):
        return comparison, rows
    comparison = replace(comparison, tolerances=remeasured(comparison.tolerances, comparison.plain))
    return comparison, tuple(_rows(case, comparison))


def _evidence(case: Case, comparison: Comparison) -> Evidence:
    """Gather the evidence in which a mistake is sought: tensors, weights and tokens of the run."""
    return Evidence(
        found=comparison.found,
        expected=comparison.expected,
        config=case.plain,
        weights=comparison.plain.exact(torch.float32).weights,
        token_ids=comparison.observed.token_ids[: comparison.num_tokens],
        layers=comparison.layers,
        num_prompt=comparison.generated.num_prompt,
        chunk=comparison.observed.chunk,
    )


def _rows(case: Case, comparison: Comparison) -> Iterator[Row]:
    """Yield asked layers with their insides, those between by their outputs, then the outcome."""
    found, expected, tolerances = comparison.found, comparison.expected, comparison.tolerances
    kv_log = comparison.observed.kv_log
    kv = KVFindings(kv_log.num_reads, kv_log.changes)
    numbers = range(case.config.num_layers if comparison.shows_layers else 0)
    if not comparison.shows_layers:
        yield unseen_layers_row(case.config.num_layers, kv, comparison.products)
    for is_asked, group in groupby(numbers, key=lambda layer: layer in comparison.layers):
        if is_asked:
            for layer in group:
                yield from layer_rows(found, expected, layer, tolerances, kv, comparison.products)
        else:
            yield residual_row(found, expected, list(group), tolerances, comparison.products)
    depth = case.config.num_layers + 1
    head = comparison.products.get(HEAD, ())
    generated, decode = comparison.generated, case.decode
    yield from output_rows(found, expected, generated, tolerances, depth, decode, head)
    observed = comparison.observed
    yield sampling_row(observed.drawn, observed.undrawn, torch.device(observed.device))


def _num_shared(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Count the leading tokens that two runs have in common, the prompt among them."""
    pairs = zip(ours, theirs, strict=False)
    differing = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(differing, min(len(ours), len(theirs)))


def _unobserved_layer(rows: Sequence[Row]) -> int | None:
    """Return the layer that fails first, where its insides were not observed: worth another run."""
    failed = next((row for row in rows if not row.passed), None)
    if failed is None or failed.number != "7":
        return None
    both = (*failed.measures, *failed.products)
    layer = min(_layer_of(one.tap) for one in both if not one.passed)
    return layer if not any(row.number == "6" and row.layer == layer for row in rows) else None


def _layer_of(tap: str) -> int:
    """Return the layer that a tensor or a product belongs to: the embedding enters layer 0."""
    number = tap.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _digests(case: Case) -> dict[str, str]:
    weights = weights_digest(case.weights, case.tell)
    return {"config": config_digest(case.hf_config), "weights": weights}


def _facts(case: Case, comparison: Comparison, prompt: Prompt, digests: dict[str, str]) -> Facts:
    encoded, observed = case.encode(TOKENIZER_TEXT), comparison.observed
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
        layers=comparison.layers,
        encoded=None if encoded is None else tuple(encoded),
    )


def _foundation(
    case: Case, oracle: Oracle, prompt: Prompt, observed: Observed, digests: dict[str, str]
) -> Row:
    saved = oracle.facts if isinstance(oracle, SavedOracle) else None
    theirs = None if prompt.text is None or saved else oracle.encode(prompt.text)
    if theirs is not None and case.options.prompt is None:
        theirs = theirs[: len(prompt.token_ids)]  # the fixed text was cut to that length
    given = Foundation(
        config=case.config,
        plain=case.plain,
        model=observed.model,
        weights=case.weights,
        fused=case.fused,
        quantize=case.quantize,
        encoded=case.encode(TOKENIZER_TEXT),
        expected_encoded=oracle.encode(TOKENIZER_TEXT),
        prompt=prompt.token_ids,
        expected_prompt=theirs,
        digests=digests,
        expected_digests={}
        if saved is None
        else {"config": saved.config, "weights": saved.weights},
    )
    return foundation_row(given, case.tell)


def _precision_rows(case: Case, oracle: Oracle, comparison: Comparison) -> Iterator[Row]:
    """Compare with the files' weights too, where others are compared on the quantized ones."""
    if (
        comparison.rounded
        and comparison.plain.shares_quantized
        and isinstance(oracle, ReferenceOracle)
    ):
        original = oracle.taps(comparison.observed.token_ids, (), comparison.plain.choices)
        yield precision_row(comparison.found, comparison.rounded, original, case.config.num_layers)


def _optional_rows(
    case: Case, oracle: Oracle, prompt: Prompt, comparison: Comparison
) -> Iterator[Row]:
    """Yield the rows that --quality, --invariance and --speculative ask for."""
    options, depth = case.options, case.config.num_layers + 1
    num_groups = len(set(case.config.windows))
    if options.quality is not None:
        yield quality_row(
            options.quality,
            options.threshold,
            case.engine,
            oracle,
            case.tokenizer,
            case.max_model_len,
            case.tell,
        )
    if options.invariance:
        # Twice, for both runs round.
        allowed = {tap: 2 * comparison.allowed(tap, depth) for tap in ("hidden", "logits")}
        yield invariance_row(
            case.engine,
            prompt.token_ids,
            case.max_model_len,
            num_groups,
            options.invariance,
            allowed,
            case.tell,
        )
    if options.speculative:
        yield speculation_row(
            case.speculating,
            prompt.token_ids,
            case.config.vocab_size,
            case.max_model_len,
            num_groups,
            options.speculative,
            2 * comparison.allowed("logits", depth),
            case.tell,
            has_texts=case.tokenizer is not None,
            # These have no kernels of ours, and no promise of the same bits in any batch.
            may_round=case.engine.dtype == "float16" or case.engine.attention != "auto",
        )


def _report(case: Case, prompt: Prompt, comparison: Comparison, rows: tuple[Row, ...]) -> Report:
    failed = next((row for row in rows if not row.passed), None)
    diagnosis = Diagnosis()
    if failed is not None:
        case.tell("looking for the cause")
        evidence, against = _evidence(case, comparison), case.options.against
        diagnosis = diagnose(
            failed,
            evidence,
            model_file=case.model_file,
            against=against,
            is_gguf=is_gguf_name(case.options.model),
        )
    return Report(
        model=case.options.name or str(case.options.model),
        subject=_describe(case, comparison.observed, prompt),
        oracle=comparison.oracle,
        text=prompt.text or "",
        rows=rows,
        diagnosis=diagnosis,
        notes=tuple(_notes(case, comparison)),
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


def _notes(case: Case, comparison: Comparison) -> Iterator[str]:
    for window in unreached(case.config.windows, comparison.num_tokens):
        yield (
            f"the window of {window} tokens hid nothing from {comparison.num_tokens}: it is "
            f"checked only by a longer --prompt"
        )
    is_followed = case.options.against in ("reference", "transformers")
    if case.options.against == "cpu" and comparison.observed.device == "cpu":
        yield (
            "the engine is compared with itself, so a mistake of its own shows only in products, "
            "weights and sampling; the reference, the default, is independent"
        )
    if not comparison.shows_layers:
        yield "this oracle shows logits alone; the reference, the default, shows layers too"
    if case.config.mixture is not None and not is_followed:
        yield (
            "a near tie between experts may fall either way, and this oracle can't follow the "
            "engine's choice: compare with the reference where they differ"
        )
