"""Steps in flight, proposals and masks change how tokens come about, and not one bit of them.

Stand-ins for what is to come: an executor with steps in flight, proposers that guess at random or
know the answer, and a constraint whose mask is another one at each token.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.executor import LaunchedStep
from inferno.engine.proposers.ngram import NgramProposer
from inferno.engine.proposers.prediction import PredictionProposer
from inferno.engine.sampling.constraints import Mask
from inferno.engine.scheduling import steady
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.step_plan import StepPlan
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.engine.local import executor_of
from tests.engine.simulation import StandIn, always, chunks_of
from tests.engine.wire import WiredExecutor
from tests.tiny import save_tiny

VOCAB_SIZE = 96
END = 3

Key = tuple[str, int]


@dataclass
class Outcome:
    """Everything that events told of a sequence, but for when."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    prompt_logprobs: Any = None
    ending: tuple[FinishReason, int | None] | None = None
    num_cached: int = 0


@pytest.fixture(autouse=True)
def streams_that_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few streams planned together too, as many are."""
    monkeypatch.setattr(steady, "LEAST_STREAMS", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a model lies, one of whose layers sees a window only."""
    folder = tmp_path_factory.mktemp("model")
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    }
    save_tiny(folder, "qwen3", head_dim=16, vocab_size=VOCAB_SIZE, **windows)
    return folder


def build(
    folder: Path,
    *,
    depth: int = 0,
    proposer: Any = None,
    masked: bool = False,
    num_blocks: int = 20,
) -> Engine:
    engine = build_engine(
        EngineOptions(
            model=folder,
            threads=1,
            block_size=4,
            num_blocks=num_blocks,
            max_num_seqs=3,
            max_num_batched_tokens=24,
            max_model_len=48,
            step_target_ms=0,
        )
    )
    executor_of(engine)._depth = depth
    engine._executor = WiredExecutor(engine._executor)
    engine._scheduler.speculation = always(proposer)
    engine._scheduler._constrain = Shifting if masked else None
    return engine


class Shifting:
    """Allows about half of the tokens, others after each history; and always the one that ends."""

    def __init__(self, request: Request, index: int) -> None:
        self.history = [*request.prompt_token_ids, index]

    def mask_into(self, mask: Mask) -> None:
        for token_id in allowed_after(self.history):
            mask[token_id // 32] |= (1 << token_id % 32) - (1 << 32) * (token_id % 32 == 31)

    def accept(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            assert token_id in allowed_after(self.history), "it was told a token that it forbade"
            self.history.append(token_id)

    def rollback(self, num_tokens: int) -> None:
        del self.history[-num_tokens:]

    is_complete = False
    num_to_end = None

    def forced(self, most: int) -> Sequence[int]:
        return ()

    def fits(self, num_tokens: int) -> bool:
        return True

    def next_to_end(self) -> int:
        raise NotImplementedError


def allowed_after(history: Sequence[int]) -> set[int]:
    generator = random.Random(repr(history))
    return {token_id for token_id in range(VOCAB_SIZE) if generator.random() < 0.5} | {END}


class RandomGuesses(StandIn):
    """Proposes random tokens: nearly none of them stands."""

    def __init__(self) -> None:
        self.generator = random.Random(1)

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        sizes = [min(room, self.generator.randint(0, 5)) for room in most]
        return [[self.generator.randrange(VOCAB_SIZE) for _ in range(size)] for size in sizes]


class KnownAnswers(StandIn):
    """Proposes what the sequence is going to say, right as far as it pleases."""

    def __init__(self, answers: dict[Key, Outcome]) -> None:
        self.answers = answers
        self.generator = random.Random(2)

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        return [list(self._guess(*pair)) for pair in zip(sequences, most, strict=True)]

    def _guess(self, sequence: SequenceState, most: int) -> Iterator[int]:
        said = len(sequence.token_ids) - sequence.num_prompt_tokens
        answer = self.answers[sequence.sequence_id].tokens[said:]
        for token_id in answer[: min(most, self.generator.randint(0, 6))]:
            yield token_id if self.generator.random() < 0.8 else (token_id + 1) % VOCAB_SIZE


def requests(seed: int) -> list[Request]:
    """Requests of all kinds, more of them than there are places and blocks."""
    generator = random.Random(seed)
    steering: dict[str, Any] = {
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.2,
    }
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0, "ignore_eos": True},
        {"temperature": 1.2, "logprobs": 2},
        {"n": 3, "top_p": 0.9, "top_k": 20},
        {"min_p": 0.02, "min_tokens": 6, **steering},
        {"prompt_logprobs": 1, "stop_token_ids": [5, 6, 7, 8, 9, 10, 11]},
        {"logit_bias": {7: 3.0, 8: 3.0}, "temperature": 1.5, "logprobs": 0},
        {"allowed_token_ids": [END, *range(0, 96, 2)], "temperature": 0.0, **steering},
    ]
    generator.shuffle(kinds)
    common = [generator.randrange(VOCAB_SIZE) for _ in range(12)]
    return [
        Request(
            request_id=f"request {number}",
            prompt_token_ids=(
                *common[: generator.randint(0, 12)],
                *(generator.randrange(VOCAB_SIZE) for _ in range(generator.randint(1, 9))),
            ),
            params=SamplingParams(**{"max_tokens": generator.randint(6, 22), "seed": 7, **kind}),
            priority=number // 2,  # so that the later ones take the place of others
            eos_token_ids=frozenset({END}),
            bad_words_ids=((4,), (7, 8), (9, 10, 11), (8, 8)),
        )
        for number, kind in enumerate(kinds)
    ]


