"""Decide who computes in the next step, and how many tokens; take in the results.

One rule makes every schedule: a sequence has tokens, of which so many are computed, and each step
computes part of the rest. Prefill, a chunk of it, decode and recomputing after a preemption differ
in the size of that rest only. Proposals of a speculation widen it: guesses that follow a stream's
tokens are computed with them, and the step's results say how many stand.

A step may be planned while others are in flight: a token that they will draw counts as one that
the sequence has. Where nobody knows how many will come, as some are proposed, it waits for them.

Places and blocks go by rank: by priority and age, then arrival, then sequence index. A level of
priority is worth 1 / priority_aging seconds of age, so a steady stream of high priorities holds
nobody up for ever; ranks never change, so whoever outranks a sequence once does so always. Who is
to get a place needs blocks for all its tokens, besides those that prompts under way still need. Who
lacks blocks is passed by others for PASSING_SECONDS, and by nobody after that. A waiting one takes
places and blocks from lower priorities that it outranks, a running one that grows takes blocks from
whomever it outranks. So the first in rank progresses, and all that outrank it end one day.

A step's tokens go first to the streams, the sequences that only lack what the last step gave them:
each gets its token. The rest goes to prompts, a level of priority after the other; who was given
nothing for 1 / priority_aging seconds counts as one level higher until it is. On a level they share
as `shares.py` tells, which also says how long a step may take. A prompt that begins like another
one under way waits for that one's blocks, and finds them in the prefix cache.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from inferno.engine.kv.block_manager import BlockManager, Prefix
from inferno.engine.kv.offload import Offload
from inferno.engine.sampling.constraints import ConstraintFactory
from inferno.engine.scheduling import steady
from inferno.engine.scheduling.limits import Limits
from inferno.engine.scheduling.planned_steps import PlannedStep, PlannedSteps, retire
from inferno.engine.scheduling.sequence import SequenceState, Status, new_sequences
from inferno.engine.scheduling.shared_prompts import SharedPrompts
from inferno.engine.scheduling.shares import Shares, StepBound
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.scheduling.steering import Steering, StepSteering
from inferno.engine.scheduling.step_cost import StepCostModel, StepWork
from inferno.engine.step_plan import (
    NewSequence,
    ScheduledChunk,
    SequenceId,
    StepPlan,
    StepResult,
)
from inferno.errors import InvalidRequest
from inferno.requests import FinishReason, Request, TokenEvent, TokenLogprobs

# How long a waiting sequence that lacks blocks may be passed by others.
PASSING_SECONDS = 10.0
# How many such sequences a step looks at: each look takes a search of the prefix cache.
_MOST_LACKING = 4

_logger = logging.getLogger("inferno")

_RANK = attrgetter("rank")


class Scheduler:
    """Owns the state of every request, from `add` to its last event.

    max_num_seqs and the other bounds are explained in Limits.

    priority_aging  levels of priority that a second of waiting is worth; 0 keeps priorities strict.
    step_target     seconds that a step should take at most where a stream waits for it; None is
                    "auto", and 0 lets steps be as long as their tokens make them. See StepBound.
    speculation     proposes what follows streams; None proposes only what constraints force.
    constrain       makes the constraints of a request's sequences; None: no request has one.
    offload         keeps what preempted sequences have computed; None: it is computed again.
    clock           seconds, from any beginning.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        priority_aging: float = 0.0,
        step_target: float | None = None,
        speculation: Speculation | None = None,
        constrain: ConstraintFactory | None = None,
        offload: Offload | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._blocks = blocks
        self.pool = blocks.pool
        self.offload = offload or Offload(blocks)
        self._limits = Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
        )
        self.costs = StepCostModel()
        self._shares = Shares(
            self.costs,
            StepBound(self.costs, step_target, max_num_batched_tokens),
            num_tokens=max_num_batched_tokens,
            block_size=blocks.block_size,
            longest_window=blocks.longest_window,
            priority_aging=priority_aging,
        )
        self._aging = priority_aging
        self.speculation = speculation or Speculation()
        self._constrain = constrain
        self._clock = clock
        self._requests: dict[str, list[SequenceState]] = {}
        self._running: list[SequenceState] = []  # by rank
        self._waiting: list[SequenceState] = []  # by rank; the preempted too
        self._prompts = SharedPrompts(blocks)
        self.steering = Steering(self._fail_constraint)
        self._steady = steady.SteadyStreams(blocks, self.offload)
        self._in_flight = PlannedSteps(self.offload)
        self._epoch = 1  # see StepPlan
        self._gone: list[SequenceId] = []  # known to the executor, and to be forgotten
        self._events: list[TokenEvent] = []
        self._delivered: list[TokenEvent] = []  # what was taken since the last plan
        self._num_added = 0
        self.num_preemptions = 0

    @property
    def has_work(self) -> bool:
        """Return whether anything is left to plan, to commit or to report."""
        return bool(self._requests or self._in_flight or self._events)

    @property
    def num_running(self) -> int:
        """Return the number of sequences that have a place and blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Return the number of sequences that have no place, or none any more."""
        return len(self._waiting)

    # Requests come and go

    def add(self, request: Request, constrain: ConstraintFactory | None = None) -> None:
        """Queue a request, whose token ids are 32-bit, unsigned; `constrain` makes its constraints.

        Raises InvalidRequest for an empty prompt or an id in use, NeverFits for a request that the
        context or the block pool could not hold even alone.
        """
        if request.request_id in self._requests:
            raise InvalidRequest(
                f"request_id {request.request_id!r} is in use: choose another, or wait for its end",
                param="request_id",
            )
        self._limits.check(request, self._blocks)
        now = self._clock()
        sequences = new_sequences(
            request,
            order=(self._aging * now - request.priority, self._num_added),
            arrived=now,
            max_length=self._limits.max_length(request, self._blocks),
            blocks=self._blocks,
            constrain=constrain or self._constrain,
        )
        self._num_added += 1
        self._requests[request.request_id] = sequences
        for sequence in sequences:
            insort(self._waiting, sequence, key=_RANK)
            self.speculation.add(sequence)

    def abort(self, request_id: str, sequence_index: int | None = None) -> None:
        """End a request or one of its sequences at once, if known; take_events reports it."""
        self._end(request_id, FinishReason.ABORTED, sequence_index=sequence_index)

    # A step

    def plan(self) -> StepPlan:
        """Share out the next step's tokens, and count them as planned."""
        self._delivered = []
        now = self._clock()
        self.steering.work()
        if self._waiting:
            self._admit_waiting(now)
        work = StepWork(self._blocks.longest_window)
        most = self._limits.max_num_batched_tokens
        new: list[NewSequence] = []
        running = self._running if self.steering.is_idle else []
        if running and (step := self._steady.plan(self._epoch, work, now, self.speculation)):
            return self._in_flight.add(step)
        sequences = steady.streams(running, self._epoch, self._blocks, self.speculation, most)
        if sequences:
            chunks = tuple(steady.schedule(sequences, self._blocks, work, now))
            self._steady.note(sequences, chunks, len(running))
        else:
            chunks = tuple(self._share_out(now, work, new, sequences))
            self._steady.drop()
        if not chunks:
            return StepPlan(self._epoch, (), (), (), work)
        copies = self.offload.copies()
        plan = StepPlan(self._epoch, tuple(self._gone), tuple(new), chunks, work, copies)
        self._gone.clear()
        return self._in_flight.add(PlannedStep(plan, sequences, chunks))

    def _share_out(
        self, now: float, work: StepWork, new: list[NewSequence], sequences: list[SequenceState]
    ) -> list[ScheduledChunk]:
        """Return the next step's chunks; add up their work, their sequences, and who is new."""
        began, running = self.speculation.clock(), self._running
        lacking = [each for each in running if self._lacks_tokens(each)]
        shares = self._shares.share(lacking, now, has_streams=any(r.is_stream for r in running))
        # Blocks go by rank, so that nobody loses them who has a share already.
        held = [
            each
            for each in [each for each in running if each in shares]
            if each.status is Status.RUNNING and self._allocate(each, shares[each])
        ]
        if shares and not held:  # they all lack blocks: the first in rank can have them
            first = next(each for each in self._running if self._lacks_tokens(each))
            num_tokens = min(first.num_uncomputed_tokens, self._limits.max_num_batched_tokens)
            if self._allocate(first, num_tokens):
                shares = {first: num_tokens}
                held = [first]
        proposals: Mapping[SequenceState, tuple[int, ...]] = {}
        # Proposers may write to blocks before the plan is followed, and copies come first.
        if held and self.speculation.is_awake() and not self.offload.has_due:
            proposals = self._propose({sequence: shares[sequence] for sequence in held}, began)
        chunks = []
        for sequence in held:
            if sequence.known_epoch != self._epoch:
                new.append(sequence.introduce(self._epoch))
            if sequence.offloaded is not None:
                self.offload.take_back(sequence.offloaded)
                sequence.offloaded = None
            num_tokens, proposed = shares[sequence], proposals.get(sequence, ())
            work.add(sequence.num_planned_tokens, num_tokens, proposed=len(proposed))
            chunks.append(sequence.schedule(num_tokens, proposed))
            sequence.is_stream = sequence.is_stream or chunks[-1].wants_token
            sequences.append(sequence)
            sequence.served = now
        return chunks

    def step_steering(self) -> StepSteering:
        """Return the constraints of the newest plan in flight; older plans must be committed."""
        _, sequences, chunks = self._in_flight.newest
        return self.steering.begin(sequences, chunks)

    @property
    def has_masks(self) -> bool:
        """Return whether `step_steering` would have masks for the newest plan in flight."""
        if not self.speculation.has_constraints:
            return False
        return any(each.constraint is not None for each in self._in_flight.newest.sequences)

    def commit(self, plan: StepPlan, results: Sequence[StepResult]) -> None:
        """Take in the results of the oldest plan in flight: one per chunk, in order."""
        step = self._in_flight.end(plan)
        if self._steady.take_in(step, results, self._events, self.speculation):
            return
        parts = zip(retire(step), step.chunks, results, strict=True)
        steady.take_in(parts, self._blocks, self.speculation, self._events, self._take_in)

    def fail(self, plan: StepPlan, message: str) -> None:
        """End every request of the oldest plan in flight: its step failed; its blocks are void."""
        for sequence in retire(self._in_flight.end(plan)):
            if sequence.status is not Status.FINISHED:  # else its request's id may be another's
                self._end(sequence.request.request_id, FinishReason.ERROR, error=message)
        self.resend()

    def fail_all(self, message: str) -> None:
        """End every request and forget all blocks, where an exception left the state unsure.

        Only which requests there are, and the events reported so far, are still trusted here.
        """
        self._in_flight.clear()
        self.offload.settle_all()
        self._running.clear()
        self._waiting.clear()
        self._prompts.clear()
        self.steering.clear()
        self._blocks.reset()
        self.speculation.clear()
        self.resend()
        has_ended = {
            (event.request_id, event.sequence_index)
            for event in self._events
            if event.finish_reason is not None
        }
        for request_id, sequences in self._requests.items():
            for index, sequence in enumerate(sequences):
                if sequence.status is not Status.FINISHED and (request_id, index) not in has_ended:
                    has_ended.add((request_id, index))
                    reason = FinishReason.ERROR
                    ended = TokenEvent(request_id, index, finish_reason=reason, error=message)
                    self._events.append(ended)
        self._requests.clear()

    def resend(self) -> None:
        """Have the next plans describe every sequence from scratch, in a new epoch.

        Call this when the executor may not have followed the last plan, or has forgotten what it
        knew. Blocks kept in host memory are void afterwards.
        """
        self._steady.drop()
        for sequence in [each for each in self._running if each.offloaded is not None]:
            self._preempt(sequence)  # nothing was taken back yet
        for sequence in self._waiting:
            sequence.offloaded = None
        self.offload.forget()
        self._gone.clear()
        self._epoch += 1

    def take_events(self) -> list[TokenEvent]:
        """Return what has happened since the last call."""
        events = self._events
        # At once, for an interrupt in between would lose them.
        self._delivered, self._events = self._delivered + events, []
        return events

    def redeliver(self) -> None:
        """Take back the events taken since the last plan, which did not reach the caller."""
        self._events = self._delivered + self._events
        self._delivered = []

    # Choosing who computes

    def _lacks_tokens(self, sequence: SequenceState) -> bool:
        """Return whether a step could compute tokens of a running sequence.

        Not while a token is in flight that a plan would have to name: to introduce it anew, or to
        let guesses follow it. Nor while blocks of it can't be copied back from host memory yet, or
        its constraint takes long.
        """
        if self.steering.sits_out(sequence):
            return False
        is_known = sequence.known_epoch == self._epoch
        if sequence.num_pending_tokens and (self.speculation.may_follow(sequence) or not is_known):
            return False
        if sequence.offloaded is not None and not self.offload.can_take_back(sequence.offloaded):
            return False
        return sequence.num_uncomputed_tokens > 0

    # Admitting sequences: places and blocks

    def _admit_waiting(self, now: float) -> None:
        """Let waiting sequences run, by rank, as far as places and blocks go."""
        num_lacking = index = 0
        while index < len(self._waiting):
            sequence = self._waiting[index]
            if not self._has_place() and not self._lower_priorities(sequence):
                return
            if not self._is_ready(sequence):
                index += 1  # it lacks nothing that others could take from it
                continue
            prefix = self._find_prefix(sequence)
            most_cached = self._most_cached(sequence)
            sequence.awaited = self._prompts.find_awaited(sequence, prefix, most_cached)
            if sequence.awaited is not None:
                index += 1
            elif self._make_room(sequence, prefix):
                self._admit(index, prefix, now)  # the next one stands at this index then
            else:
                index += 1
                num_lacking += 1
                if sequence.lacked_since is None:
                    sequence.lacked_since = now
                is_passed = now - sequence.lacked_since < PASSING_SECONDS
                if not is_passed or num_lacking == _MOST_LACKING:
                    return

    def _admit(self, index: int, prefix: Prefix, now: float) -> None:
        """Give a waiting sequence its place, and the blocks of a cached prefix."""
        sequence = self._waiting.pop(index)
        insort(self._running, sequence, key=_RANK)
        self._steady.drop()
        kept = self.offload.start(sequence.tables, prefix, sequence.offloaded)
        sequence.offloaded = kept
        sequence.start(prefix.num_tokens, now)
        self._prompts.claim(sequence)

    def _is_ready(self, sequence: SequenceState) -> bool:
        """Return whether none of its chunks is in flight, and the prompt it shares is computed."""
        first = self._requests[sequence.request.request_id][0]
        return not sequence.num_in_flight and self._prompts.is_computed(sequence, first)

    def _has_place(self) -> bool:
        return len(self._running) < self._limits.max_num_seqs

    def _find_prefix(self, sequence: SequenceState) -> Prefix:
        tables, token_ids = sequence.tables, sequence.token_ids
        prefix = self._blocks.find_prefix(tables, token_ids, self._most_cached(sequence))
        if sequence.offloaded is None:
            return prefix
        return self.offload.find(tables, token_ids, sequence.offloaded, prefix)

    def _most_cached(self, sequence: SequenceState) -> int:
        """Count the tokens that a sequence may find in the prefix cache."""
        computes_all = (
            sequence.prompt_logprobs is not None or not sequence.request.reads_prefix_cache
        )
        return 0 if computes_all else len(sequence.token_ids) - 1

    def _make_room(self, sequence: SequenceState, prefix: Prefix) -> bool:
        """Have a place, and blocks for all tokens, available for a waiting sequence.

        If need be, and if it suffices, at the cost of lower priorities.
        """
        if self._fits(sequence, prefix):
            return True
        self._give_back_spare()
        victims = self._lower_priorities(sequence)
        num_held = sum(victim.tables.num_held for victim in victims)
        others = [other for other in self._running if other not in victims]
        num_needed = self._num_needed(sequence, prefix, others)
        is_full = len(others) == self._limits.max_num_seqs
        if is_full or num_needed > self.pool.num_available + num_held:
            return False
        while not self._fits(sequence, prefix):
            if not victims:
                return False  # what they held is shared with others
            self._preempt(victims.pop())
        return True

    def _fits(self, sequence: SequenceState, prefix: Prefix) -> bool:
        if not self._has_place():
            return False
        return self._num_needed(sequence, prefix, self._running) <= self.pool.num_available

    def _num_needed(
        self, sequence: SequenceState, prefix: Prefix, running: Sequence[SequenceState]
    ) -> int:
        """Count the blocks that all its tokens need, less those in use that it shares.

        Those for which others have tokens already are added, and one for each of their tables to
        grow by: else they would soon drive it out.
        """
        blocks, most = self._blocks, self._limits.max_num_batched_tokens
        num_own = blocks.num_peak_blocks(len(sequence.token_ids), most) - blocks.num_in_use(prefix)
        num_promised = sum(
            [blocks.num_promised(other.tables, len(other.token_ids), most) for other in running]
        )
        return num_own + num_promised + len(running) * len(sequence.tables.groups)

    def _lower_priorities(self, sequence: SequenceState) -> list[SequenceState]:
        """Return the running sequences whose places and blocks a waiting one may take, by rank."""
        priority = sequence.request.priority
        return [
            other for other in self._outranked_by(sequence) if other.request.priority < priority
        ]

    def _allocate(self, sequence: SequenceState, num_tokens: int) -> bool:
        """Get the blocks for its next tokens, if need be from those that it outranks."""
        num_computed = sequence.num_planned_tokens
        self._blocks.slide(sequence.tables, num_computed)
        num_new = self._blocks.num_new_blocks(sequence.tables, num_computed + num_tokens)
        while (num_missing := num_new - self.pool.num_available) > 0:
            if self._give_back_spare():
                continue
            victims = self._outranked_by(sequence)
            if num_missing > sum(victim.tables.num_held for victim in victims):
                return False
            self._preempt(victims[-1])
        if num_new:
            self._blocks.allocate(sequence.tables, num_computed + num_tokens)
        return True

    def _propose(
        self, shares: Mapping[SequenceState, int], began: float
    ) -> dict[SequenceState, tuple[int, ...]]:
        """Return proposals for a step's streams, of what room and blocks nobody else wants."""
        num_free = 0 if self._waiting else self.pool.num_available - self.pool.num_idle

        def reserve(sequence: SequenceState, num_tokens: int) -> int:
            nonlocal num_free
            length = sequence.num_planned_tokens + shares[sequence]
            while self._blocks.num_new_blocks(sequence.tables, length + num_tokens) > num_free:
                num_tokens -= 1
            num_free -= self._blocks.num_new_blocks(sequence.tables, length + num_tokens)
            self._blocks.allocate(sequence.tables, length + num_tokens)
            return num_tokens

        room = self._limits.max_num_batched_tokens - sum(shares.values())
        window = self._blocks.longest_window
        return self.speculation.propose(shares, self.costs, window, room, reserve, began)

    def _give_back_spare(self) -> bool:
        """Give back blocks that proposals left behind; return whether there were any."""
        num_available = self.pool.num_available
        for sequence in filter(self.speculation.may_propose, self._running):
            if not sequence.num_in_flight and self._blocks.trim(
                sequence.tables, len(sequence.token_ids)
            ):
                self._let_executor_forget(sequence)  # its table has changed
        return self.pool.num_available > num_available

    def _outranked_by(self, sequence: SequenceState) -> list[SequenceState]:
        """Return the running sequences that rank behind this one, by rank."""
        return self._running[bisect_right(self._running, sequence.rank, key=_RANK) :]

    def _preempt(self, victim: SequenceState) -> None:
        """Take a running sequence's place and blocks."""
        del self._running[bisect_left(self._running, victim.rank, key=_RANK)]
        victim.move_to(Status.PREEMPTED)
        if victim.offloaded is None:  # else it has taken nothing back yet
            num_tokens = victim.num_lasting_tokens
            seconds = self.costs.expect_more(num_tokens, self._blocks.longest_window)
            victim.offloaded = self.offload.save(victim.tables, num_tokens, seconds)
        victim.num_computed_tokens = victim.num_planned_tokens = 0
        self._let_executor_forget(victim)
        self._blocks.release(victim.tables)
        self._prompts.release(victim)
        insort(self._waiting, victim, key=_RANK)
        self.num_preemptions += 1

    def _let_executor_forget(self, sequence: SequenceState) -> None:
        """Let the executor forget a sequence, if it knows it."""
        self._steady.drop()
        if sequence.known_epoch == self._epoch:
            self._gone.append(sequence.sequence_id)
        sequence.known_epoch = 0

    # Taking in results

    def _take_in(self, sequence: SequenceState, chunk: ScheduledChunk, result: StepResult) -> None:
        self._steady.drop()
        if result.error is not None:
            self._emit(sequence, reason=FinishReason.ERROR, error=result.error)
            return
        if chunk.wants_prompt_logprobs:
            sequence.add_prompt_logprobs(result.prompt_logprobs)
        assert chunk.wants_token or not result.token_ids, "tokens come where they are wanted"
        began = self.speculation.clock()
        num_taken, reason = sequence.confirm(chunk, result.token_ids)
        if (num_proposed := len(chunk.proposed_token_ids)) and result.token_ids:
            num_stood = min(num_taken, len(result.token_ids) - 1)
            self.speculation.learn(sequence, num_proposed, num_stood, began)
        if sequence.constraint is not None and result.token_ids:
            reason = self.steering.follow(sequence, result.token_ids[:num_taken], reason)
            if sequence.status is Status.FINISHED:
                return
        if sequence.status is Status.RUNNING:  # else it was preempted: its blocks are gone
            self._blocks.commit(sequence.tables, sequence.token_ids, sequence.num_computed_tokens)
        if chunk.wants_token and sequence.claimed:
            self._prompts.release(sequence)
        if result.token_ids:
            self._emit(sequence, result.token_ids[:num_taken], result.logprobs[:num_taken], reason)
        elif chunk.start + chunk.num_tokens == sequence.max_length:  # no token was asked for
            self._emit(sequence, reason=FinishReason.LENGTH)

    def _fail_constraint(self, sequence: SequenceState, problem: BaseException) -> None:
        """End the one sequence whose constraint raised: others have nothing to do with it."""
        _logger.error("a constraint failed", exc_info=problem)
        message = f"the constraint of this output failed: {problem!r}"
        self._emit(sequence, reason=FinishReason.ERROR, error=message)

    def _end(
        self,
        request_id: str,
        reason: FinishReason,
        *,
        sequence_index: int | None = None,
        error: str | None = None,
    ) -> None:
        """End the sequences of a request that go on still; or the one that is named."""
        for sequence in self._requests.get(request_id, ()):
            is_meant = sequence_index is None or sequence.sequence_index == sequence_index
            if is_meant and sequence.status is not Status.FINISHED:
                self._emit(sequence, reason=reason, error=error)

    def _emit(
        self,
        sequence: SequenceState,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
        reason: FinishReason | None = None,
        error: str | None = None,
    ) -> None:
        """Note an event; one with a reason is the sequence's last."""
        proposals = self.speculation.told.get(sequence, ())
        self._events.append(sequence.event(token_ids, logprobs, reason, error, proposals))
        if reason is not None:
            self._finish(sequence)

    def _finish(self, sequence: SequenceState) -> None:
        queue = self._running if sequence.status is Status.RUNNING else self._waiting
        del queue[bisect_left(queue, sequence.rank, key=_RANK)]
        self._let_executor_forget(sequence)
        self._blocks.release(sequence.tables)
        self.offload.release(sequence.offloaded)
        sequence.offloaded = None
        self._prompts.release(sequence)
        self.steering.forget(sequence)
        self.speculation.forget(sequence)
        sequence.move_to(Status.FINISHED)
        request_id = sequence.request.request_id
        if all(each.status is Status.FINISHED for each in self._requests[request_id]):
            del self._requests[request_id]
