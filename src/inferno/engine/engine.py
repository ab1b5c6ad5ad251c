"""The engine: add a request, abort one, step. Token ids in, token ids out.

Where a step fails, its requests end with an error, and the others go on: see `Engine.step`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inferno.engine.execution.executor import Executor, LaunchedStep
from inferno.engine.execution.footprint import Footprint
from inferno.engine.execution.gpu import free_after, is_device_lost
from inferno.engine.sampling.constraints import Constraint, ConstraintMaker
from inferno.engine.sampling.reasoning import after_reasoning
from inferno.engine.scheduling.scheduler import Scheduler
from inferno.engine.step_plan import StepPlan
from inferno.errors import EngineDied, EngineError, InvalidRequest
from inferno.machine import own_memory, readable_size
from inferno.out_of_memory import in_a_step, is_out_of_memory
from inferno.requests import FinishReason, ProposalCounts, Request, SamplingParams, TokenEvent

_logger = logging.getLogger("inferno")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """The numbers of places and of blocks that are taken, between two steps.

    num_running, num_waiting    sequences with and without a place; num_preemptions: so far, and
                    num_swaps of them with a copy of what was computed in host memory.
    blocks_used     held by somebody; blocks_cached: held by nobody, but still to be found;
                    blocks_swapped: in host memory.
    batch_size      sequences in the last step.
    proposals       what became of all proposed tokens; proposer_bytes: the memory of who proposes.
    """

    num_running: int
    num_waiting: int
    num_preemptions: int
    num_swaps: int
    blocks_free: int
    blocks_used: int
    blocks_cached: int
    blocks_swapped: int
    batch_size: int
    proposals: tuple[ProposalCounts, ...]
    proposer_bytes: int


@dataclass(slots=True, eq=False)
class _StepInFlight:
    """A step from its launch until its results are taken in; it failed if nothing was launched."""

    plan: StepPlan
    began: float
    launched: LaunchedStep | None = None
    problem: BaseException | None = None

    def note(self, problem: BaseException) -> None:
        """Note, in the midst of an exception, that it failed."""
        _logger.exception("a step of the engine failed")
        self.launched, self.problem = None, problem


class Engine:
    """The engine: runs requests together, a step at a time.

    constraints     makes what requests with a shape may say; None where no request has one.
    planned_bytes   that the whole process was to take with a full cache, for a message at the end;
                    None where nothing was planned, or not of this memory.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        *,
        vocab_size: int,
        max_model_len: int,
        constraints: ConstraintMaker | None = None,
        planned_bytes: int | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._constraints = constraints
        self._planned_bytes = planned_bytes
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self._batch_size = 0
        self._in_flight: deque[_StepInFlight] = deque()
        self._retired_at = 0.0
        self._break: str | None = None  # what left the bookkeeping in the midst of something
        self._expected_step_seconds: float | None = None

    @property
    def expected_step_seconds(self) -> float | None:
        """Return how long the step under way should take; None before the first step.

        Any thread may ask.
        """
        return self._expected_step_seconds

    @property
    def has_work(self) -> bool:
        """Return whether a step would do something."""
        return self._break is not None or self._scheduler.has_work

    @property
    def footprint(self) -> Footprint:
        """Return the model's device, and the memory that it takes."""
        return self._executor.footprint

    @property
    def occupancy(self) -> Occupancy:
        """Return the places and blocks that are taken now."""
        scheduler, pool = self._scheduler, self._scheduler.pool
        return Occupancy(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_preemptions=scheduler.num_preemptions,
            num_swaps=scheduler.offload.num_saved,
            blocks_free=pool.num_available - pool.num_idle,
            blocks_used=pool.num_blocks - pool.num_available,
            blocks_cached=pool.num_idle,
            blocks_swapped=scheduler.offload.num_used,
            batch_size=self._batch_size,
            proposals=scheduler.speculation.counts,
            proposer_bytes=scheduler.speculation.num_bytes,
        )

    def widen_tables(self, num_tokens: int) -> None:
        """Have steps run as for requests of at least so many tokens; see Executor."""
        self._executor.widen_tables(num_tokens)

    def release_memory(self) -> None:
        """Give memory that only steps need back to the system; for an engine that is now idle."""
        with self._bookkeeping():
            self._scheduler.resend()  # for the executor forgets all that it was told
        self._executor.release_memory()

    def start_constraints(self, request: Request) -> Future[Sequence[Constraint]] | None:
        """Begin to compile what a request's shape lets it say, for `add_request`.

        Returns None for a request that has no shape. Steps may go on meanwhile, in any thread.
        Cancel the future when its result is no longer wanted. InvalidRequest, raised by this or by
        the future, refuses the request; EngineDied tells that the engine was closed.
        """
        if request.params.structured is None or self._constraints is None:
            return None
        _check_token_ids(request, self.vocab_size)  # here too, for masks are made of them
        return self._constraints.start(request)

    def add_request(
        self, request: Request, constraints: Sequence[Constraint] | None = None
    ) -> None:
        """Queue a request. After InvalidRequest or NeverFits nothing has changed.

        constraints     of the request's sequences, as `start_constraints` makes them; if a request
                        with a shape comes without, they are made here, which takes a while.
        """
        _check_token_ids(request, self.vocab_size)
        _check_choice(request)
        if request.params.seed is None:
            drawn = secrets.randbits(63)
            request = replace(request, params=replace(request.params, seed=drawn))
        if constraints is None and (making := self.start_constraints(request)) is not None:
            constraints = making.result()

        def constrain(_request: Request, index: int) -> Constraint | None:
            answer = None if constraints is None else constraints[index]
            return after_reasoning(request, answer, self.vocab_size)

        is_bound = constraints is not None or request.reasoning is not None
        with self._bookkeeping(harmless=InvalidRequest):
            self._scheduler.add(request, constrain if is_bound else None)

    def abort(self, request_id: str, sequence_index: int | None = None) -> None:
        """End a request or one of its sequences, if it is there; the next step reports it."""
        with self._bookkeeping():
            self._scheduler.abort(request_id, sequence_index)

    def close(self) -> None:
        """End what works beside the steps: afterwards no request with a shape is taken.

        Call this when nobody steps.
        """
        self._scheduler.steering.clear()
        if self._constraints is not None:
            self._constraints.close()
        if self._planned_bytes is not None and (own := own_memory()) is not None:
            _logger.info(
                "planned %s with all blocks of the KV cache written, took %s at the end",
                *(readable_size(self._planned_bytes), readable_size(own)),
            )

    def step(self) -> list[TokenEvent]:
        """Begin the next step, and finish the earlier ones that are not to stay in flight.

        Returns the events of all requests since the last call. Where the device fails, the step's
        requests end with an error. Where the engine's own bookkeeping fails, all requests end with
        an error. An exception that is no Exception, such as KeyboardInterrupt, is raised
        afterwards, and the next step returns the events. EngineDied means that a GPU was lost: no
        further step can succeed in this process.
        """
        is_telling = False
        try:
            self._recover()
            plan = self._scheduler.plan()
            is_telling = True
            interrupt = self._run(plan)
            events = self._scheduler.take_events()
            if interrupt is None:
                return events
        except BaseException as mistake:
            self._break = _words(mistake)
            if is_telling:
                self._scheduler.redeliver()
            if not isinstance(mistake, Exception):
                raise
            _logger.exception("the engine's bookkeeping failed")
            self._recover()
            return self._scheduler.take_events()
        self._scheduler.redeliver()
        raise interrupt

    def _run(self, plan: StepPlan) -> BaseException | None:
        """Launch a plan, commit the steps before it, sample it; wait for it if it may not stay.

        An empty plan ends all that is in flight. Returns what interrupted a step, if anything did.
        """
        if not plan.num_chunks:
            interrupt = self._retire_to(0)
            self._scheduler.steering.wait()
            return interrupt
        self._batch_size = plan.num_chunks
        step = self._launch(plan)
        self._in_flight.append(step)
        depth = self._executor.depth
        interrupt = None
        has_masks = self._scheduler.has_masks
        if has_masks or step.launched is None or not step.launched.is_free:
            # Masks, and much of what changes logits, follow the tokens of all steps before.
            interrupt = self._retire_to(1)
        self._sample(step)
        # Where a step failed, nobody knows how much of its plan was followed: let none come after.
        return self._retire_to(depth if step.problem is None else 0) or interrupt

    def _retire_to(self, most: int) -> BaseException | None:
        """Retire steps until at most so many are in flight; return what interrupted one, if any."""
        interrupt = None
        while len(self._in_flight) > most:
            interrupt = self._retire() or interrupt
        return interrupt

    def _launch(self, plan: StepPlan) -> _StepInFlight:
        self._expected_step_seconds = self._scheduler.costs.expect(plan.work)
        step = _StepInFlight(plan, time.perf_counter())
        try:
            step.launched = self._executor.launch(plan)
        except BaseException as problem:  # a kernel failed, memory ran out, or we made a mistake
            step.note(problem)
        return step

    def _sample(self, step: _StepInFlight) -> None:
        if step.launched is not None:
            try:
                self._draw(step.launched)
            except BaseException as problem:
                step.note(problem)

    def _draw(self, launched: LaunchedStep) -> None:
        """Choose a step's tokens, and choose again as long as some would cut an output off."""
        if not self._scheduler.has_masks:
            launched.sample({})
            return
        steering = self._scheduler.step_steering()
        masks = steering.masks(self.vocab_size)
        launched.sample(masks)
        while masks:
            masks = steering.masks_to_redraw(launched.result(), self.vocab_size)
            if masks:
                launched.redraw(masks)
        if steering.late:
            launched.take_back(steering.late)

    def _retire(self) -> BaseException | None:
        """Wait for the oldest step in flight and take in what came of it.

        Returns what interrupted it, if that is no Exception.
        """
        step = self._in_flight.popleft()
        if step.launched is not None:
            try:
                results = step.launched.result()
            except BaseException as problem:
                step.note(problem)
        began = max(step.began, self._retired_at)  # a device runs steps one after the other
        self._retired_at = time.perf_counter()
        if step.problem is None:
            self._scheduler.costs.observe(step.plan.work, self._retired_at - began)
            self._scheduler.commit(step.plan, results)
            return None
        self._scheduler.fail(step.plan, _words(step.problem))
        if is_device_lost(step.problem):
            return EngineDied(
                f"the GPU is lost to this process, which must be started again: {step.problem}"
            )
        if is_out_of_memory(step.problem):
            free_after(step.problem)
        return None if isinstance(step.problem, Exception) else step.problem

    @contextmanager
    def _bookkeeping(self, harmless: type[Exception] | None = None) -> Iterator[None]:
        """Let the scheduler note something; what interrupts it is mended before the next time.

        harmless    errors that it raises before it notes anything.
        """
        self._recover()
        try:
            yield
        except BaseException as mistake:
            if harmless is None or not isinstance(mistake, harmless):
                self._break = _words(mistake)
            raise

    def _recover(self) -> None:
        """End all requests and start with empty books, if these were left in the midst."""
        if self._break is not None:
            self._in_flight.clear()
            self._scheduler.fail_all(self._break)
            self._break = None

    def logits(self, token_ids: Iterable[int], positions: Iterable[int] | None = None) -> Tensor:
        """Return float32 logits [positions, V] after given positions of a text, by default all.

        The text goes through scheduler, blocks and paged attention like any request, but every
        token is computed. No other request may be under way. Raises EngineError, and what
        `add_request` raises.
        """
        ids = tuple(token_ids)
        wanted = range(len(ids)) if positions is None else _check_positions(positions, len(ids))
        request = Request(
            request_id=f"logits-{secrets.token_hex(8)}",
            prompt_token_ids=ids,
            params=SamplingParams(max_tokens=0),
            reads_prefix_cache=False,
        )
        try:
            self._executor.capture_logits(request.request_id, wanted)
            self.add_request(request)
            while self.has_work:
                for event in self.step():
                    is_ours = event.request_id == request.request_id
                    if is_ours and event.finish_reason is FinishReason.ERROR:
                        raise EngineError(event.error or "a step of the engine failed")
        finally:
            self.abort(request.request_id)
            kept = self._executor.take_logits(request.request_id)
        by_position = dict(zip(dict.fromkeys(wanted), kept, strict=True))
        return torch.stack([by_position[position] for position in wanted])


