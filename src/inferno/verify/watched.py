"""One text through the engine and through the oracle, and the checkpoints that come of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from inferno.verify.case import Case
from inferno.verify.checkpoints import KVFindings, layer_rows, residual_row
from inferno.verify.choices import choices_of
from inferno.verify.compare import Tolerances
from inferno.verify.drawing import sampling_row
from inferno.verify.endings import Generated, ending_rows
from inferno.verify.noise import Plain, plain_of, second_look, tolerances_of
from inferno.verify.oracle import Oracle
from inferno.verify.oracle_reference import ReferenceOracle
from inferno.verify.outcome import Row
from inferno.verify.product_judge import HEAD, Judge
from inferno.verify.products import Products, product_measures
from inferno.verify.prompts import Prompt, num_new_tokens
from inferno.verify.saved import SavedOracle
from inferno.verify.subject import Observed, observe
from inferno.verify.suspects import Evidence
from inferno.verify.taps import Taps, first_positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The runs of engine and oracle, and how far apart they may be.

    layers           whose insides were looked into.
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
    plain: Plain
    rounded: Taps
    generated: Generated
    tolerances: Tolerances
    products: Products

    @property
    def num_tokens(self) -> int:
        return len(self.expected["logits"])

    def allowed(self, tap: str, depth: int) -> float:
        """Return the largest error that one of the model's outcomes may have."""
        return self.tolerances.of(tap, self.expected[tap], depth)


def watch(case: Case, oracle: Oracle, prompt: Prompt, layers: tuple[int, ...]) -> Watched:
    """Run both. Raises as observe and oracles do."""
    case.tell("running the engine")
    num_new = num_new_tokens(case.config.max_model_len)
    observed = observe(case.engine, prompt.token_ids, num_new, layers)
    found, token_ids = observed.taps, observed.token_ids
    choices = choices_of(found, case.config.num_layers, case.plain.experts_per_token)
    plain = plain_of(case, oracle, observed, layers, choices)
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
    return Watched(
        observed=observed,
        layers=layers,
        oracle=oracle.name,
        found=found,
        expected=expected,
        plain=plain,
        rounded=rounded,
        generated=Generated(num_prompt=num_prompt, new_ids=new_ids, error=observed.error),
        tolerances=tolerances,
        products=_products(case, observed),
    )


def _products(case: Case, observed: Observed) -> Products:
    judge = Judge(
        model=observed.model,
        weights=case.weights,
        fused=case.fused,
        quantize=case.quantize,
        dtype=observed.dtype,
        device=torch.device(observed.device),
        relative=case.options.tolerance,
    )
    return product_measures(judge, observed.products, case.tell)


def judge(case: Case, watched: Watched) -> tuple[Watched, tuple[Row, ...]]:
    """Build checkpoints 1 to 12; if one fails, with tolerances that were looked at twice."""
    rows = tuple(_rows(case, watched))
    if all(row.passed for row in rows):
        return watched, rows
    watched = replace(watched, tolerances=second_look(watched.tolerances, watched.plain))
    return watched, tuple(_rows(case, watched))


def evidence_of(case: Case, watched: Watched) -> Evidence:
    """Gather the evidence in which a mistake is sought: tensors, weights and tokens of the run."""
    return Evidence(
        found=watched.found,
        expected=watched.expected,
        config=case.plain,
        weights=watched.plain.exact(torch.float32).weights,
        token_ids=watched.observed.token_ids[: watched.num_tokens],
        layers=watched.layers,
        num_prompt=watched.generated.num_prompt,
        chunk=watched.observed.chunk,
    )


def _rows(case: Case, watched: Watched) -> Iterator[Row]:
    """Yield asked layers with their insides, those between by their outputs, then the outcome."""
    found, expected, tolerances = watched.found, watched.expected, watched.tolerances
    ledger = watched.observed.ledger
    kv = KVFindings(ledger.num_reads, ledger.changes)
    numbers = range(case.config.num_layers)
    for is_asked, group in groupby(numbers, key=lambda layer: layer in watched.layers):
        if is_asked:
            for layer in group:
                yield from layer_rows(found, expected, layer, tolerances, kv, watched.products)
        else:
            yield residual_row(found, expected, list(group), tolerances, watched.products)
    depth = case.config.num_layers + 1
    head = watched.products.get(HEAD, ())
    generated, decode = watched.generated, case.decode
    yield from ending_rows(found, expected, generated, tolerances, depth, decode, head)
    yield sampling_row(watched.observed.drawn, torch.device(watched.observed.device))


def _num_shared(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Count the leading tokens that two runs have in common, the prompt among them."""
    pairs = zip(ours, theirs, strict=False)
    differing = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(differing, min(len(ours), len(theirs)))
