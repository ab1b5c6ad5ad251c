"""Random schedules: who runs together, in how many blocks, and what the engine made of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.local import LocalExecutor, LocalStep
from inferno.engine.execution.runner import Runner
from inferno.engine.step_plan import LaterChunks, ScheduledChunk, StepPlan
from inferno.ops import Batch
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from inferno.verify.runs.choices import observing_choices

NUM_NEW = 8
_NUM_MATES = 4
_BLOCK_SIZE = 8


@dataclass(frozen=True, slots=True)
class Text:
    """A request: its name, its tokens, and whether new ones are drawn instead of the likeliest."""

    name: str
    token_ids: tuple[int, ...]
    is_drawn: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """The requests that run together, and their blocks; `is_cached`: a prefix is cached before."""

    texts: tuple[Text, ...]
    tokens_per_step: int
    num_blocks: int | None
    is_cached: bool

    @property
    def words(self) -> str:
        blocks = "" if self.num_blocks is None else f", {self.num_blocks} blocks"
        cached = ", a prefix cached" if self.is_cached else ""
        return f"{len(self.texts)} requests, {self.tokens_per_step} tokens a step{blocks}{cached}"


@dataclass(slots=True)
class RequestTrace:
    """The record of one request's run.

    states  by position, each time it was computed: what left the model.
    logits  by new token: what the sampler was given for it.
    steps   by new token: in which step it was made.
    error   why it ended early.
    """

    states: dict[int, list[Tensor]] = field(default_factory=dict)
    logits: list[Tensor] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    new_ids: list[int] = field(default_factory=list)
    error: str | None = None


Outcome = dict[str, RequestTrace]


def draw_texts(rng: random.Random, prompt: Sequence[int], max_model_len: int) -> tuple[Text, ...]:
    """Return the prompt, and texts that share parts of it: they hit and fill the prefix cache."""
    most = max(1, max_model_len - NUM_NEW)
    texts = [Text("the prompt", tuple(prompt))]
    for number in range(1, _NUM_MATES + 1):
        shared = prompt[: rng.randrange(len(prompt))]
        own = rng.choices(prompt, k=rng.randint(1, len(prompt)))
        ids = (*shared, *own)[:most]
        texts.append(Text(f"request {number}", ids, is_drawn=number % 2 == 0))
    return tuple(texts)


def draw_schedule(rng: random.Random, texts: Sequence[Text], num_groups: int) -> Schedule:
    """Draw a schedule of the first text in random company."""
    subject, *others = texts
    chosen = [subject, *rng.sample(others, rng.randint(0, len(others)))]
    rng.shuffle(chosen)
    longest = max(len(text.token_ids) for text in texts) + NUM_NEW
    least = (-(-longest // _BLOCK_SIZE) + 1) * num_groups
    return Schedule(
        texts=tuple(chosen),
        tokens_per_step=rng.randint(1, 2 * len(subject.token_ids)),
        num_blocks=rng.choice((None, least, 2 * least)),
        is_cached=rng.random() < 0.5,
    )


def run_alone(options: EngineOptions, texts: Sequence[Text]) -> Outcome:
    """Run each text by itself, its prompt in one chunk, nothing cached."""
    longest = max(len(text.token_ids) for text in texts)
    engine = _build(options, longest, None, prefix_cache=False)
    outcome: Outcome = {}
    for text in texts:
        outcome |= _run(engine, [text])
    return outcome


def run_together(options: EngineOptions, schedule: Schedule) -> Outcome:
    """Run all of a schedule's texts at once."""
    engine = _build(options, schedule.tokens_per_step, schedule.num_blocks, prefix_cache=True)
    if schedule.is_cached:
        subject = next(text for text in schedule.texts if not text.is_drawn)
        _run(engine, [subject])
    return _run(engine, schedule.texts)