def run(
    engine: Engine, seed: int, answers: Mapping[Key, Outcome] | None = None
) -> dict[Key, Outcome]:
    """Add requests while others run, abort one; return what became of each sequence.

    answers     of which requests predict something like the first.
    """
    outcomes: dict[Key, Outcome] = {}
    waiting = requests(seed)
    if answers is not None:
        generator = random.Random(seed)
        waiting = [
            replace(each, prediction_ids=edited(answers[each.request_id, 0].tokens, generator))
            for each in waiting
        ]
    for number in range(900):
        if number % 2 == 0 and waiting:
            engine.add_request(waiting.pop(0))
        if number == 9:
            engine.abort("request 3")
        note(engine.step(), outcomes)
        if not waiting and not engine.has_work:
            break
    assert not engine.has_work
    pool = engine._scheduler.pool
    assert pool.num_available == pool.num_blocks
    return outcomes


def edited(tokens: Sequence[int], generator: random.Random) -> tuple[int, ...]:
    """Return tokens of which some are others, some are gone, and some new ones stand between."""
    kept = [
        token if generator.random() < 0.9 else generator.randrange(VOCAB_SIZE)
        for token in tokens
        if generator.random() < 0.9
    ]
    place = generator.randint(0, len(kept))
    return (*kept[:place], *(generator.randrange(VOCAB_SIZE) for _ in range(3)), *kept[place:])


def note(events: Sequence[TokenEvent], outcomes: dict[Key, Outcome]) -> None:
    for event in events:
        outcome = outcomes.setdefault((event.request_id, event.sequence_index), Outcome())
        assert outcome.ending is None, "news after the end"
        outcome.tokens += event.token_ids
        outcome.logprobs += event.logprobs
        if event.prompt_logprobs is not None:
            outcome.prompt_logprobs = event.prompt_logprobs
        if event.finish_reason is not None:
            outcome.ending = event.finish_reason, event.stop_token_id


def same(
    found: dict[Key, Outcome], expected: dict[Key, Outcome], *, may_fail: bool = False
) -> None:
    """Compare sequences; those that were ended from outside have told a beginning of the same."""
    assert found.keys() == expected.keys()
    from_outside = {FinishReason.ABORTED, *([FinishReason.ERROR] if may_fail else [])}
    for key, one in found.items():
        other = expected[key]
        reasons = {one.ending and one.ending[0], other.ending and other.ending[0]}
        if reasons & from_outside:
            length = min(len(one.tokens), len(other.tokens))
            assert one.tokens[:length] == other.tokens[:length]
        else:
            assert one == other, key


