"""Random requests, run with proposals and without: all that an engine tells of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.options import EngineOptions
from inferno.requests import (
    FinishReason,
    ProposalCounts,
    Request,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
)
from inferno.sampling_params import RepetitionDetection
from inferno.structured import LIBRARY, StructuredOutput
from inferno.verify.runs.engine_run import settings

MOST_STEPS = 20_000  # of a schedule: many times what its tokens take one by one
_NUM_REQUESTS = 8
_NUM_FOLLOWING = 4  # requests that go on from what others said
_MOST_NEW = 32
_SHAPED_NEW = 64  # of an answer of some shape: each of _SHAPES can end by then
_MOST_PROMPT = 96
_BLOCK_SIZE = 8
_LENGTHS = (1, 3, 8)  # of proposals
_SHAPES = (  # all of which force some tokens
    StructuredOutput(choice=("never in my life", "never on a Monday", "always")),
    StructuredOutput(regex=r"[a-c]{1,3} then [0-9]{1,4} and that is all"),
    StructuredOutput(
        json={
            "type": "object",
            "properties": {"name": {"type": "string"}, "is_known": {"type": "boolean"}},
            "required": ["name", "is_known"],
            "additionalProperties": False,
        }
    ),
)
_LOOP = RepetitionDetection(max_pattern_size=4, min_count=3)
_SPOILED = 0.1  # a share of a prediction's tokens

Key = tuple[str, int]  # a request's id, and which of its sequences


@dataclass(slots=True)
class Told:
    """The news that an engine told of a sequence, but for when."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    proposals: tuple[ProposalCounts, ...] = ()

    def add(self, event: TokenEvent) -> None:
        """Take in what an event tells."""
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        self.prompt_logprobs = event.prompt_logprobs or self.prompt_logprobs
        if event.finish_reason is not None:
            self.finish_reason, self.error = event.finish_reason, event.error
            self.stop_token_id, self.proposals = event.stop_token_id, event.proposals


Outcome = dict[Key, Told]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeSchedule:
    """The requests that run together, when each comes and goes, and how many tokens are proposed.

    arrivals    before which step each request comes.
    aborts      before which step a request's owner ends it, by its id.
    """

    requests: tuple[Request, ...]
    arrivals: tuple[int, ...]
    aborts: Mapping[str, int]
    tokens_per_step: int
    num_blocks: int | None
    num_proposed: int

    @property
    def words(self) -> str:
        blocks = "" if self.num_blocks is None else f", {self.num_blocks} blocks"
        return (
            f"{len(self.requests)} requests, {self.tokens_per_step} tokens a step{blocks}, "
            f"{self.num_proposed} proposed at a time"
        )


