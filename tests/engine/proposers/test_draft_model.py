"""A draft model guesses right whatever became of its cache, and changes no bit of any output.

Its exactness is seen with a draft that is the model itself: each of its guesses must be what is
drawn in the end, unless a test has made it say something else before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_corpus import documents
from tokenizers import Tokenizer

from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.kv.block_manager import BlockManager
from inferno.engine.proposers.draft_model import MOST_CAUGHT_UP, DraftModelProposer
from inferno.engine.proposers.load_draft import load_draft, open_draft
from inferno.engine.sampling.sampler import Sampled
from inferno.engine.scheduling.sequence import SequenceState
from inferno.engine.scheduling.speculation import Speculation
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from tests.data import data_path
from tests.engine import test_steps_ahead as ahead
from tests.engine.local import executor_of
from tests.tiny import save_tiny

VOCAB_SIZE = ahead.VOCAB_SIZE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a model lies, one of whose layers sees a window only."""
    return save(tmp_path_factory.mktemp("model"))


def save(folder: Path, **config: Any) -> Path:
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    }
    sizes: dict[str, Any] = {"head_dim": 16, "vocab_size": VOCAB_SIZE}
    save_tiny(folder, "qwen3", **{**sizes, **windows, **config})
    return folder


def draft_of(engine: Engine, options: EngineOptions, path: Path, num_tokens: int) -> Any:
    """Return a proposer for an engine, whose own cache holds so many tokens."""
    return load_draft(
        open_draft(path, options),
        vocab_size=engine.vocab_size,
        max_model_len=engine.max_model_len,
        num_tokens=num_tokens,
        plan=None,
        device=torch.device("cpu"),
        kernels=executor_of(engine)._kernels,
        records=True,
    )


def with_draft(
    folder: Path,
    draft: Path,
    *,
    num_tokens: int = 512,
    num_guesses: int = 4,
    masked: bool = False,
    spoil: float = 0.0,
) -> tuple[Engine, Recorder]:
    """Return an engine of few places and blocks, and what records the guesses of its draft."""
    options = EngineOptions(
        model=folder,
        threads=1,
        block_size=4,
        num_blocks=20,
        max_num_seqs=3,
        max_num_batched_tokens=24,
        max_model_len=48,
        step_target_ms=0,
    )
    engine = build_engine(options)
    engine._scheduler._constrain = ahead.Shifting if masked else None
    recorder = Recorder(draft_of(engine, options, draft, num_tokens), spoil)
    engine._scheduler.speculation = Speculation([recorder], num_tokens=num_guesses)
    return engine, recorder


