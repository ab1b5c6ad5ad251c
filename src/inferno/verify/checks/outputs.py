"""The checkpoints of the whole model's outcome: logits, tokens, probabilities, text, sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import Sampler
from inferno.engine.step_plan import SequenceId
from inferno.verify.checks.measures import Tolerances, measure
from inferno.verify.oracles.plain_sampler import Draw, processed_logits, uniform
from inferno.verify.outcome import MOST_TOLD, Measure, Row
from inferno.verify.runs.engine_run import DRAW_SEED, Drawn
from inferno.verify.runs.taps import Taps

Decode = Callable[[Sequence[int]], str]

NUM_SELECTED = 20
_NUM_SEEDS = 32  # tried on each row besides the one that the engine used


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The new tokens that the engine generated after a prompt, and any error that ended them.

    their_text  what the oracle makes of these tokens; None: it can't tell.
    """

    num_prompt: int
    new_ids: Sequence[int]
    error: str | None = None
    their_text: str | None = None


def output_rows(
    found: Taps,
    expected: Taps,
    generated: Generated,
    tolerances: Tolerances,
    depth: int,
    decode: Decode,
    head: Sequence[Measure] = (),
) -> Iterator[Row]:
    """Yield checkpoints 8 to 12.

    depth: that of what leaves the model; head: its product by itself.
    """
    logits, truth = found["logits"], expected["logits"]
    allowed = tolerances.of("logits", truth, depth)
    yield _full_logits(found, expected, tolerances, depth, head)
    yield _selected_logits(logits[-1], truth[-1], allowed)
    yield _argmax(logits, truth, allowed)
    yield _softmax(logits, truth, allowed)
    yield _end_to_end(generated, logits, truth, allowed, decode)


def _full_logits(
    found: Taps, expected: Taps, tolerances: Tolerances, depth: int, head: Sequence[Measure]
) -> Row:
    measures = []
    for tap, name in {"hidden": "the last norm's output", "logits": "logits"}.items():
        if tap not in expected:
            continue
        allowed, relative = tolerances.of(tap, expected[tap], depth), tolerances.relative_of(tap)
        measures.append(measure(tap, name, found[tap], expected[tap], allowed, relative))
    besides = "last norm, and " if "hidden" in expected else ""
    compared = f"{besides}logits of all {len(expected['logits'])} positions"
    return Row(
        number="8",
        title="full logits",
        compared=compared,
        measures=tuple(measures),
        products=tuple(head),
    )


def _selected_logits(logits: Tensor, truth: Tensor, allowed: float) -> Row:
    top = truth.topk(min(NUM_SELECTED, len(truth))).indices
    ours = set(logits.topk(len(top)).indices.tolist())
    shared = len(ours.intersection(top.tolist()))
    return Row(
        number="9",
        title="selected logits",
        compared=f"the last position's {len(top)} largest",
        measures=(measure("logits", "the largest logits", logits[top], truth[top], allowed),),
        findings=(f"{shared} of {len(top)} largest are the same tokens",),
    )


def _argmax(logits: Tensor, truth: Tensor, allowed: float) -> Row:
    ours, theirs = logits.argmax(-1), truth.argmax(-1)
    differing = (ours != theirs).nonzero().flatten().tolist()
    gaps = {p: float(truth[p, theirs[p]] - truth[p, ours[p]]) for p in differing}
    ties = [p for p, gap in gaps.items() if gap <= 2 * allowed]
    problems = [
        f"position {p}: token {int(ours[p])} instead of {int(theirs[p])}, whose logit is "
        f"{gaps[p]:.2g} higher"
        for p in differing
        if p not in ties
    ]
    findings = [f"{len(truth) - len(differing)} of {len(truth)} positions agree"]
    if ties:
        findings.append(f"{len(ties)} differ by less than rounding explains")
    return Row(
        number="10",
        title="argmax",
        compared="the likeliest token after every position",
        findings=tuple(findings),
        problems=tuple(problems[:MOST_TOLD]),
    )


def _softmax(logits: Tensor, truth: Tensor, allowed: float) -> Row:
    ours, theirs = (x.double().log_softmax(-1) for x in (logits, truth))
    divergence = (theirs.exp() * (theirs - ours)).sum(-1).abs()
    # Logits that are off by d change a probability by at most d / 2, and move it by at most d² / 2
    # nats from the truth (Hoeffding's lemma); what is added is float64's own rounding.
    return Row(
        number="11",
        title="softmax",
        compared="probabilities, and their KL divergence in nats",
        measures=(
            measure("logits", "probabilities", ours.exp(), theirs.exp(), allowed / 2 + 1e-12),
            measure(
                "logits",
                "KL divergence",
                divergence,
                torch.zeros_like(divergence),
                allowed**2 / 2 + 1e-12,
            ),
        ),
    )