def draw_requests(
    rng: random.Random,
    prompt: Sequence[int],
    vocab_size: int,
    max_model_len: int,
    name: str,
    *,
    may_have_shapes: bool,
) -> tuple[Request, ...]:
    """Return requests of all kinds, whose texts say some things twice.

    may_have_shapes  the model's tokens are texts, so that answers of some shape can be asked for.
    """
    has_room = max_model_len >= 2 * _SHAPED_NEW + _MOST_PROMPT
    may_have_shapes = may_have_shapes and has_room and find_spec(LIBRARY) is not None
    ways = {"greedily": SamplingParams(temperature=0.0), "plainly": SamplingParams()}
    ways |= settings(prompt)
    most_new = max(1, min(_MOST_NEW, max_model_len // 2))
    most_prompt = max(1, min(_MOST_PROMPT, max_model_len - most_new))
    requests = []
    for number in range(_NUM_REQUESTS):
        words, params = rng.choice(list(ways.items()))
        if may_have_shapes and rng.random() < 0.25 and params.allowed_token_ids is None:
            words, params = f"{words} in a shape", replace(params, structured=rng.choice(_SHAPES))
        requests.append(
            Request(
                request_id=f"{name}.{number} {words}",
                prompt_token_ids=_text(rng, prompt, vocab_size, rng.randint(1, most_prompt)),
                params=_with_limits(rng, params, prompt, most_new),
                eos_token_ids=frozenset(rng.choices(range(vocab_size), k=1 + vocab_size // 25)),
                bad_words_ids=_bad_words(rng, prompt),
                priority=rng.choice((0, 0, 1)),
                cache_salt=rng.choice(("", "", "other")),
            )
        )
    return tuple(requests)


def draw_following(
    rng: random.Random, requests: Sequence[Request], alone: Outcome, max_model_len: int
) -> tuple[Request, ...]:
    """Return requests that begin with what some said alone, and find it in the prefix cache."""
    following = []
    for number, request in enumerate(rng.sample(requests, _NUM_FOLLOWING)):
        index = rng.randrange(request.params.n)
        text = (*request.prompt_token_ids, *alone[request.request_id, index].token_ids)
        num_new = _MOST_NEW if request.params.structured is None else _SHAPED_NEW
        if len(text) + num_new <= max_model_len:
            params = replace(request.params, max_tokens=num_new)
            name = f"{request.request_id}, continued {number}"
            following.append(
                replace(request, request_id=name, prompt_token_ids=text, params=params)
            )
    return tuple(following)


def draw_schedule(
    rng: random.Random,
    requests: Sequence[Request],
    alone: Outcome,
    num_groups: int,
    num_proposed: int | None,
) -> SpeculativeSchedule:
    """Draw when requests come and go, and predict what some say, by what they say alone.

    num_proposed  how many tokens are proposed at a time; None draws that too.
    """
    longest = max(len(each.prompt_token_ids) + (each.params.max_tokens or 0) for each in requests)
    soon, late = (0, 12), (12, 60)
    least = (-(-longest // _BLOCK_SIZE) + 1) * num_groups
    vocabulary = sorted({token_id for told in alone.values() for token_id in told.token_ids})
    return SpeculativeSchedule(
        requests=tuple(
            replace(
                request,
                prediction_ids=tuple(
                    _spoiled(rng, alone[request.request_id, 0].token_ids, vocabulary)
                ),
            )
            if rng.random() < 0.7
            else request
            for request in requests
        ),
        arrivals=tuple(
            rng.randint(*(soon if number < _NUM_REQUESTS else late))
            for number in range(len(requests))
        ),
        aborts={
            request.request_id: rng.randint(2, 30) for request in requests if rng.random() < 0.15
        },
        tokens_per_step=rng.randint(_BLOCK_SIZE, 2 * _MOST_PROMPT),
        num_blocks=rng.choice((None, least, 2 * least)),
        num_proposed=num_proposed or rng.choice(_LENGTHS),
    )


def run_alone(options: EngineOptions, requests: Sequence[Request]) -> Outcome:
    """Run each request by itself, its prompt in one chunk, nothing cached or proposed."""
    engine = _build(without_speculation(options), max_num_batched_tokens=2 * _MOST_PROMPT)
    told: dict[Key, Told] = {}
    for request in requests:
        _run(engine, {0: [request]}, {}, told)
    return told


def run_together(options: EngineOptions, schedule: SpeculativeSchedule) -> Outcome:
    """Run a schedule's requests at once, with proposals as the options say."""
    if options.speculative != "off":
        options = replace(options, num_speculative_tokens=schedule.num_proposed)
    engine = _build(
        options,
        prefix_cache=True,
        num_blocks=schedule.num_blocks or options.num_blocks,
        max_num_batched_tokens=schedule.tokens_per_step,
    )
    coming: dict[int, list[Request]] = {}
    for step, request in zip(schedule.arrivals, schedule.requests, strict=True):
        coming.setdefault(step, []).append(request)
    going: dict[int, list[str]] = {}
    for request_id, step in schedule.aborts.items():
        going.setdefault(step, []).append(request_id)
    told: dict[Key, Told] = {}
    _run(engine, coming, going, told)
    return told


def without_speculation(options: EngineOptions) -> EngineOptions:
    """Return options of an engine that proposes nothing."""
    return replace(
        options, speculative="off", speculative_model=None, speculative_early_layers=None
    )


def _with_limits(
    rng: random.Random, params: SamplingParams, prompt: Sequence[int], most_new: int
) -> SamplingParams:
    """Return parameters that say as well when a request ends, and what it is told."""
    max_tokens = rng.randint(1, most_new) if params.structured is None else _SHAPED_NEW
    return replace(
        params,
        seed=rng.getrandbits(63),
        n=rng.choice((1, 1, 1, 2, 3)),
        max_tokens=max_tokens,
        min_tokens=rng.choice((0, 0, max_tokens // 2)),
        ignore_eos=rng.random() < 0.3,
        stop_token_ids=rng.choices(prompt, k=2) if rng.random() < 0.3 else (),
        logprobs=rng.choice((None, 0, 2)),
        prompt_logprobs=rng.choice((None, None, None, 1)),
        repetition_detection=_LOOP if rng.random() < 0.3 else None,
    )


def _bad_words(rng: random.Random, prompt: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    if rng.random() < 0.7:
        return ()
    return tuple(rng.choices(prompt, k=1)), tuple(rng.choices(prompt, k=2))


def _text(
    rng: random.Random, prompt: Sequence[int], vocab_size: int, length: int
) -> tuple[int, ...]:
    """Make a text of a phrase that comes again, parts of the prompt, and any tokens."""
    phrase = rng.choices(prompt, k=rng.randint(1, 6))
    token_ids: list[int] = []
    while len(token_ids) < length:
        first = rng.randrange(len(prompt))
        part = prompt[first : first + rng.randint(1, 12)]
        token_ids += rng.choice((phrase, phrase, part, [rng.randrange(vocab_size)]))
    return tuple(token_ids[-length:])


def _spoiled(
    rng: random.Random, token_ids: Sequence[int], vocabulary: Sequence[int]
) -> Iterator[int]:
    """Yield an answer in which some tokens are wrong, missing or said twice."""
    for token_id in token_ids:
        if rng.random() >= _SPOILED:
            yield token_id
        else:
            yield from rng.choice(((rng.choice(vocabulary),), (), (token_id, token_id)))


def _build(options: EngineOptions, **others: object) -> Engine:
    chosen = {
        "block_size": _BLOCK_SIZE,
        "max_num_seqs": 2 * _NUM_REQUESTS,
        "step_target_ms": 0,  # which schedule it is should not depend on the time it takes
        "prefix_cache": False,
        **others,
    }
    return build_engine(replace(options, **chosen))  # type: ignore[arg-type]


def _run(
    engine: Engine,
    coming: Mapping[int, Sequence[Request]],
    going: Mapping[int, Sequence[str]],
    told: dict[Key, Told],
) -> None:
    """Step until all requests have come and ended; those that hang stay without an ending."""
    for step in range(MOST_STEPS):
        for request in coming.get(step, ()):
            engine.add_request(request)
            told |= {(request.request_id, i): Told() for i in range(request.params.n)}
        for request_id in going.get(step, ()):
            engine.abort(request_id)
        for event in engine.step():
            told[event.request_id, event.sequence_index].add(event)
        if step >= max(chain(coming, going)) and not engine.has_work:
            return