@dataclass
class Recorder:
    """A draft model that now and then says something else, and what it guessed."""

    draft: DraftModelProposer
    spoil: float = 0.0
    generator: random.Random = field(default_factory=lambda: random.Random(3))
    spoilt: set[tuple[Any, int]] = field(default_factory=set)
    guesses: list[tuple[SequenceState, int, list[int]]] = field(default_factory=list)
    num_failed: int = 0  # calls that raised

    name = "draft"
    takes_passes = True

    def __post_init__(self) -> None:
        sampler: Any = self.draft._sampler
        sample = sampler.sample

        def spoiling(logits_RV: Any, rows: Any, masks: Any) -> Any:
            drawn = sample(logits_RV, rows, masks)
            for i, row in enumerate(rows):
                if self.generator.random() < self.spoil and not masks:
                    drawn[i] = Sampled((drawn[i].token_id + 1) % VOCAB_SIZE, None, None)
                    self.spoilt.add((row.sequence_id, row.position))
            return drawn

        sampler.sample = spoiling

    @property
    def num_bytes(self) -> int:
        return self.draft.num_bytes

    def serves(self, sequence: SequenceState) -> bool:
        return self.draft.serves(sequence)

    @property
    def blocks(self) -> BlockManager:
        return self.draft._blocks

    def propose(
        self, sequences: Sequence[SequenceState], most: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        self.spoilt.clear()
        self.num_failed += 1
        found = self.draft.propose(sequences, most)
        self.num_failed -= 1
        assert all(map(lambda each, room: len(each) <= room, found, most))
        for sequence, guesses in zip(sequences, found, strict=True):
            length = len(sequence.token_ids)
            spoilt = [
                i for i in range(len(guesses)) if (sequence.sequence_id, length + i) in self.spoilt
            ]
            right = guesses[: spoilt[0]] if spoilt else guesses
            self.guesses.append((sequence, length, list(right)))
        return found

    def forget(self, sequence: SequenceState) -> None:
        self.draft.forget(sequence)

    def clear(self) -> None:
        self.draft.clear()

    def check(self, *, may_fail: bool = False) -> int:
        """Compare all guesses with what was drawn in the end; return how many there were."""
        assert bool(self.num_failed) == may_fail
        for sequence, length, guesses in self.guesses:
            drawn = sequence.token_ids[length : length + len(guesses)]
            assert guesses[: len(drawn)] == drawn, (sequence.sequence_id, length)
        assert not self.draft._drafts
        pool = self.blocks.pool
        assert pool.num_available == pool.num_blocks, "an idle engine holds no blocks"
        return sum(len(guesses) for _, _, guesses in self.guesses)


def test_bytes_of_a_draft_are_counted_while_it_loads(folder: Path, tmp_path: Path) -> None:
    draft = save(tmp_path / "draft", num_hidden_layers=1)
    told: list[tuple[int, int]] = []
    options = EngineOptions(model=folder, speculative_model=draft, device="cpu", num_blocks=32)
    build_engine(options, lambda *progress: told.append(progress)).close()
    of_model, of_draft = dict.fromkeys(total for _, total in told)
    assert of_draft < of_model
    assert {(of_model, of_model), (of_draft, of_draft)} <= set(told)


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("num_tokens", [24, 512])
@pytest.mark.parametrize("seed", range(3))
def test_the_model_itself_guesses_right_whatever_becomes_of_its_cache(
    folder: Path, seed: int, num_tokens: int, masked: bool
) -> None:
    """Preemptions, aborts, prefix hits, fallen guesses and lost blocks leave nothing wrong."""
    expected = ahead.plain(folder, seed, masked)
    engine, recorder = with_draft(
        folder, folder, num_tokens=num_tokens, masked=masked, spoil=0.2, num_guesses=3 + seed
    )
    ahead.same(ahead.run(engine, seed), expected)
    assert engine._scheduler.num_preemptions
    assert recorder.check() > 10


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE + 12, VOCAB_SIZE - 4], ids=["larger", "smaller"])
def test_a_draft_of_another_size_proposes_only_tokens_of_both(
    folder: Path, tmp_path: Path, vocab_size: int, seed: int
) -> None:
    draft = save(tmp_path, vocab_size=vocab_size, seed=1, num_hidden_layers=2)
    engine, recorder = with_draft(folder, draft)
    ahead.same(ahead.run(engine, seed), ahead.plain(folder, seed, masked=False))
    common = min(vocab_size, VOCAB_SIZE)
    guesses = [(each, found) for each, _, found in recorder.guesses if found]
    assert guesses
    assert all(token_id < common for _, found in guesses for token_id in found)
    for sequence, length, found in recorder.guesses:
        has_others = any(token_id >= common for token_id in sequence.token_ids[:length])
        assert not (has_others and found)
    recorder.guesses.clear()
    recorder.check()


def test_masks_are_of_as_many_tokens_as_a_smaller_draft_has(folder: Path, tmp_path: Path) -> None:
    draft = save(tmp_path, vocab_size=VOCAB_SIZE - 36)  # which takes a word less
    engine, recorder = with_draft(folder, draft, masked=True)
    for number in range(4):
        params = SamplingParams(max_tokens=9, seed=number)
        prompt = (5 + number, 9, 20)
        engine.add_request(Request(request_id=str(number), prompt_token_ids=prompt, params=params))
    while engine.has_work:
        engine.step()
    assert not recorder.num_failed
    assert any(found for _, _, found in recorder.guesses)


def test_a_sequence_beyond_the_drafts_context_goes_on_without_guesses(
    folder: Path, tmp_path: Path
) -> None:
    draft = save(tmp_path, max_position_embeddings=20)
    engine, recorder = with_draft(folder, draft)
    ahead.same(ahead.run(engine, 0), ahead.plain(folder, 0, masked=False))
    reached = {length + len(found) for _, length, found in recorder.guesses if found}
    assert max(reached) == 21, "the last guess follows the context's last token"
    assert any(length > 20 for _, length, _ in recorder.guesses)
    recorder.check()


@pytest.mark.parametrize("problem", [RuntimeError("planted"), MemoryError()])
@pytest.mark.parametrize("every", [2, 3, 7])
def test_a_pass_that_fails_costs_nothing_but_guesses(
    folder: Path, every: int, problem: Exception
) -> None:
    engine, recorder = with_draft(folder, folder, spoil=0.1)
    runner: Any = recorder.draft._runner
    forward, calls = runner.forward, iter(range(10**6))

    def failing(*batch: Any) -> Any:
        if next(calls) % every == every - 1:
            raise problem
        return forward(*batch)

    runner.forward = failing
    ahead.same(ahead.run(engine, 1), ahead.plain(folder, 1, masked=False))
    assert recorder.check(may_fail=True) or every == 2


