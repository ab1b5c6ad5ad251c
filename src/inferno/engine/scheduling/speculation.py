"""Decode speculatively: compute guesses of what follows a stream's tokens in the same step.

A guess stands if the sequence draws the same token, so guesses change how many tokens a step gives
and never which. `StepPlan` carries guesses, the executor compares, and `Scheduler.commit` takes as
many as stand. `acceptance.py` says how many pay.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, Protocol

from inferno.engine.sampling.constraints import MAX_ROLLBACK
from inferno.engine.scheduling.acceptance import (
    FIRST_CREDIT,
    FIRST_PASS_CREDIT,
    SEQUENCE_CREDIT,
    STEP_CREDIT,
    TRIAL_PASSES,
    TRIAL_TOKENS,
    Account,
    Candidate,
    Trials,
    choose,
)
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.step_cost import StepCostModel, StepWork
from inferno.grammar.turns import NotQuick, quickly
from inferno.plan.choices import SMALL_STEP
from inferno.requests import ProposalCounts

# Tokens of one sequence that are proposed since they are forced; more would hold up other streams.
MOST_FORCED = 32
# Who proposes those: a sequence's constraint.
GRAMMAR = "grammar"

_LONGEST_SLEEP = 64  # steps

_logger = logging.getLogger("inferno")

# Gets blocks for a sequence's next tokens and so many proposals, and returns for how many it did.
Reserve = Callable[[SequenceState, int], int]


class Proposer(Protocol):
    """A protocol of who guesses the tokens that follow sequences."""

    @property
    def name(self) -> str:
        """Return the name under which proposals are counted."""
        ...

    @property
    def takes_passes(self) -> bool:
        """Return whether each token takes a pass of a model, for all sequences together.

        If so, the proposer is asked for as many tokens as pay; else for all that it finds.
        """
        ...

    @property
    def num_bytes(self) -> int:
        """Return the memory that the proposer takes."""
        ...

    def serves(self, sequence: SequenceState) -> bool:
        """Return whether anything could ever be proposed for a sequence."""
        ...

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        """Return token ids that may follow each sequence: at most as many as asked for, or none.

        With takes_passes, the blocks of a sequence have room for the tokens.
        """
        ...

    def forget(self, sequence: SequenceState) -> None:
        """Drop what is kept for a sequence that has ended; it may be an unknown one."""

    def clear(self) -> None:
        """Forget all sequences, whose blocks may hold anything from now on."""


class _Guess(NamedTuple):
    """Proposals for one sequence: who makes them, and which they are, or only how many."""

    proposer: Proposer
    token_ids: Sequence[int]
    most: int


@dataclass(slots=True)
class _Known:
    """The knowledge of a sequence.

    servants        names of those who could propose for it.
    trials, counts  of each proposer: what was learnt, and how many it proposed and how many stood.
    in_flight       who made its latest proposals.
    worth           what each of these is worth in steps, if it stands.
    """

    servants: frozenset[str] = frozenset()
    trials: dict[str, Trials] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    in_flight: str = ""
    worth: float = 0.0


class _Step:
    """The step that is planned, before proposals: what its streams cost, and all that it computes.

    seconds     of its streams alone; None while nobody knows.
    """

    def __init__(
        self, shares: Mapping[SequenceState, int], costs: StepCostModel, window: int | None
    ) -> None:
        self.costs = costs
        self.streams, self.whole = StepWork(window), StepWork(window)
        self.num_streams = 0
        for sequence, share in shares.items():
            self.whole.add(sequence.num_planned_tokens, share)
            if sequence.is_stream:
                self.streams.add(sequence.num_planned_tokens, share)
                self.num_streams += 1
        self.seconds = costs.expect(self.streams)

    @property
    def has_prompts(self) -> bool:
        return self.whole.num_tokens > self.streams.num_tokens

    def marginal_seconds(self, position: int) -> float:
        """Return what a proposal at a position costs beside all that the step computes."""
        before = self.costs.expect(self.whole) or 0.0
        return (self.costs.expect(self.whole.with_proposal(position)) or 0.0) - before

    def widened(self, positions: Iterable[int]) -> Iterator[float]:
        """Yield the seconds of the streams, and those after each proposal that is added."""
        work = self.streams.with_proposal()
        yield self.costs.expect(work) or 0.0
        for position in positions:
            work.widen(position)
            yield self.costs.expect(work) or 0.0


class Speculation:
    """The owner of all proposers, and of the counts of their proposals.

    proposers       in the order of asking; the next one is asked where one finds nothing.
    num_tokens      how many to propose at most, whether it pays or not; None: as many as pay.
    is_on           False proposes nothing, not even what constraints force.
    clock           seconds, from any beginning.
    """

    def __init__(
        self,
        proposers: Sequence[Proposer] = (),
        *,
        num_tokens: int | None = None,
        is_on: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._proposers = proposers
        self._num_tokens = num_tokens
        self._is_on = is_on
        self.clock = clock
        self._known: dict[SequenceState, _Known] = {}
        self._accounts = {
            each.name: Account(FIRST_PASS_CREDIT if each.takes_passes else FIRST_CREDIT)
            for each in proposers
        }
        self._of_grammars = Account(0.0)
        self._told: dict[SequenceState, tuple[ProposalCounts, ...]] = {}  # see `told`
        self._num_bound = 0  # sequences that have a constraint
        self._num_served = 0  # sequences for which somebody could propose
        self._num_asleep = 0  # steps for which no proposer is asked
        self._step_seconds: float | None = None  # of the latest step's streams
        self._pass_seconds = 0.0  # of all passes for this step

    @property
    def counts(self) -> tuple[ProposalCounts, ...]:
        """Return how many proposals were made and how many stood so far, by proposer."""
        accounts = {**self._accounts, GRAMMAR: self._of_grammars}
        return tuple(
            ProposalCounts(name, each.num_proposed, each.num_stood)
            for name, each in accounts.items()
            if each.num_proposed
        )

    @property
    def num_bytes(self) -> int:
        """Return the memory that proposers take."""
        return sum(proposer.num_bytes for proposer in self._proposers)

    def may_propose(self, sequence: SequenceState) -> bool:
        """Return whether proposals may follow a sequence's tokens."""
        return self._is_on and (bool(self._proposers) or sequence.constraint is not None)

    @property
    def has_constraints(self) -> bool:
        """Return whether a constraint says what one of the sequences may say."""
        return self._num_bound > 0

    @property
    def is_asleep(self) -> bool:
        """Return whether no proposer is to be asked in the next step, so that no step need wait."""
        return not self._is_on or not (
            self._num_bound or (self._num_served and not self._num_asleep)
        )

    def may_follow(self, sequence: SequenceState) -> bool:
        """Return whether the next step may have proposals after a sequence's token in flight."""
        known = self._known.get(sequence)
        is_served = known is not None and bool(known.servants) and not self._num_asleep
        return self._is_on and (is_served or sequence.constraint is not None)

    def add(self, sequence: SequenceState) -> None:
        """Start to count for a new sequence; the proposers that serve it get some credit."""
        servants = frozenset(each.name for each in self._proposers if each.serves(sequence))
        self._known[sequence] = _Known(servants)
        for name in servants:
            self._accounts[name].add(SEQUENCE_CREDIT / len(self._known) / len(servants))
        self._num_bound += sequence.constraint is not None
        self._num_served += bool(servants)
        self._num_asleep = 0

    def is_awake(self) -> bool:
        """Return whether a proposer is to be asked in this step; call it once a step."""
        if self._num_asleep:
            self._num_asleep -= 1
            return bool(self._num_bound) and self._is_on
        return self._is_on and bool(self._num_bound or self._num_served)

    def propose(
        self,
        shares: Mapping[SequenceState, int],
        costs: StepCostModel,
        window: int | None,
        num_tokens: int,
        reserve: Reserve,
        began: float,
    ) -> dict[SequenceState, tuple[int, ...]]:
        """Return proposals for the streams among the sequences that compute in a step.

        Tokens that a constraint forces are proposed before all guesses, for they are sure to stand.

        window      see StepWork.
        num_tokens  room that the step has left for all proposals together.
        began       when planning began; asking proposers makes it take longer.
        """
        self._pass_seconds = 0.0
        asked = [] if self._num_asleep else self._to_ask(shares)
        if not asked and not self._num_bound:
            return {}
        most = dict(self._open_sequences(shares, num_tokens))
        if not most:
            return {}
        forced = self._forced(most)
        lengths = _fitting({each: len(found) for each, found in forced.items()}, num_tokens)
        room = num_tokens - sum(lengths.values())
        others = {sequence: n for sequence, n in most.items() if sequence not in forced}
        guesses: dict[SequenceState, _Guess] = {}
        if asked and others and room:
            guesses = self._guess(asked, others)
            if self._num_tokens is not None:
                wanted = {each: min(g.most, self._num_tokens) for each, g in guesses.items()}
                lengths |= _fitting(wanted, room)
            else:
                step = _Step(shares, costs, window)
                self._step_seconds = step.seconds
                if guesses and step.seconds is not None:
                    lengths |= self._that_pay(guesses, step, room)
        lengths = {sequence: reserve(sequence, n) for sequence, n in lengths.items() if n}
        proposals = {}
        for sequence, name, token_ids in self._tokens(forced, guesses, lengths):
            proposed = token_ids[: lengths[sequence]]
            taken = tuple(_before_a_stop(proposed, sequence.stop_token_ids))
            if taken:
                proposals[sequence] = taken
                self._known[sequence].in_flight = name
        seconds = (self.clock() - began - self._pass_seconds) / max(1, len(asked))
        for proposer in asked:
            self._charge(proposer.name, seconds)
        return proposals

    def learn(
        self, sequence: SequenceState, num_proposed: int, num_stood: int, began: float
    ) -> None:
        """Take in how many of a sequence's proposals stood.

        began   when taking in the results began; proposals make it take longer.
        """
        known = self._known[sequence]
        name = known.in_flight
        proposed, stood = known.counts.get(name, (0, 0))
        known.counts[name] = (proposed + num_proposed, stood + num_stood)
        self._told[sequence] = tuple(ProposalCounts(n, *each) for n, each in known.counts.items())
        account = self._accounts.get(name, self._of_grammars)
        account.learn(num_proposed, num_stood)
        if name in known.trials:
            account.add(num_stood * known.worth)
            known.trials[name].learn(num_proposed, num_stood, len(sequence.token_ids))
            self._charge(name, self.clock() - began)

    @property
    def told(self) -> Mapping[SequenceState, tuple[ProposalCounts, ...]]:
        """Return the counts of proposals so far, by proposer, of each sequence that had any."""
        return self._told

    def forget(self, sequence: SequenceState) -> None:
        """Drop what is known of a sequence that has ended."""
        known = self._known.pop(sequence, None)
        self._told.pop(sequence, None)
        if known is not None:
            self._num_bound -= sequence.constraint is not None
            self._num_served -= bool(known.servants)
        for proposer in self._proposers:
            proposer.forget(sequence)

    def clear(self) -> None:
        """Forget all sequences."""
        self._known.clear()
        self._told.clear()
        self._num_bound = self._num_served = 0
        for proposer in self._proposers:
            proposer.clear()

    # Who proposes what

    def _open_sequences(
        self, shares: Mapping[SequenceState, int], num_tokens: int
    ) -> Iterator[tuple[SequenceState, int]]:
        """Yield the streams whose tokens are all known, and how many proposals each could use."""
        for sequence, share in shares.items():
            is_whole = share == sequence.num_uncomputed_tokens and not sequence.num_pending_tokens
            most = min(num_tokens, sequence.max_length - len(sequence.token_ids) - 1)
            if sequence.constraint is not None:
                most = min(most, MAX_ROLLBACK - 1)  # with the token that is drawn after them
            if sequence.is_stream and is_whole and most > 0 and self.may_propose(sequence):
                yield sequence, most

    def _to_ask(self, shares: Mapping[SequenceState, int]) -> list[Proposer]:
        """Return who serves any of these sequences, and has gained more than it cost.

        Where nobody has, all sleep until credit makes up for that, but not for long.
        """
        names = frozenset[str]().union(*(self._known[each].servants for each in shares))
        accounts = [self._accounts[name] for name in names]
        credit = STEP_CREDIT / max(1, len(accounts))
        for account in accounts:
            account.add(credit)
        if self._num_tokens is not None:
            return [each for each in self._proposers if each.name in names]
        if accounts and all(account.balance < 0 for account in accounts):
            least = min(-account.balance for account in accounts)
            self._num_asleep = min(math.ceil(least / credit), _LONGEST_SLEEP)
            for account in accounts:
                account.add(credit * self._num_asleep)
            return []
        return [
            each
            for each in self._proposers
            if each.name in names and self._accounts[each.name].balance >= 0
        ]

    def _forced(self, most: Mapping[SequenceState, int]) -> dict[SequenceState, Sequence[int]]:
        """Return the tokens that constraints make certain, where there are any."""
        forced = {}
        for sequence, room in most.items():
            if sequence.constraint is not None:
                with suppress(NotQuick), quickly():
                    found = sequence.constraint.forced(min(room, MOST_FORCED))
                    if found:
                        forced[sequence] = found
        return forced

    def _guess(
        self, asked: Sequence[Proposer], most: Mapping[SequenceState, int]
    ) -> dict[SequenceState, _Guess]:
        """Return who proposes for each sequence; models are only to be asked."""
        guesses: dict[SequenceState, _Guess] = {}
        for proposer in asked:
            name = proposer.name
            others = [
                each for each in most if each not in guesses and name in self._known[each].servants
            ]
            if proposer.takes_passes:
                guesses |= {each: _Guess(proposer, (), most[each]) for each in others}
            elif others:
                for sequence, found in self._ask(proposer, others, [most[each] for each in others]):
                    if found:
                        token_ids = found[: most[sequence]]
                        guesses[sequence] = _Guess(proposer, token_ids, len(token_ids))
        return guesses

    def _charge(self, name: str, seconds: float) -> None:
        """Note what a proposer cost; nothing while nobody knows how long steps take."""
        if self._step_seconds:
            self._accounts[name].add(-seconds / self._step_seconds)

    def _tokens(
        self,
        forced: Mapping[SequenceState, Sequence[int]],
        guesses: Mapping[SequenceState, _Guess],
        lengths: Mapping[SequenceState, int],
    ) -> Iterator[tuple[SequenceState, str, Sequence[int]]]:
        """Yield who proposes what for whom; models make their tokens now."""
        to_ask: dict[str, list[SequenceState]] = {}
        for sequence, length in lengths.items():
            if sequence in forced:
                yield sequence, GRAMMAR, forced[sequence]
            elif length:
                proposer, token_ids, _ = guesses[sequence]
                if proposer.takes_passes:
                    to_ask.setdefault(proposer.name, []).append(sequence)
                else:
                    yield sequence, proposer.name, token_ids
        for proposer in self._proposers:
            if proposer.name in to_ask:
                asked = to_ask[proposer.name]
                began = self.clock()
                answers = self._ask(proposer, asked, [lengths[each] for each in asked])
                self._time(proposer.name, answers, self.clock() - began)
                for sequence, token_ids in answers:
                    yield sequence, proposer.name, token_ids

    def _ask(
        self, proposer: Proposer, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> list[tuple[SequenceState, Sequence[int]]]:
        if not sequences:
            return []
        try:
            answers = proposer.propose(sequences, most)
            return list(zip(sequences, answers, strict=True))
        except Exception:  # without guesses nothing is lost but speed
            _logger.exception("no tokens are proposed by %s", proposer.name)
            self._accounts[proposer.name].add(-1.0)  # so that the log isn't full of it
            return []

    def _time(
        self,
        name: str,
        answers: Iterable[tuple[SequenceState, Sequence[int]]],
        seconds: float,
    ) -> None:
        """Learn how long a pass of a proposer takes, and charge them to it alone."""
        self._pass_seconds += seconds
        self._charge(name, seconds)
        num_passes = max((len(token_ids) for _, token_ids in answers), default=0)
        if num_passes:
            self._accounts[name].time(num_passes, seconds)

    # How many

    def _that_pay(
        self,
        guesses: Mapping[SequenceState, _Guess],
        step: _Step,
        num_tokens: int,
    ) -> dict[SequenceState, int]:
        """Return how many tokens of each guess make the most tokens a second, or are a trial."""
        candidates = [self._candidate(sequence, guess) for sequence, guess in guesses.items()]
        marginal = step.marginal_seconds(candidates[0].position)
        most = min(num_tokens, max(0, SMALL_STEP - step.streams.num_tokens))
        chosen = choose(
            candidates,
            step.num_streams,
            step.widened,
            most,
            marginal if step.has_prompts else 0.0,
        )
        num_left = most - sum(chosen)
        lengths: dict[SequenceState, int] = {}
        for (sequence, guess), length in zip(guesses.items(), chosen, strict=True):
            proposer = guess.proposer
            next_trial = self._trials(sequence, proposer).next_trial
            if not length and len(sequence.token_ids) >= next_trial:
                wanted = TRIAL_PASSES if proposer.takes_passes else TRIAL_TOKENS
                length = min(wanted, guess.most, num_left)
                num_left -= length
            lengths[sequence] = length
            self._known[sequence].worth = 1 / step.num_streams
            self._charge(proposer.name, length * marginal)
        return lengths

    def _candidate(self, sequence: SequenceState, guess: _Guess) -> Candidate:
        proposer = guess.proposer
        account = self._accounts[proposer.name]
        rate = self._trials(sequence, proposer).rate.estimate(account.rate.estimate())
        position = len(sequence.token_ids)
        if not proposer.takes_passes:
            return Candidate(rate, guess.most, position)
        if account.pass_seconds is None:  # a trial tells
            return Candidate(rate, 0, position)
        return Candidate(rate, guess.most, position, proposer.name, account.pass_seconds)

    def _trials(self, sequence: SequenceState, proposer: Proposer) -> Trials:
        known = self._known[sequence]
        trials = known.trials.get(proposer.name)
        if trials is None:
            trials = known.trials[proposer.name] = Trials(len(sequence.token_ids))
        return trials


def _fitting(wanted: Mapping[SequenceState, int], num_tokens: int) -> dict[SequenceState, int]:
    """Return as many tokens for each as it wants, as long as there is room."""
    lengths = {}
    for sequence, length in wanted.items():
        lengths[sequence] = min(length, num_tokens)
        num_tokens -= lengths[sequence]
    return lengths


def _before_a_stop(proposed: Sequence[int], stop_token_ids: Collection[int]) -> Iterable[int]:
    """Return the proposals up to one that would end the output: nothing could follow it."""
    return takewhile(lambda token_id: token_id not in stop_token_ids, proposed)
