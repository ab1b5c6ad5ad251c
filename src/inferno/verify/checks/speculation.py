"""Try whether proposals change a bit of what a request gets without them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from inferno.options import EngineOptions
from inferno.requests import FinishReason, TokenLogprobs
from inferno.verify.options import Tell
from inferno.verify.outcome import MOST_TOLD, Row
from inferno.verify.runs.speculative import (
    MOST_STEPS,
    Outcome,
    SpeculativeSchedule,
    Told,
    draw_following,
    draw_requests,
    draw_schedule,
    run_alone,
    run_together,
    without_speculation,
)

# Where kernels round by the shape of a batch: how many more requests may go on with other tokens
# than without proposals.
_TIMES, _MORE = 2, 2


def speculation_row(
    options: EngineOptions,
    prompt: Sequence[int],
    vocab_size: int,
    max_model_len: int,
    num_groups: int,
    num_schedules: int,
    allowed: float,
    tell: Tell,
    *,
    has_texts: bool,
    may_round: bool,
) -> Row:
    """Compare every request of random schedules, with proposals, with the same request alone.

    options     name who proposes; num_speculative_tokens may be "auto", which draws how many.
    num_groups  of layers with equal windows, each of which has blocks of its own.
    has_texts   there is a tokenizer.
    allowed     the largest difference of a log-probability where kernels round by the batch.
    may_round   kernels are known to round so, even if no request shows it without proposals.
    """
    rng, found = random.Random(0), Findings(allowed, may_round)
    asked = options.num_speculative_tokens
    for number in range(num_schedules):
        tell(f"schedule {number + 1} of {num_schedules}, without proposals and with them")
        requests = draw_requests(
            rng,
            prompt,
            vocab_size,
            max_model_len,
            f"request {number}",
            may_have_shapes=has_texts,
        )
        alone = run_alone(options, requests)
        following = draw_following(rng, requests, alone, max_model_len)
        alone |= run_alone(options, following)
        schedule = draw_schedule(
            rng,
            (*requests, *following),
            alone,
            num_groups,
            None if isinstance(asked, str) else asked,
        )
        together = run_together(options, schedule)
        # Prompts are computed in steps as wide as those that proposals make.
        narrow = replace(schedule, tokens_per_step=1 + schedule.num_proposed)
        control = partial(run_together, without_speculation(options), narrow)
        found.add(schedule, together, alone, control)
    return Row(
        number="S",
        title="speculation",
        compared=f"{found.num_requests} requests in {num_schedules} random schedules with "
        "proposals, each alone without: tokens, log-probabilities and endings, bit for bit",
        findings=tuple(found.findings),
        problems=tuple(found.all_problems()[:MOST_TOLD]),
    )


class Difference(NamedTuple):
    """A piece of news that is told otherwise.

    size        of log-probabilities: how far they are apart, where that is all.
    is_parting  another token is told, which rounding may explain and nobody can tell.
    """

    words: str
    size: float = math.inf
    is_parting: bool = False


@dataclass(slots=True)
class Findings:
    """The findings of all schedules so far.

    num_rounded     requests that differ by no more than rounding does, where kernels round by the
                    shape of a batch.
    parted          problems of requests that go on with another token there; num_parted_without:
                    how many do so without proposals.
    """

    allowed: float
    may_round: bool = False
    problems: list[str] = field(default_factory=list)
    parted: list[str] = field(default_factory=list)
    num_requests: int = 0
    num_rounded: int = 0
    num_parted_without: int = 0
    num_proposed: Counter[str] = field(default_factory=Counter)
    num_stood: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        schedule: SpeculativeSchedule,
        together: Outcome,
        alone: Outcome,
        control: Callable[[], Outcome],
    ) -> None:
        """Compare each of a schedule's sequences, and count what was proposed for it.

        control  runs the same requests without proposals, in narrow steps: if that differs as
                 well, kernels round by the shape of a batch, and what that explains is no problem.
        """
        self.num_requests += len(schedule.requests)
        for told in together.values():
            for name, num_proposed, num_stood in told.proposals:
                self.num_proposed[name] += num_proposed
                self.num_stood[name] += num_stood
        differing = _compare(together, alone, schedule)
        without = _compare(control(), alone, schedule) if differing else {}
        self.num_parted_without += sum(map(_has_parted, without.values()))
        for request_id, differences in differing.items():
            problem = f"{request_id}: {differences[0].words} ({schedule.words})"
            unexplained = [
                each for each in differences if not (each.is_parting or each.size <= self.allowed)
            ]
            if not (without or self.may_round) or unexplained:
                self.problems.append(problem)
            elif _has_parted(differences):
                self.parted.append(problem)
            else:
                self.num_rounded += 1

    def all_problems(self) -> list[str]:
        """Return what differs; that nothing was tried is one, too."""
        if self.problems:
            return self.problems
        if len(self.parted) > _MORE + _TIMES * self.num_parted_without:
            return [
                f"{len(self.parted)} requests go on with other tokens, where "
                f"{self.num_parted_without} do so without proposals",
                *self.parted,
            ]
        if not self.num_proposed.total():
            return [f"nothing was tried, as no token was proposed in {self.num_requests} requests"]
        if not self.num_stood.total():
            return [
                f"none of {self.num_proposed.total()} proposals stood, so what becomes of those "
                "that stand was not tried"
            ]
        return []

    @property
    def findings(self) -> Iterator[str]:
        for name, num_proposed in sorted(self.num_proposed.items()):
            yield f"{name}: {num_proposed} tokens were proposed, {self.num_stood[name]} stood"
        if self.num_rounded or self.parted:
            yield (
                f"{self.num_rounded} requests differ by rounding and {len(self.parted)} go on with "
                "another token, for these kernels round by the shape of a batch: without proposals "
                f"{self.num_parted_without} do so"
            )


def _compare(
    together: Outcome, alone: Outcome, schedule: SpeculativeSchedule
) -> dict[str, list[Difference]]:
    """Return what differs, by request."""
    differing: dict[str, list[Difference]] = {}
    for (request_id, index), ours in together.items():
        theirs, may_be_aborted = alone[request_id, index], request_id in schedule.aborts
        differences = list(_differences(ours, theirs, may_be_aborted=may_be_aborted))
        if differences:
            differing.setdefault(request_id, []).extend(differences)
    return differing


def _has_parted(differences: Sequence[Difference]) -> bool:
    return any(each.is_parting for each in differences)


def _differences(ours: Told, theirs: Told, *, may_be_aborted: bool) -> Iterator[Difference]:
    """Yield how a sequence differs from itself without proposals, token by token.

    may_be_aborted  its owner ends it, so it may have told a beginning of the same.
    """
    pairs = zip(ours.token_ids, theirs.token_ids, strict=False)
    num_same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    num_told = len(ours.token_ids) if num_same is None else num_same
    logprobs = zip(ours.logprobs[:num_told], theirs.logprobs, strict=False)
    for i, (a, b) in enumerate(logprobs):
        size = _distance(a, b)
        if a != b:
            words = f"the log-probabilities of new token {i} differ by up to {size:.2g}"
            yield Difference(words, size)
    if num_same is not None:
        words = (
            f"new token {num_same} is {ours.token_ids[num_same]}, and without proposals it is "
            f"{theirs.token_ids[num_same]}"
        )
        yield Difference(words, is_parting=True)
        return
    is_aborted = may_be_aborted and ours.finish_reason is FinishReason.ABORTED
    if not (is_aborted and ours.prompt_logprobs is None):
        yield from _of_prompt(ours.prompt_logprobs or (), theirs.prompt_logprobs or ())
    if is_aborted:
        if len(ours.token_ids) > len(theirs.token_ids):
            yield Difference(f"it goes on after {len(theirs.token_ids)} new tokens")
    elif ours.finish_reason is None:
        yield Difference(f"it has not ended after {MOST_STEPS} steps")
    elif (ending := _ending(ours)) != (due := _ending(theirs)):
        yield Difference(f"it ends {ending}, and without proposals {due}")
    elif len(ours.logprobs) != len(theirs.logprobs):
        yield Difference(
            f"{len(ours.logprobs)} log-probabilities are told, not {len(theirs.logprobs)}"
        )


def _of_prompt(
    ours: Sequence[TokenLogprobs | None], theirs: Sequence[TokenLogprobs | None]
) -> Iterator[Difference]:
    """Yield how the log-probabilities of a prompt differ."""
    if len(ours) != len(theirs):
        yield Difference(f"{len(ours)} log-probabilities of its prompt are told, not {len(theirs)}")
    elif tuple(ours) != tuple(theirs):
        both = zip(ours, theirs, strict=True)
        size = max((_distance(a, b) for a, b in both if a and b), default=0.0)
        yield Difference(f"the log-probabilities of its prompt differ by up to {size:.2g}", size)


def _distance(a: TokenLogprobs, b: TokenLogprobs) -> float:
    """Return how far two tokens' log-probabilities are apart, and those of the likeliest ones."""
    ours = [a.logprob, *(logprob for _, logprob in a.top)]
    theirs = [b.logprob, *(logprob for _, logprob in b.top)]
    if len(ours) != len(theirs):
        return math.inf
    return max(abs(x - y) for x, y in zip(ours, theirs, strict=True))


def _ending(told: Told) -> str:
    by = "" if told.stop_token_id is None else f" by token {told.stop_token_id}"
    error = "" if told.error is None else f" ({told.error})"
    return f"after {len(told.token_ids)} new tokens: {told.finish_reason}{by}{error}"