def test_memory_that_is_let_go_between_steps_leaves_guesses_right(folder: Path) -> None:
    engine, recorder = with_draft(folder, folder)
    step = engine.step

    def tidy() -> Any:
        engine.release_memory()
        return step()

    engine.step = tidy  # type: ignore[method-assign]
    ahead.same(ahead.run(engine, 2), ahead.plain(folder, 2, masked=False))
    assert recorder.check()


# What a call computes


@dataclass
class Counted:
    """The tokens of sequences, and not of guesses, that each pass of a draft computes."""

    passes: list[int] = field(default_factory=list)

    def watch(self, draft: DraftModelProposer) -> None:
        batcher: Any = draft._batcher
        build = batcher.build

        def counting(chunks: Any, *others: Any) -> Any:
            count = sum(each.num_tokens - len(each.proposed_token_ids) for each in chunks)
            if count:
                self.passes.append(count)
            return build(chunks, *others)

        batcher.build = counting


def long_engine(folder: Path, num_tokens: int = 4096) -> tuple[Engine, Recorder]:
    options = EngineOptions(
        model=folder, threads=1, block_size=4, num_blocks=2048, max_num_seqs=8, step_target_ms=0
    )
    engine = build_engine(options)
    recorder = Recorder(draft_of(engine, options, folder, num_tokens))
    engine._scheduler.speculation = Speculation([recorder], num_tokens=3)
    return engine, recorder


def ask(name: str, length: int, seed: int, num_tokens: int = 40, **params: Any) -> Request:
    generator = random.Random(seed)
    return Request(
        request_id=name,
        prompt_token_ids=tuple(generator.randrange(VOCAB_SIZE) for _ in range(length)),
        params=SamplingParams(max_tokens=num_tokens, seed=seed, ignore_eos=True, **params),
    )


def finish(engine: Engine) -> int:
    num_steps = 0
    while engine.has_work:
        engine.step()
        num_steps += 1
    return num_steps


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("long"), max_position_embeddings=2048)


def test_a_long_prompt_is_caught_up_within_a_budget_while_others_get_guesses(
    long_folder: Path,
) -> None:
    engine, recorder = long_engine(long_folder)
    counted = Counted()
    counted.watch(recorder.draft)
    engine.add_request(ask("short", 5, 1, 60))
    for _ in range(4):
        engine.step()
    engine.add_request(ask("long", 900, 2))
    finish(engine)
    assert max(counted.passes) == MOST_CAUGHT_UP
    assert counted.passes.count(MOST_CAUGHT_UP) == 3, "900 tokens, besides the stream's own"
    by_name: dict[str, list[int]] = {"short": [], "long": []}
    for sequence, _, guesses in recorder.guesses:
        by_name[sequence.request.request_id].append(len(guesses))
    assert by_name["long"][:4] == [0, 0, 0, 3]
    assert min(by_name["short"][:-2]) > 0, "nobody waits for the long prompt"
    recorder.check()


@pytest.mark.parametrize("num_steps", [0, 4], ids=["from the first", "all at once"])
def test_sequences_of_a_request_share_the_prompt(long_folder: Path, num_steps: int) -> None:
    engine, recorder = long_engine(long_folder)
    drafting = engine._scheduler.speculation
    counted = Counted()
    counted.watch(recorder.draft)
    engine.add_request(ask("several", 100, 1, 20, n=6))
    engine._scheduler.speculation = Speculation()
    for _ in range(num_steps):
        engine.step()
    engine._scheduler.speculation = drafting
    finish(engine)
    assert counted.passes[0] < 2 * 100
    assert sum(counted.passes) < 3 * 100
    assert recorder.check() > 6


def test_a_prompt_that_was_computed_before_is_found_under_the_same_salt_only(
    long_folder: Path,
) -> None:
    engine, recorder = long_engine(long_folder)
    counted = Counted()
    counted.watch(recorder.draft)
    for name, salt in (("a", "x"), ("b", "x"), ("c", "y")):
        request = ask(name, 100, 1, 8)
        engine.add_request(replace(request, cache_salt=salt))
        counted.passes.append(0)
        finish(engine)
    first, second, third = (sum(part) for part in split(counted.passes))
    assert second < 30 < 100 <= min(first, third)
    recorder.check()


def split(counts: Iterable[int]) -> list[list[int]]:
    """Return the runs that follow each zero."""
    parts: list[list[int]] = []
    for count in counts:
        if count:
            parts[-1].append(count)
        else:
            parts.append([])
    return parts