def _build(
    options: EngineOptions, tokens_per_step: int, num_blocks: int | None, *, prefix_cache: bool
) -> Engine:
    return build_engine(
        replace(
            options,
            block_size=_BLOCK_SIZE,
            num_blocks=num_blocks or options.num_blocks,
            max_num_seqs=2 * _NUM_MATES,
            max_num_batched_tokens=tokens_per_step,
            step_target_ms=0,  # which schedule it is should not depend on the time it takes
            prefix_cache=prefix_cache,
        ),
        steps_ahead=False,  # so that the sampler is given each row
    )


def _run(engine: Engine, texts: Iterable[Text]) -> Outcome:
    outcome = {text.name: RequestTrace() for text in texts}
    with _observing(outcome):
        for text in texts:
            engine.add_request(_request(text))
        while engine.has_work:
            for event in engine.step():
                seen = outcome[event.request_id]
                seen.new_ids += event.token_ids
                if event.finish_reason is FinishReason.ERROR:
                    seen.error = event.error or "a step of the engine failed"
    return outcome


def _request(text: Text) -> Request:
    params = SamplingParams(
        temperature=1.0 if text.is_drawn else 0.0, seed=0, max_tokens=NUM_NEW, ignore_eos=True
    )
    return Request(request_id=text.name, prompt_token_ids=text.token_ids, params=params)


class _ScheduleObserver:
    """An observer that learns from the plan, not from the executor, which rows are whose."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._chunks: Sequence[ScheduledChunk] = ()
        self._told: tuple[ScheduledChunk, ...] = ()  # one by one
        self._num_next = 0  # plans since that went on
        self._num_steps = 0

    def see_plan(self, plan: StepPlan) -> None:
        if plan.next is None:
            self._chunks, self._told, self._num_next = plan.chunks, plan.chunks, 0
        else:
            self._num_next += 1
            self._chunks = LaterChunks(self._told, self._num_next)
        self._num_steps += 1

    def see_states(self, rows_N: Tensor | None, hidden: Tensor) -> None:
        """Keep the model's output rows: one for each token of each chunk, or those in rows_N."""
        states = iter(hidden.detach().to("cpu", copy=True))
        wanted = None if rows_N is None else set(rows_N.tolist())
        row = 0
        for chunk in self._chunks:
            seen = self._outcome[chunk.request_id]
            for position in range(chunk.start, chunk.start + chunk.num_tokens):
                if wanted is None or row in wanted:
                    seen.states.setdefault(position, []).append(next(states))
                row += 1

    def see_logits(self, logits: Tensor, _: bool) -> None:
        """Keep what tokens are chosen by, a row for each chunk that ends in a new one."""
        closing = [chunk for chunk in self._chunks if chunk.wants_token]
        for chunk, logits_V in zip(closing, logits, strict=True):
            seen = self._outcome[chunk.request_id]
            seen.logits.append(logits_V)
            seen.steps.append(self._num_steps)


@contextlib.contextmanager
def _observing(outcome: Outcome) -> Iterator[None]:
    """Stand between the executor and those it calls, for as long as it lasts.

    Steps are run as for everybody, recorded or not, so a module's hook would not do.
    """
    observer = _ScheduleObserver(outcome)
    launch, forward = LocalExecutor.launch, Runner.forward

    def launch_observed(self: LocalExecutor, plan: StepPlan) -> LocalStep:
        observer.see_plan(plan)
        return launch(self, plan)

    def forward_observed(
        self: Runner, batch: Batch, layers: range | None = None, stream_TE: Tensor | None = None
    ) -> Tensor:
        hidden = forward(self, batch, layers, stream_TE)
        if layers is None or layers.stop == self.num_layers:
            observer.see_states(batch.rows_N, hidden)
        return hidden

    LocalExecutor.launch = launch_observed  # type: ignore[method-assign]
    Runner.forward = forward_observed  # type: ignore[method-assign]
    try:
        with observing_choices(observer.see_logits):
            yield
    finally:
        LocalExecutor.launch = launch  # type: ignore[method-assign]
        Runner.forward = forward  # type: ignore[method-assign]