def _end_to_end(
    generated: Generated, logits: Tensor, truth: Tensor, allowed: float, decode: Decode
) -> Row:
    new_ids, first = generated.new_ids, generated.num_prompt - 1
    predicting = slice(first, first + len(new_ids))
    theirs = truth[predicting].argmax(-1).tolist()
    gave_up = [] if generated.error is None else [generated.error]
    problems = (
        _sampling_problems(new_ids, logits, first)
        or _divergence(new_ids, theirs, truth[predicting], allowed)
        or _text_problems(decode(new_ids), generated.their_text)
        or gave_up
    )
    return Row(
        number="12",
        title="end to end",
        compared="the text that the engine generates greedily, token by token",
        findings=_text_findings(new_ids, theirs, decode),
        problems=tuple(problems),
    )


def _text_findings(
    new_ids: Sequence[int], theirs: Sequence[int], decode: Decode
) -> tuple[str, ...]:
    num_equal = next(
        (i for i, (a, b) in enumerate(zip(new_ids, theirs, strict=True)) if a != b), len(new_ids)
    )
    return (f"{num_equal} of {len(new_ids)} tokens equal: {decode(new_ids)!r}",)


def _text_problems(text: str, theirs: str | None) -> list[str]:
    """Describe another text of the same tokens; halves of characters may be shown in any way."""
    if theirs is None or text == theirs or "\ufffd" in text + theirs:
        return []
    return [f"the new tokens are the text {text[:80]!r}, by the oracle {theirs[:80]!r}"]


def _sampling_problems(new_ids: Sequence[int], logits: Tensor, first: int) -> list[str]:
    """Describe the first greedy token that is not the likeliest by the engine's own logits."""
    for i, token in enumerate(new_ids):
        row, before = logits[first + i], logits[max(first + i - 1, 0)]
        if row[token] < row.max():
            words = (
                f"new token {i} is {token}, which is not the likeliest by the engine's own logits"
            )
            is_before = first + i > 0 and int(before.argmax()) == token
            return [words + (", but by those of the position before" if is_before else "")]
    return []


def _divergence(
    new_ids: Sequence[int], theirs: Sequence[int], truth: Tensor, allowed: float
) -> list[str]:
    """Describe the first token that differs, if rounding doesn't explain it.

    Tokens after it have another past.
    """
    for i, (ours, best) in enumerate(zip(new_ids, theirs, strict=True)):
        if ours == best:
            continue
        gap = float(truth[i, best] - truth[i, ours])
        if gap > 2 * allowed:
            return [
                f"new token {i} is {ours}, where the oracle has {best}: their logits are "
                f"{gap:.2g} apart"
            ]
    return []


def sampling_row(drawn: Sequence[Drawn], undrawn: Sequence[str], device: torch.device) -> Row:
    """Build checkpoint 13: the engine's tokens, and those of more seeds by its sampler.

    undrawn: which tokens are missing, and why.
    """
    checks = [_DrawCheck(one) for one in drawn if one.logits.isfinite().all()]
    problems = [*undrawn, *(problem for check in checks for problem in check.problems(device))]
    num_tokens = sum(check.num_tokens for check in checks)
    ways = len({one.how for one in drawn})
    told = f"{num_tokens} tokens drawn in {ways} ways are those due"
    if not drawn:
        told = "nothing was drawn, for the engine had given up before"
    return Row(
        number="13",
        title="sampling",
        compared="tokens drawn in several ways, from the logits that they were drawn by",
        findings=() if problems else (told,),
        problems=tuple(problems[:MOST_TOLD]),
    )


@dataclass(slots=True)
class _DrawCheck:
    """A row of logits, and all tokens that are drawn by it."""

    drawn: Drawn
    num_tokens: int = 0
    _draw: Draw = field(init=False)

    def __post_init__(self) -> None:
        one = self.drawn
        logits = processed_logits(one.logits.numpy(), one.params, one.history, one.num_prompt)
        self._draw = Draw.of(logits, one.params)

    def problems(self, device: torch.device) -> Iterator[str]:
        """Yield at most one problem: the first token that is not the one due."""
        one, position = self.drawn, len(self.drawn.history)
        if not one.is_own:
            yield (
                f"{one.how}: the sampler is given other logits for position {position} than the "
                f"model has made"
            )
            return
        seeds = [one.params.seed or 0, *range(DRAW_SEED + 100, DRAW_SEED + 100 + _NUM_SEEDS)]
        for seed, token in zip(seeds, (one.token, *self._more(seeds[1:], device)), strict=True):
            self.num_tokens += 1
            number = uniform(seed, position)
            if not self._draw.allows(token, number):
                yield (
                    f"{one.how}: position {position} gets token {token}, where its logits and "
                    f"random number make it {self._draw.due(number)}"
                )
                return

    def _more(self, seeds: Sequence[int], device: torch.device) -> list[int]:
        """Return the tokens that the engine's sampler draws by the same logits with other seeds."""
        one = self.drawn
        sampler = Sampler(len(one.logits), device)
        rows = [
            LogitsRow(
                SequenceId(one.how, 0),
                params=one.params,
                seed=seed,
                position=len(one.history),
                token_ids=one.history,
                num_prompt_tokens=one.num_prompt,
            )
            for seed in seeds
        ]
        logits = one.logits.repeat(len(seeds), 1).to(device)
        return [sampled.token_id for sampled in sampler.sample(logits, rows)]