@pytest.mark.parametrize("num_tokens", [120, 200])
def test_guesses_are_right_where_drafts_take_blocks_from_each_other(
    long_folder: Path, num_tokens: int
) -> None:
    requests = [
        ask(f"request {number}", 5 + 7 * number, number, 40, n=1 + number % 2, temperature=kind)
        for number, kind in enumerate([0.0, 1.0, 1.0, 0.0, 0.8, 1.2, 1.0, 0.0])
    ]
    outcomes = []
    for has_draft in (False, True):
        engine, recorder = long_engine(long_folder, num_tokens)
        recorder.spoil = 0.1
        if not has_draft:
            engine._scheduler.speculation = Speculation()
        release = recorder.draft._release
        lost: list[int] = []

        def counting(draft: Any, release: Any = release, lost: list[int] = lost) -> None:
            lost.append(draft.tables.num_held)
            release(draft)

        recorder.draft._release = counting  # type: ignore[method-assign]
        found: dict[ahead.Key, ahead.Outcome] = {}
        for request in requests:
            engine.add_request(request)
        while engine.has_work:
            ahead.note(engine.step(), found)
        outcomes.append(found)
        if has_draft:
            assert sum(map(bool, lost)) > 2
            assert recorder.check() > 40
    ahead.same(outcomes[1], outcomes[0])


def test_more_guesses_than_there_are_blocks_for_are_fewer(long_folder: Path) -> None:
    engine, recorder = long_engine(long_folder, num_tokens=64)
    engine._scheduler.speculation = Speculation([recorder], num_tokens=1000)
    engine.add_request(ask("a", 20, 1, 100))
    finish(engine)
    lengths = [length for _, length, found in recorder.guesses if found]
    assert lengths
    assert max(lengths) <= 64 < recorder.guesses[-1][1], "later there is no room for any"
    recorder.check()


def test_blocks_go_from_whom_was_asked_about_longest_ago(long_folder: Path) -> None:
    """Who sleeps loses its blocks to who goes on, and computes its tokens again afterwards."""
    engine, recorder = long_engine(long_folder, num_tokens=220)
    asked: list[str] = []
    propose = recorder.draft.propose

    def only_some(sequences: Any, most: Any) -> Any:
        chosen = [each.request.request_id in asked for each in sequences]
        found = iter(
            propose(
                [each for each, one in zip(sequences, chosen, strict=True) if one],
                [room for room, one in zip(most, chosen, strict=True) if one],
            )
        )
        return [next(found) if one else [] for one in chosen]

    recorder.draft.propose = only_some  # type: ignore[method-assign]

    def held() -> set[str]:
        drafts = recorder.draft._drafts
        return {each.request.request_id for each, one in drafts.items() if one.tables.num_held}

    for number, name in enumerate("abc"):
        engine.add_request(ask(name, 80, number, 400))
    asked[:] = ["a"]
    for _ in range(3):
        engine.step()
    asked[:] = ["b"]
    engine.step()
    assert held() == {"a", "b"}
    asked[:] = ["a"]
    engine.step()
    asked[:] = ["c"]
    engine.step()
    assert held() == {"a", "c"}, "b was asked about before a"
    asked[:] = ["a", "b"]
    for _ in range(12):
        engine.step()
    assert held() == {"a", "b"}
    for name in "abc":
        engine.abort(name)
    finish(engine)
    recorder.check()


# Real models


def plain_engine(target: Path, **given: Any) -> tuple[Engine, EngineOptions]:
    few: dict[str, Any] = {"threads": 1, "max_num_seqs": 8, "step_target_ms": 0}
    options = EngineOptions(model=target, speculative="off", **{**few, **given})
    return build_engine(options), options


def pair_engine(
    target: Path, draft: Path, num_tokens: int = 4096, **given: Any
) -> tuple[Engine, Recorder]:
    engine, options = plain_engine(target, **given)
    recorder = Recorder(draft_of(engine, options, draft, num_tokens))
    engine._scheduler.speculation = Speculation([recorder], num_tokens=4)
    return engine, recorder


def answers(engine: Engine, requests: Iterable[Request]) -> tuple[dict[ahead.Key, Any], float]:
    """Return what becomes of requests, one after the other, and tokens per step of a stream."""
    outcomes: dict[ahead.Key, ahead.Outcome] = {}
    num_tokens = num_steps = 0
    for request in requests:
        engine.add_request(request)
        while engine.has_work:
            events = engine.step()
            ahead.note(events, outcomes)
            num_tokens += sum(len(event.token_ids) for event in events)
            num_steps += 1
    return outcomes, num_tokens / num_steps