@cache
def plain(folder: Path, seed: int, masked: bool) -> dict[Key, Outcome]:
    """Return what becomes of the requests one step after the other, without proposals."""
    return run(build(folder, masked=masked), seed)


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("guesses", ["none", "random", "known"])
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_the_same_however_they_come_about(
    folder: Path, seed: int, guesses: str, depth: int, masked: bool
) -> None:
    expected = plain(folder, seed, masked)
    assert {FinishReason.LENGTH, FinishReason.ABORTED} <= {
        outcome.ending[0] for outcome in expected.values() if outcome.ending
    }
    proposers = {"none": None, "random": RandomGuesses(), "known": KnownAnswers(expected)}
    engine = build(folder, depth=depth, proposer=proposers[guesses], masked=masked)
    same(run(engine, seed), expected)
    assert engine._scheduler.num_preemptions


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_what_texts_propose_stands_now_and_then_and_changes_no_bit(
    folder: Path, seed: int, depth: int, masked: bool
) -> None:
    """Requests that come again find what was written the first time, and some predict it."""
    expected = plain(folder, seed, masked)
    ngram = NgramProposer()
    same(run(build(folder, depth=depth, proposer=ngram, masked=masked), seed), expected)
    engine = build(folder, depth=depth, masked=masked)
    speculation = Speculation([PredictionProposer(), ngram], num_tokens=1000)
    engine._scheduler.speculation = speculation
    same(run(engine, seed, expected), expected)
    assert engine._scheduler.num_preemptions
    counts = {each.name: each for each in speculation.counts}
    assert 0 < counts["prediction"].num_stood < counts["prediction"].num_proposed
    assert counts["ngram"].num_stood


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("failing_step", [2, 5, 6, 11, 17])
def test_who_was_not_in_a_failed_step_goes_on_as_if_nothing_had_been(
    folder: Path, failing_step: int, depth: int
) -> None:
    expected = plain(folder, 0, masked=False)
    engine = build(folder, depth=depth, proposer=KnownAnswers(expected))
    launch, plans = engine._executor.launch, itertools.count()
    planned: set[str] = set()

    def fail_once(plan: StepPlan) -> LaunchedStep:
        if next(plans) == failing_step:
            chunks = chunks_of(engine._scheduler, plan)
            planned.update(chunk.request_id for chunk in chunks)
            raise RuntimeError("planted")
        return launch(plan)

    engine._executor.launch = fail_once  # type: ignore[method-assign]
    found = run(engine, 0)
    same(found, expected, may_fail=True)
    failed = {key[0] for key, one in found.items() if one.ending and one.ending[0] == "error"}
    assert failed == planned, "those of the failed step, and nobody else"
    reasons = [outcome.ending[0] for outcome in found.values() if outcome.ending]
    assert FinishReason.ERROR in reasons
    assert FinishReason.LENGTH in reasons or FinishReason.STOP in reasons


def test_known_answers_take_fewer_steps(folder: Path) -> None:
    """The proposals that stand are told together, so that all this tests what it says."""
    answer = Request(
        request_id="a",
        prompt_token_ids=(1, 2, 3),
        params=SamplingParams(max_tokens=20, seed=1, ignore_eos=True),
    )
    alone = build(folder)
    alone.add_request(answer)
    expected: dict[Key, Outcome] = {}
    while alone.has_work:
        note(alone.step(), expected)
    proposer = KnownAnswers(expected)
    engine = build(folder, proposer=proposer)
    engine.add_request(answer)
    found: dict[Key, Outcome] = {}
    num_steps = 0
    while engine.has_work:
        note(engine.step(), found)
        num_steps += 1
    assert found == expected
    assert num_steps < 15


def test_every_token_was_allowed_when_its_turn_came(folder: Path) -> None:
    outcomes = run(build(folder, depth=1, proposer=RandomGuesses(), masked=True), 1)
    prompts = {each.request_id: each.prompt_token_ids for each in requests(1)}
    for (request_id, index), outcome in outcomes.items():
        history = [*prompts[request_id], index]
        for token_id in outcome.tokens:
            assert token_id in allowed_after(history)
            history.append(token_id)
