"""Try whether company, chunks, a cache or preemption change what a request gets alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from inferno.options import EngineOptions
from inferno.verify.checks.measures import max_error
from inferno.verify.options import Tell
from inferno.verify.outcome import MOST_TOLD, Row
from inferno.verify.runs.schedules import (
    Outcome,
    RequestTrace,
    Schedule,
    Text,
    draw_schedule,
    draw_texts,
    run_alone,
    run_together,
)

_ROWS = {"hidden": "states that leave the model", "logits": "logits that tokens are chosen by"}
_SAME_DRAW = 1e-4  # a share of the probability: so seldom may another token be drawn

Problem = tuple[int | None, str]  # the new token that it is about, if it is about one
Compared = tuple[int | None, str, Tensor, Tensor]  # likewise; which row; in company; alone


def invariance_row(
    options: EngineOptions,
    prompt: Sequence[int],
    max_model_len: int,
    num_groups: int,
    num_schedules: int,
    allowed: Mapping[str, float],
    tell: Tell,
) -> Row:
    """Compare every request of random schedules with the same request alone, in one chunk.

    num_groups  of layers with equal windows, each of which has blocks of its own.
    allowed     the largest difference that rounding may make, in `hidden` and in `logits`.
    """
    rng = random.Random(0)
    texts = draw_texts(rng, prompt, max_model_len)
    tell("each request alone")
    alone, found = run_alone(options, texts), Findings(allowed)
    for number in range(num_schedules):
        tell(f"schedule {number + 1} of {num_schedules}")
        schedule = draw_schedule(rng, texts, num_groups)
        found.add(schedule, run_together(options, schedule), alone)
    return Row(
        number="I",
        title="invariance",
        compared=f"{found.num_requests} requests in {num_schedules} random schedules, each alone",
        findings=tuple(found.findings),
        problems=tuple(found.all_problems()[:MOST_TOLD]),
    )


@dataclass(slots=True)
class Findings:
    """The findings of all schedules so far, about states and about logits."""

    allowed: Mapping[str, float]
    problems: list[str] = field(default_factory=list)
    num_requests: int = 0
    num_turned: int = 0
    num_rows: Counter[str] = field(default_factory=Counter)
    num_equal: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_ROWS, 0.0))

    def add(self, schedule: Schedule, together: Outcome, alone: Outcome) -> None:
        """Compare each of a schedule's requests; of what is wrong, the first thing counts."""
        for text in schedule.texts:
            self.num_requests += 1
            pair = Pair(text, together[text.name], alone[text.name])
            problems = (
                *self._compare("hidden", pair.states()),
                *self._compare("logits", pair.logits()),
                *pair.odd_tokens(),
                *pair.other_tokens(self.allowed["logits"]),
            )
            if not problems:
                self.num_turned += pair.num_same < len(pair.theirs.new_ids)
            for token, problem in problems[:1]:
                owner = _owner(pair, token, together, alone, self.allowed["logits"])
                self.problems.append(f"{text.name}: {problem}{owner} ({schedule.words})")

    def _compare(self, what: str, rows: Iterable[Compared]) -> Iterator[Problem]:
        """Count a request's rows; those that are off by more than rounding are problems."""
        for token, row, ours, theirs in rows:
            self.num_rows[what] += 1
            self.num_equal[what] += torch.equal(ours, theirs)
            error = max_error(ours, theirs)
            self.worst[what] = max(self.worst[what], error)
            if not error <= (allowed := self.allowed[what]):
                yield token, f"{row} is off by {error:.2g}, where {allowed:.2g} is allowed"

    def all_problems(self) -> list[str]:
        """Return what is wrong; that nothing was compared is a problem, too."""
        unseen = [words for what, words in _ROWS.items() if not self.num_rows[what]]
        return self.problems or [
            f"nothing was compared of {words}: none were seen" for words in unseen
        ]

    @property
    def findings(self) -> Iterator[str]:
        for what, words in _ROWS.items():
            equal, total = self.num_equal[what], self.num_rows[what]
            rest = f", the others differ by {self.worst[what]:.2g} at most" if equal < total else ""
            allowed = f" ({self.allowed[what]:.2g} is allowed)" if rest else ""
            yield f"{words}: {equal} of {total} rows are bit-identical{rest}{allowed}"
        if self.num_turned:
            yield f"{self.num_turned} requests went on with another token of nearly equal logit"


