"""The engine with a real tiny model: any schedule gives what each request gives alone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.executor import LaunchedStep
from inferno.engine.step_plan import StepPlan
from inferno.errors import EngineError, InvalidRequest
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent
from tests.engine.local import executor_of
from tests.tiny import save_tiny

VOCAB_SIZE = 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    windows: dict[str, Any] = {
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    }
    save_tiny(path, "qwen3", head_dim=16, **windows)
    return path


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    engine = build(folder)
    yield engine
    assert not engine.has_work
    pool = engine._scheduler._blocks.pool
    assert pool.num_available == pool.num_blocks, "every block is free or idle in the cache"


def build(folder: Path, **options: Any) -> Engine:
    return build_engine(EngineOptions(model=folder, **{"num_blocks": 200, **options}))


def make_request(
    request_id: str, prompt: list[int], *, priority: int = 0, **params: Any
) -> Request:
    defaults: dict[str, Any] = {"temperature": 0.0, "max_tokens": 8}
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(**{**defaults, **params}),
        priority=priority,
    )


def run(engine: Engine, *requests: Request) -> list[TokenEvent]:
    for request in requests:
        engine.add_request(request)
    events = []
    while engine.has_work:
        events += engine.step()
    return events


def tokens(events: list[TokenEvent], request_id: str, sequence_index: int = 0) -> list[int]:
    return [
        token_id
        for event in events
        if (event.request_id, event.sequence_index) == (request_id, sequence_index)
        for token_id in event.token_ids
    ]


def random_requests(seed: int) -> list[Request]:
    """Prompts that share beginnings, of mixed lengths, priorities and ways to sample."""
    rng = random.Random(seed)
    trunk = [rng.randrange(VOCAB_SIZE) for _ in range(40)]
    requests = []
    for number in range(12):
        prompt = trunk[: rng.randrange(41)] + [
            rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 12))
        ]
        params: dict[str, Any] = {"max_tokens": rng.randrange(1, 14), "n": rng.choice([1, 1, 3])}
        if rng.random() < 0.5:
            params |= {"temperature": 0.9, "top_p": 0.9, "seed": number}
        if rng.random() < 0.3:
            params |= {"repetition_penalty": 1.3, "frequency_penalty": 0.4}
        requests.append(make_request(str(number), prompt, priority=rng.randrange(3), **params))
    return requests


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_blocks": 40, "block_size": 4},
        {"max_num_batched_tokens": 5},
        {"max_num_seqs": 2},
        {"prefix_cache": False, "block_size": 1},
        {"num_blocks": 36, "block_size": 4, "max_num_batched_tokens": 9, "max_num_seqs": 5},
    ],
    ids=str,
)
def test_any_schedule_gives_what_each_request_gives_alone(
    folder: Path, options: dict[str, Any]
) -> None:
    requests = random_requests(seed=1)
    alone = build(folder, prefix_cache=False)
    expected = {request.request_id: run(alone, request) for request in requests}
    events = run(build(folder, **options), *requests)
    for request in requests:
        for sample in range(request.params.n):
            name = request.request_id
            assert tokens(events, name, sample) == tokens(expected[name], name, sample)


def test_aborted_requests_leave_the_others_as_they_were(engine: Engine, folder: Path) -> None:
    requests = random_requests(seed=2)
    expected = run(build(folder), *requests)
    for request in requests:
        engine.add_request(request)
    events: list[TokenEvent] = []
    aborted = {"1", "4", "7"}
    for number, request_id in enumerate(sorted(aborted)):
        for _ in range(number):
            events += engine.step()
        engine.abort(request_id)
        engine.abort(request_id)
    engine.abort("nobody")
    while engine.has_work:
        events += engine.step()
    for request in requests:
        if request.request_id not in aborted:
            assert tokens(events, request.request_id) == tokens(expected, request.request_id)
    ended = [event for event in events if event.finish_reason is not None]
    assert {e.request_id for e in ended} == {request.request_id for request in requests}


@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, IndexError, AssertionError])
def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise kind("out of memory, say")

        patch.setattr(executor_of(engine)._runner, "forward", fail)
        (event,) = run(engine, make_request("a", [1, 2, 3]))
    assert event.finish_reason is FinishReason.ERROR
    assert "out of memory, say" in (event.error or "")
    assert len(tokens(run(engine, make_request("b", [1, 2, 3])), "b")) == 8


@pytest.fixture
def poisoned(folder: Path, tmp_path: Path) -> Engine:
    """An engine whose token 95 is no number."""
    shutil.copytree(folder, tmp_path / "poisoned")
    path = tmp_path / "poisoned" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][95] = torch.nan
    save_file(tensors, path)
    return build(path.parent)


def test_logits_that_are_no_numbers_end_their_request_only(poisoned: Engine) -> None:
    events = run(poisoned, make_request("bad", [95, 3]), make_request("good", [4, 5]))
    endings = {e.request_id: e.finish_reason for e in events if e.finish_reason}
    assert endings == {"bad": FinishReason.ERROR, "good": FinishReason.LENGTH}
    assert len(tokens(events, "good")) == 8


def test_prompt_logprobs_that_are_no_numbers_are_an_error(poisoned: Engine) -> None:
    (event,) = run(poisoned, make_request("bad", [95, 3], max_tokens=0, prompt_logprobs=1))
    assert event.finish_reason is FinishReason.ERROR


def test_an_id_that_would_index_outside_is_refused_wherever_it_stands(engine: Engine) -> None:
    for outside in (-1, VOCAB_SIZE):
        for request in (
            replace(make_request("a", [1]), prompt_token_ids=(outside,)),
            replace(make_request("a", [1]), eos_token_ids=frozenset({outside})),
            replace(make_request("a", [1]), bad_words_ids=((1, outside),)),
            replace(make_request("a", [1]), prediction_ids=(1, outside)),
        ):
            with pytest.raises(InvalidRequest, match="token"):
                engine.add_request(request)


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"allowed_token_ids": [5, 6]}, {"bad_words_ids": ((5,), (6,))}),
        ({"allowed_token_ids": [5], "min_tokens": 1, "stop_token_ids": [5]}, {}),
        ({"allowed_token_ids": [7], "min_tokens": 1}, {"eos_token_ids": frozenset({7})}),
    ],
    ids=["bad words", "stop token", "end"],
)
def test_a_request_that_allows_no_token_is_refused(
    engine: Engine, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    hopeless = replace(make_request("a", [1], **fields), **changes)
    with pytest.raises(InvalidRequest, match="no token that may be chosen"):
        engine.add_request(hopeless)
    one_more = {**fields, "allowed_token_ids": [*fields["allowed_token_ids"], 8]}
    [*_, last] = run(engine, replace(make_request("a", [1], **one_more), **changes))
    assert last.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)


def test_prompt_logprobs_are_the_same_in_chunks(folder: Path) -> None:
    prompt = [random.Random(0).randrange(VOCAB_SIZE) for _ in range(50)]
    found = []
    for options in ({}, {"max_num_batched_tokens": 7}):
        engine = build(folder, **options)
        run(engine, make_request("warm", prompt))
        events = run(engine, make_request("a", prompt, prompt_logprobs=2, max_tokens=1))
        (entries,) = [e.prompt_logprobs for e in events if e.prompt_logprobs is not None]
        assert len(entries) == 50
        assert entries[0] is None
        found.append([entry.logprob for entry in entries if entry is not None])
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_a_request_with_no_new_tokens_only_scores_its_prompt(engine: Engine) -> None:
    (event,) = run(engine, make_request("a", [5, 6, 7], max_tokens=0, prompt_logprobs=0))
    assert event.finish_reason is FinishReason.LENGTH
    assert event.token_ids == ()
    assert event.prompt_logprobs is not None
    assert len(event.prompt_logprobs) == 3


def test_logits_refuse_what_they_cannot_answer(engine: Engine) -> None:
    for positions in ([], [3], [-1], [True], ["0"]):
        with pytest.raises(InvalidRequest, match="positions"):
            engine.logits([1, 2, 3], positions)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        engine.logits([])
    assert engine.logits([1, 2, 3]).shape == (3, VOCAB_SIZE)


def test_a_large_step_gives_what_small_ones_give(folder: Path) -> None:
    """Of many tokens only those whose logits are asked for go through the last layer's end."""
    rng = random.Random(5)
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (70, 33, 90, 41)]
    wishes: list[dict[str, Any]] = [{}, {"prompt_logprobs": 2}, {"logprobs": 3}, {}]
    wanted = list(zip("abcd", prompts, wishes, strict=True))
    large, small = build(folder, max_num_batched_tokens=128), build(folder)
    events = run(large, *(make_request(name, ids, **wish) for name, ids, wish in wanted))
    for name, ids, wish in wanted:
        alone = build(folder, max_num_batched_tokens=16)
        expected = run(alone, make_request(name, ids, **wish))
        assert tokens(events, name) == tokens(expected, name)
        scored, truth = prompt_logprobs(events, name), prompt_logprobs(expected, name)
        assert len(scored) == len(truth) == (len(ids) - 1 if "prompt_logprobs" in wish else 0)
        assert scored == pytest.approx(truth, abs=1e-5)
    torch.testing.assert_close(large.logits(prompts[2]), small.logits(prompts[2]))


def prompt_logprobs(events: list[TokenEvent], request_id: str) -> list[float]:
    return [
        entry.logprob
        for event in events
        if event.request_id == request_id
        for entry in event.prompt_logprobs or ()
        if entry is not None
    ]


def test_logits_report_a_failed_step(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no kernel")

    with monkeypatch.context() as patch:
        patch.setattr(executor_of(engine)._runner, "forward", fail)
        with pytest.raises(EngineError, match="no kernel"):
            engine.logits([1, 2, 3])
    assert engine.logits([1, 2, 3]).isfinite().all()


def test_what_a_step_should_take_is_known_while_it_runs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: list[float | None] = []
    launch = engine._executor.launch

    def look(plan: StepPlan) -> LaunchedStep:
        expected.append(engine.expected_step_seconds)
        return launch(plan)

    monkeypatch.setattr(engine._executor, "launch", look)
    assert engine.expected_step_seconds is None
    run(engine, make_request("a", [1, 2, 3], max_tokens=20))
    assert expected[0] is None
    assert all(seconds is not None and 0 < seconds < 60 for seconds in expected[1:])