def demo_prompts(count: int) -> list[list[int]]:
    """Return the beginnings of texts that demo was not trained on, up to what it is to say."""
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDERS["demo"] / "tokenizer.json"))
    prompts = []
    for document in islice(documents(random.Random("drafts"), held_out=True), count):
        before = takewhile(lambda piece: not piece.is_learned, document)
        text = "".join(piece.text for piece in before) or "<|bos|>"
        prompts.append(tokenizer.encode(text, add_special_tokens=False).ids)
    return prompts


def story_prompts(count: int) -> list[list[int]]:
    path = data_path("stories260K")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    begins = ("Once upon a time", "One day, Tom", "Lily had a", "The dog was", "Ben and Mia")
    return [tokenizer.encode(begins[i % len(begins)]).ids for i in range(count)]


PAIRS: dict[str, tuple[Callable[[], tuple[Path, Path]], Callable[[int], list[list[int]]], int]] = {
    "demo": (lambda: (MODEL_FOLDERS["demo"], MODEL_FOLDERS["demo-draft"]), demo_prompts, 1),
    "stories": (
        lambda: (data_path("stories260K"), data_path("stories-draft39K")),
        story_prompts,
        2,
    ),
}


@pytest.mark.parametrize(
    ("pair", "temperature", "bar"),
    [("demo", 0.0, 2.2), ("demo", 1.0, 1.6), ("stories", 0.0, 1.6), ("stories", 1.0, 1.3)],
)
def test_real_drafts_are_right_often_and_change_no_bit(
    pair: str, temperature: float, bar: float
) -> None:
    paths, prompts, eos = PAIRS[pair]
    target, draft = paths()
    requests = [
        Request(
            request_id=f"request {number}",
            prompt_token_ids=tuple(ids),
            params=SamplingParams(
                temperature=temperature, max_tokens=80, seed=number, logprobs=2 * (number % 2)
            ),
            eos_token_ids=frozenset({eos}),
        )
        for number, ids in enumerate(prompts(12))
    ]
    expected, _ = answers(plain_engine(target)[0], requests)
    engine, recorder = pair_engine(target, draft)
    found, tokens_a_step = answers(engine, requests)
    ahead.same(found, expected)
    recorder.guesses.clear()
    recorder.check()
    assert tokens_a_step >= bar


def test_a_busy_engine_of_demo_tells_the_same_bits() -> None:
    """Requests of all kinds, at once, with hardly any room for either model."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0, "logprobs": 3},
        {"temperature": 1.0, "n": 3},
        {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2, "logprobs": 0},
        {"temperature": 1.3, "top_k": 30, "presence_penalty": 0.5, "frequency_penalty": 0.3},
        {"temperature": 1.0, "min_p": 0.05, "min_tokens": 12, "logit_bias": {20: 2.0}},
    ]
    # Of one length, whatever the texts are: five of them take more room than there is.
    prompts = [(ids * 32)[:32] for ids in demo_prompts(10)]

    def run(engine: Engine) -> dict[ahead.Key, ahead.Outcome]:
        outcomes: dict[ahead.Key, ahead.Outcome] = {}
        waiting = [
            Request(
                request_id=f"request {number}",
                prompt_token_ids=tuple(ids),
                params=SamplingParams(**{"max_tokens": 30, "seed": number, **kinds[number % 5]}),
                priority=number // 3,
                eos_token_ids=frozenset({1}),
            )
            for number, ids in enumerate(prompts)
        ]
        for number in range(2000):
            if number % 3 == 0 and waiting:
                engine.add_request(waiting.pop(0))
            if number == 14:
                engine.abort("request 3")
            ahead.note(engine.step(), outcomes)
            if not waiting and not engine.has_work:
                return outcomes
        raise AssertionError("still at work")

    small: dict[str, Any] = {
        "block_size": 4,
        "num_blocks": 40,
        "max_num_seqs": 5,
        "max_model_len": 128,
        "max_num_batched_tokens": 48,
    }
    target, draft = MODEL_FOLDERS["demo"], MODEL_FOLDERS["demo-draft"]
    expected = run(plain_engine(target, **small)[0])
    engine, recorder = pair_engine(target, draft, 100, **small)
    ahead.same(run(engine), expected)
    assert engine._scheduler.num_preemptions
    assert sum(len(found) for _, _, found in recorder.guesses) > 50
    assert {ending[0] for one in expected.values() if (ending := one.ending)} >= {
        FinishReason.STOP,
        FinishReason.LENGTH,
        FinishReason.ABORTED,
    }
    recorder.guesses.clear()
    recorder.check()
