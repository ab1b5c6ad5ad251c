"""Speculative decoding: guesses of what follows a stream's tokens, computed with them in one step.

A guess stands while it is what the sequence draws anyway, so guesses change how many tokens a step
gives and never which. `StepPlan` carries them, the executor compares, and `Scheduler.commit` takes
as many as stand. `acceptance.py` says how many pay.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, Protocol

from inferno.engine.scheduling.acceptance import (
    TRIAL_TOKENS,
    Candidate,
    Rate,
    Trials,
    choose,
)
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.step_cost import StepCostModel, StepWork
from inferno.plan.choices import SMALL_STEP
from inferno.requests import ProposalCounts

# Tokens of one sequence that are proposed since they are forced; more would hold up other streams.
MOST_FORCED = 32
# Who proposes those: a sequence's constraint.
GRAMMAR = "grammar"

_PASS_DECAY = 0.8  # how much an earlier time of a proposer's pass counts beside a new one

_logger = logging.getLogger("inferno")

# Gets blocks for a sequence's next tokens and so many proposals, and returns for how many it did.
Reserve = Callable[[SequenceState, int], int]


class Proposer(Protocol):
    """Guesses the tokens that follow sequences."""

    @property
    def name(self) -> str:
        """Return the name under which proposals are counted."""
        ...

    @property
    def takes_passes(self) -> bool:
        """Return whether each token takes a pass of a model, for all sequences together.

        Then it is asked for as many tokens as pay. Else it is asked for all that it finds.
        """
        ...

    @property
    def num_bytes(self) -> int:
        """Return the memory that it takes."""
        ...

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        """Return token ids of the model that may follow each sequence: at most so many, or none.

        The blocks of a sequence have room for them, if takes_passes.
        """
        ...

    def forget(self, sequence: SequenceState) -> None:
        """Let go of what is kept for a sequence: it has ended. It may be one that is not known."""

    def clear(self) -> None:
        """Forget all sequences: nobody knows what is left of their blocks."""


class _Guess(NamedTuple):
    """Proposals for one sequence: who makes them, and which they are, or only how many."""

    proposer: Proposer | None  # None: its constraint
    token_ids: Sequence[int]
    most: int


@dataclass(slots=True)
class _Known:
    """What is known of a sequence: its trials, counts by proposer, and who proposed in flight."""

    trials: dict[str, Trials] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    in_flight: str = ""


class Speculation:
    """Owns all proposers, and what became of their proposals.

    proposers       in the order in which they are asked; who finds nothing leaves it to the next.
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
        self._clock = clock
        self._known: dict[SequenceState, _Known] = {}
        self._rates = {proposer.name: Rate() for proposer in proposers}
        self._pass_seconds: dict[str, float] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    @property
    def counts(self) -> tuple[ProposalCounts, ...]:
        """Return what became of all proposals so far, by proposer."""
        return _listed(self._counts)

    @property
    def num_bytes(self) -> int:
        """Return the memory that proposers take."""
        return sum(proposer.num_bytes for proposer in self._proposers)

    def may_propose(self, sequence: SequenceState) -> bool:
        """Return whether proposals may follow a sequence's tokens."""
        return self._is_on and (bool(self._proposers) or sequence.constraint is not None)

    def propose(
        self,
        shares: Mapping[SequenceState, int],
        costs: StepCostModel,
        window: int | None,
        num_tokens: int,
        reserve: Reserve,
    ) -> dict[SequenceState, tuple[int, ...]]:
        """Return proposals for the streams among those that have a share of a step.

        What a constraint forces is proposed before all guesses, for it stands for sure.

        window      see StepWork.
        num_tokens  room that the step has left for all of them together.
        """
        most = dict(self._open_sequences(shares, num_tokens))
        if not most:
            return {}
        guesses = self._guess(most)
        lengths = self._lengths(guesses, shares, costs, window, num_tokens)
        lengths = {sequence: reserve(sequence, n) for sequence, n in lengths.items() if n}
        proposals = {}
        for sequence, token_ids in self._tokens(guesses, lengths):
            proposed = token_ids[: lengths[sequence]]
            taken = tuple(_before_a_stop(proposed, sequence.stop_token_ids))
            if taken:
                proposals[sequence] = taken
                proposer = guesses[sequence].proposer
                known = self._known.setdefault(sequence, _Known())
                known.in_flight = GRAMMAR if proposer is None else proposer.name
        return proposals

    def learn(self, sequence: SequenceState, num_proposed: int, num_stood: int) -> None:
        """Take in how many of a sequence's proposals stood."""
        known = self._known[sequence]
        name = known.in_flight
        for counts in (known.counts, self._counts):
            proposed, stood = counts.get(name, (0, 0))
            counts[name] = (proposed + num_proposed, stood + num_stood)
        if name != GRAMMAR:
            self._rates[name].learn(num_proposed, num_stood)
            known.trials[name].learn(num_proposed, num_stood, len(sequence.token_ids))

    def told(self, sequence: SequenceState) -> tuple[ProposalCounts, ...]:
        """Return what became of a sequence's proposals so far."""
        known = self._known.get(sequence)
        return () if known is None or not known.counts else _listed(known.counts)

    def forget(self, sequence: SequenceState) -> tuple[ProposalCounts, ...]:
        """Let go of a sequence that has ended; return what became of its proposals."""
        for proposer in self._proposers:
            proposer.forget(sequence)
        known = self._known.pop(sequence, None)
        return () if known is None else _listed(known.counts)

    def clear(self) -> None:
        """Forget all sequences."""
        self._known.clear()
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
            if sequence.is_stream and is_whole and most > 0 and self.may_propose(sequence):
                yield sequence, most

    def _guess(self, most: Mapping[SequenceState, int]) -> dict[SequenceState, _Guess]:
        """Return who proposes for each sequence; models are only to be asked."""
        guesses = {}
        for sequence, room in most.items():
            if sequence.constraint is not None:
                forced = sequence.constraint.forced(min(room, MOST_FORCED))
                if forced:
                    guesses[sequence] = _Guess(None, forced, len(forced))
        for proposer in self._proposers:
            others = [sequence for sequence in most if sequence not in guesses]
            if proposer.takes_passes:
                guesses |= {each: _Guess(proposer, (), most[each]) for each in others}
                continue
            for sequence, token_ids in self._ask(proposer, others, [most[each] for each in others]):
                if token_ids:
                    found = token_ids[: most[sequence]]
                    guesses[sequence] = _Guess(proposer, found, len(found))
        return guesses

    def _tokens(
        self, guesses: Mapping[SequenceState, _Guess], lengths: Mapping[SequenceState, int]
    ) -> Iterator[tuple[SequenceState, Sequence[int]]]:
        """Yield the tokens that are proposed; models make them now."""
        to_ask: dict[str, list[SequenceState]] = {}
        for sequence, length in lengths.items():
            proposer, token_ids, _ = guesses[sequence]
            if proposer is not None and proposer.takes_passes and length:
                to_ask.setdefault(proposer.name, []).append(sequence)
            else:
                yield sequence, token_ids
        for proposer in self._proposers:
            if proposer.name in to_ask:
                asked = to_ask[proposer.name]
                began = self._clock()
                answers = self._ask(proposer, asked, [lengths[each] for each in asked])
                self._time(proposer.name, answers, self._clock() - began)
                yield from answers

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
            return []

    def _time(
        self,
        name: str,
        answers: Iterable[tuple[SequenceState, Sequence[int]]],
        seconds: float,
    ) -> None:
        """Learn how long a pass of a proposer takes."""
        num_passes = max((len(token_ids) for _, token_ids in answers), default=0)
        if num_passes:
            each = seconds / num_passes
            before = self._pass_seconds.get(name, each)
            self._pass_seconds[name] = _PASS_DECAY * before + (1 - _PASS_DECAY) * each

    # How many

    def _lengths(
        self,
        guesses: Mapping[SequenceState, _Guess],
        shares: Mapping[SequenceState, int],
        costs: StepCostModel,
        window: int | None,
        num_tokens: int,
    ) -> dict[SequenceState, int]:
        """Return how many tokens of each guess to compute; all together at most `num_tokens`."""
        lengths: dict[SequenceState, int] = {}
        open_guesses: list[tuple[SequenceState, Proposer, int]] = []
        for sequence, (proposer, _, most) in guesses.items():
            if proposer is None or self._num_tokens is not None:
                asked = most if proposer is None else min(most, self._num_tokens or 0)
                lengths[sequence] = min(asked, num_tokens)
                num_tokens -= lengths[sequence]
            else:
                open_guesses.append((sequence, proposer, most))
            if proposer is not None:
                self._trials(sequence, proposer)
        if open_guesses and num_tokens:
            lengths |= self._that_pay(open_guesses, shares, costs, window, num_tokens)
        return lengths

    def _that_pay(
        self,
        guesses: Sequence[tuple[SequenceState, Proposer, int]],
        shares: Mapping[SequenceState, int],
        costs: StepCostModel,
        window: int | None,
        num_tokens: int,
    ) -> dict[SequenceState, int]:
        streams, whole, num_streams = StepWork(window), StepWork(window), 0
        for sequence, share in shares.items():
            whole.add(sequence.num_planned_tokens, share)
            if sequence.is_stream:
                streams.add(sequence.num_planned_tokens, share)
                num_streams += 1
        if costs.expect(streams) is None:
            return {}
        candidates = []
        for sequence, proposer, most in guesses:
            rate = self._trials(sequence, proposer).rate
            candidates.append(
                Candidate(
                    rate.estimate(self._rates[proposer.name].estimate()),
                    most,
                    len(sequence.token_ids),
                    proposer.name if proposer.takes_passes else None,
                    self._pass_seconds.get(proposer.name, 0.0),
                )
            )
        marginal = 0.0
        if whole.num_tokens > streams.num_tokens:
            before = costs.expect(whole) or 0.0
            whole.widen(candidates[0].position)
            marginal = (costs.expect(whole) or 0.0) - before

        def seconds(positions: Iterable[int]) -> Iterator[float]:
            yield costs.expect(streams) or 0.0
            for position in positions:
                streams.widen(position)
                yield costs.expect(streams) or 0.0

        most = min(num_tokens, max(0, SMALL_STEP - streams.num_tokens))
        chosen = choose(candidates, num_streams, seconds, most, marginal)
        lengths: dict[SequenceState, int] = {}
        for (sequence, proposer, available), length in zip(guesses, chosen, strict=True):
            if (
                not length
                and len(sequence.token_ids) >= self._trials(sequence, proposer).next_trial
            ):
                length = min(TRIAL_TOKENS, available, max(0, most - sum(lengths.values())))
            lengths[sequence] = length
        return lengths

    def _trials(self, sequence: SequenceState, proposer: Proposer) -> Trials:
        known = self._known.setdefault(sequence, _Known())
        trials = known.trials.get(proposer.name)
        if trials is None:
            trials = known.trials[proposer.name] = Trials(len(sequence.token_ids))
        return trials


def _listed(counts: Mapping[str, tuple[int, int]]) -> tuple[ProposalCounts, ...]:
    return tuple(ProposalCounts(name, *numbers) for name, numbers in counts.items())


def _before_a_stop(proposed: Sequence[int], stop_token_ids: Collection[int]) -> Iterable[int]:
    """Return the proposals up to one that would end the output: nothing could follow it."""
    return takewhile(lambda token_id: token_id not in stop_token_ids, proposed)