def _words(problem: BaseException) -> str:
    if is_out_of_memory(problem):
        return f"a step of the engine failed: {in_a_step(problem)}"
    return f"a step of the engine failed: {problem!r}"


def _check_positions(positions: Iterable[int], length: int) -> list[int]:
    checked = list(positions)
    for position in checked:
        if isinstance(position, bool) or not isinstance(position, int):
            raise InvalidRequest(f"positions must be integers, not {position!r}", param="positions")
        if not 0 <= position < length:
            raise InvalidRequest(
                f"positions must be from 0 to {length - 1}, not {position}", param="positions"
            )
    if not checked:
        raise InvalidRequest("positions must not be empty", param="positions")
    return checked


def _check_token_ids(request: Request, vocab_size: int) -> None:
    """Refuse ids outside the vocabulary: devices don't check what indexes logits or embeddings."""
    params = request.params
    given = {
        "prompt_token_ids": request.prompt_token_ids,
        "eos_token_ids": request.eos_token_ids,
        "stop_token_ids": params.stop_token_ids,
        "allowed_token_ids": params.allowed_token_ids or (),
        "logit_bias": params.logit_bias,
        "logprob_token_ids": params.logprob_token_ids,
        "bad_words": [token_id for word in request.bad_words_ids for token_id in word],
        "prediction": request.prediction_ids,
    }
    for name, token_ids in given.items():
        for token_id in token_ids:
            is_id = isinstance(token_id, int) and not isinstance(token_id, bool)
            if not is_id or not 0 <= token_id < vocab_size:
                is_short = is_id and token_id.bit_length() <= 64  # Python refuses to print others
                shown = token_id if is_short else f"a value of type {type(token_id).__name__}"
                raise InvalidRequest(
                    f"{name} holds {shown}, which is no token of this model: ids are 0 to "
                    f"{vocab_size - 1}",
                    param=name,
                )


def _check_choice(request: Request) -> None:
    """Refuse a request that bans every first token; of later ones nobody knows yet."""
    params = request.params
    if params.allowed_token_ids is None or params.max_tokens == 0:
        return
    banned = {word[0] for word in request.bad_words_ids if len(word) == 1}
    if params.min_tokens:
        banned.update(request.eos_token_ids, params.stop_token_ids)
    if banned.issuperset(params.allowed_token_ids):
        raise InvalidRequest(
            "allowed_token_ids holds no token that may be chosen: bad_words and min_tokens ban all "
            "of them; relax one of these",
            param="allowed_token_ids",
        )