@dataclass(frozen=True, slots=True)
class Pair:
    """A request's run in company, and its run alone."""

    text: Text
    ours: RequestTrace
    theirs: RequestTrace

    @property
    def num_same(self) -> int:
        """Count the new tokens until the two runs part."""
        pairs = zip(self.ours.new_ids, self.theirs.new_ids, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(self.ours.new_ids))

    def states(self) -> Iterator[Compared]:
        """Yield both runs' outputs of the model, at positions whose past is the same."""
        num_tokens = len(self.text.token_ids) + self.num_same
        for position, times in self.ours.states.items():
            if position < num_tokens and position in self.theirs.states:
                for state in times:
                    row = f"what leaves the model at position {position}"
                    yield None, row, state, self.theirs.states[position][0]

    def logits(self) -> Iterator[Compared]:
        """Yield both runs' logits of each new token, as long as the tokens before are the same."""
        pairs = zip(self.ours.logits, self.theirs.logits, strict=False)
        for token, (ours, theirs) in enumerate(pairs):
            if token <= self.num_same:
                yield token, f"what new token {token} is chosen by", ours, theirs

    def odd_tokens(self) -> Iterator[Problem]:
        """Yield greedy tokens that are not the likeliest by what the sampler was given."""
        if not self.text.is_drawn:
            pairs = zip(self.ours.new_ids, self.ours.logits, strict=False)
            for i, (token, row) in enumerate(pairs):
                if row[token] < row.max():
                    yield i, f"new token {i} is {token}, not the likeliest by its own logits"

    def other_tokens(self, allowed: float) -> Iterator[Problem]:
        """Yield the token at which both runs part, unless rounding explains it."""
        i = self.num_same
        if i == len(self.theirs.new_ids):
            if self.theirs.error is not None:
                yield None, f"alone it fails after {i} new tokens: {self.theirs.error}"
            return
        if i == len(self.ours.new_ids):
            yield None, self.ours.error or f"it ends after {i} new tokens"
            return
        ours, theirs, row = self.ours.new_ids[i], self.theirs.new_ids[i], self.theirs.logits[i]
        words = f"new token {i} is {ours}, and alone it is {theirs}"
        if self.text.is_drawn:
            if _total_variation(self.ours.logits[i], row) < _SAME_DRAW:
                yield i, f"{words}, drawn from the same logits"
        elif (gap := float(row[theirs] - row[ours])) > allowed:
            yield i, f"{words}, whose logit is {gap:.2g} higher"


def _total_variation(ours: Tensor, theirs: Tensor) -> float:
    """Return how much probability lies elsewhere: half the sum of the differences."""
    ours, theirs = (logits.double().softmax(-1) for logits in (ours, theirs))
    return float((ours - theirs).abs().sum() / 2)


def _owner(pair: Pair, token: int | None, together: Outcome, alone: Outcome, allowed: float) -> str:
    """Name the request of the same step whose logits or token this one got; "" if unknown."""
    if token is None or token >= len(pair.ours.new_ids):
        return ""
    ours, new_id = pair.ours.logits[token], pair.ours.new_ids[token]
    is_given_wrong = max_error(ours, pair.theirs.logits[token]) > allowed
    for name, other in together.items():
        if name == pair.text.name or pair.ours.steps[token] not in other.steps:
            continue
        index = other.steps.index(pair.ours.steps[token])
        if is_given_wrong and max_error(ours, alone[name].logits[index]) <= allowed:
            return f"; it was given the logits of {name}"
        if not is_given_wrong and int(other.logits[index].argmax()) == new_id:
            return f"; it was given the token of {name}"
    return ""
