"""First layers that propose: not one bit is another one, and nothing is computed twice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inferno.compiled_kernels import why_not
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.batcher import Batcher
from inferno.engine.execution.first_layers import FirstLayers, check_num_layers
from inferno.engine.execution.local import LocalStep
from inferno.engine.execution.runner import Runner
from inferno.engine.proposers import early_layers
from inferno.engine.proposers.early_layers import EarlyLayersProposer
from inferno.engine.sampling.sampler import Sampler
from inferno.engine.scheduling.speculation import Speculation
from inferno.engine.step_plan import ScheduledChunk, SequenceId, StepPlan
from inferno.errors import InvalidRequest
from inferno.ops import Batch
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams
from tests.engine.local import executor_of
from tests.engine.test_steps_ahead import (
    END,
    VOCAB_SIZE,
    Key,
    Outcome,
    Shifting,
    note,
    run,
    same,
)
from tests.engine.wire import WiredExecutor
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no kernels: {why_not()}")

NUM_LAYERS = 3  # of the tiny models
FORCED = 3  # tokens that are proposed whether it pays or not
WINDOWS = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
HEADS = {"head_dim": 16}
MIXTURE = {"num_experts": 8, "num_experts_per_tok": 2}

# A model and how it is run.
CASES: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "llama": ("llama", {}, {"dtype": "float32"}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}, {"dtype": "bfloat16"}),
    "llama, int4": ("llama", {}, {"quantize": "int4"}),
    "mistral, windows": ("mistral", {"sliding_window": 7, **HEADS}, {"dtype": "bfloat16"}),
    "qwen2": ("qwen2", {}, {"graphs": False}),
    "qwen3, windows": ("qwen3", {**HEADS, **WINDOWS}, {"dtype": "bfloat16", "threads": 2}),
    "qwen3, int8, int8 cache": ("qwen3", HEADS, {"quantize": "int8", "kv_dtype": "int8"}),
    "qwen3_moe": ("qwen3_moe", {**HEADS, **MIXTURE}, {}),
    "mixtral": ("mixtral", {**HEADS, "num_local_experts": 4}, {}),
    "gpt_oss, mxfp4": ("gpt_oss", {}, {"dtype": "bfloat16"}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Make a case's model when it is first asked for."""

    @cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("model")
        model_type, config, _ = CASES[name]
        if model_type == "gpt_oss":
            save_tiny_mxfp4(folder, sliding_window=6, num_local_experts=4)
        else:
            save_tiny(folder, model_type, **{"vocab_size": VOCAB_SIZE, **config})
        return folder

    return make


def build(
    folder: Path,
    num_layers: int = 0,
    *,
    most: int | None = FORCED,
    depth: int = 0,
    masked: bool = False,
    **options: Any,
) -> Engine:
    """Return an engine that forces so many proposals of first layers, or has none of them."""
    chosen = {
        "threads": 1,
        "block_size": 4,
        "num_blocks": 20,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 24,
        "max_model_len": 48,
        "step_target_ms": 0,
        **options,
    }
    engine = build_engine(EngineOptions(model=folder, **chosen))
    executor = executor_of(engine)
    executor._depth = depth
    engine._executor = WiredExecutor(engine._executor)
    engine._scheduler._constrain = Shifting if masked else None
    engine._scheduler.speculation = Speculation(is_on=False)
    if num_layers:
        executor._first_layers = FirstLayers(
            executor._batcher,
            executor._runner,
            num_layers=num_layers,
            num_tokens=chosen["max_num_batched_tokens"],
        )
        proposer = EarlyLayersProposer(
            executor._first_layers,
            Sampler(VOCAB_SIZE, torch.device("cpu")),
            executor._kernels,
            VOCAB_SIZE,
        )
        engine._scheduler.speculation = Speculation([proposer], num_tokens=most)
    return engine


def first_layers_of(engine: Engine) -> FirstLayers:
    found = executor_of(engine)._first_layers
    assert found is not None
    return found


def fade(folder: Path, num_layers: int) -> None:
    """Let all layers but the first so many add nothing, so that these say what all say."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        layer = name.partition("layers.")[2].partition(".")[0]
        if layer and int(layer) >= num_layers and ("o_proj" in name or "down_proj" in name):
            tensor.zero_()
    save_file(tensors, path, {"format": "pt"})


def answer_to(
    engine: Engine, prompt: tuple[int, ...], request_id: str = "a", **params: Any
) -> tuple[Outcome, int]:
    """Return what a request alone gets, and how many steps it took."""
    chosen = {"max_tokens": 20, "seed": 5, "ignore_eos": True, "logprobs": 1, **params}
    engine.add_request(
        Request(
            request_id=request_id,
            prompt_token_ids=prompt,
            params=SamplingParams(**chosen),
            eos_token_ids=frozenset({END}),
            bad_words_ids=((7,), (8, 8)),
        )
    )
    found: dict[Key, Outcome] = {}
    num_steps = 0
    while engine.has_work:
        note(engine.step(), found)
        num_steps += 1
    return found[request_id, 0], num_steps


def chunk(
    start: int, num_tokens: int, proposed: tuple[int, ...] = (), request_id: str = "a"
) -> ScheduledChunk:
    sequence_id = SequenceId(request_id, 0)
    return ScheduledChunk(sequence_id, start, num_tokens, (), (), (), True, False, proposed)


class Placed(NamedTuple):
    token_ids: Sequence[int]
    block_tables: Sequence[Sequence[int]] = ((1, 2, 3, 4),)


# The same bits


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("num_layers", range(1, NUM_LAYERS))
def test_every_family_has_the_same_bits(folders: Any, name: str, num_layers: int) -> None:
    folder, options = folders(name), CASES[name][2]
    for seed in range(2):
        expected = run(build(folder, **options), seed)
        engine = build(folder, num_layers, **options)
        same(run(engine, seed), expected)
        (counts,) = engine._scheduler.speculation.counts
        assert counts.num_proposed > counts.num_stood, "some are rejected"


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("most", [1, 40])
@pytest.mark.parametrize("seed", range(2))
def test_every_schedule_has_the_same_bits(
    folders: Any, seed: int, most: int, depth: int, masked: bool
) -> None:
    folder = folders("qwen3, windows")
    expected = run(build(folder, masked=masked), seed)
    engine = build(folder, 1 + seed % 2, most=most, depth=depth, masked=masked)
    same(run(engine, seed), expected)
    assert engine._scheduler.num_preemptions
    assert {outcome.ending[0] for outcome in expected.values() if outcome.ending} >= {
        FinishReason.ABORTED,
        FinishReason.LENGTH,
    }


@pytest.mark.parametrize("num_batched", [24, 150])
def test_a_prompt_beside_streams_changes_nothing(folders: Any, num_batched: int) -> None:
    """A long one is computed with all layers again, a short one with what is kept."""
    options: dict[str, Any] = {
        "max_num_batched_tokens": num_batched,
        "max_model_len": 256,
        "num_blocks": 200,
    }
    outcomes = []
    for num_layers in (0, 2):
        engine = build(folders("llama"), num_layers, **options)
        found: dict[Key, Outcome] = {}
        for number, length in enumerate((5, 90, 30, 150)):
            prompt = tuple((number + i * i) % VOCAB_SIZE for i in range(length))
            params = SamplingParams(max_tokens=30, seed=3, ignore_eos=True, logprobs=2)
            engine.add_request(
                Request(request_id=str(number), prompt_token_ids=prompt, params=params)
            )
            for _ in range(4):
                note(engine.step(), found)
        while engine.has_work:
            note(engine.step(), found)
        outcomes.append(found)
    same(outcomes[1], outcomes[0])


def test_rejected_proposals_are_never_found_in_the_prefix_cache(folders: Any) -> None:
    folder = folders("qwen3, int8, int8 cache")
    options = {**CASES["qwen3, int8, int8 cache"][2], "num_blocks": 40}
    plain, engine = build(folder, **options), build(folder, 1, **options)
    prompt: tuple[int, ...] = (5, 4, 3, 2, 1)
    for number in range(4):
        expected, _ = answer_to(plain, prompt, f"{number}", max_tokens=9)
        found, _ = answer_to(engine, prompt, f"{number}", max_tokens=9)
        assert found == expected
        prompt = (*prompt, *found.tokens[: 5 + number], number)
    text = list(prompt)
    assert torch.equal(engine.logits(text), build(folder, **options).logits(text)), (
        "and the cache is sound"
    )


# Drafts


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 1.3, "logprobs": None},
        {"temperature": 1.0, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.4, "frequency_penalty": 0.5, "presence_penalty": 0.3},
        {"logit_bias": {7: 3.0, 8: 3.0}, "temperature": 1.5},
        {"allowed_token_ids": [END, *range(0, VOCAB_SIZE, 2)], "logprob_token_ids": [4]},
        {"min_tokens": 20, "ignore_eos": False, "logit_bias": {END: 50.0}},
    ],
    ids=str,
)
def test_all_stand_where_the_other_layers_add_nothing(
    tmp_path: Path, params: Mapping[str, Any], masked: bool
) -> None:
    """So drafts are drawn with the numbers and by the rules by which the sequence draws."""
    save_tiny(tmp_path, "llama", vocab_size=VOCAB_SIZE)
    fade(tmp_path, 1)
    prompt = (5, 9, 2, 7)
    expected, _ = answer_to(build(tmp_path, masked=masked), prompt, **params)
    engine = build(tmp_path, 1, masked=masked)
    found, num_steps = answer_to(engine, prompt, **params)
    assert found == expected
    (counts,) = engine._scheduler.speculation.counts
    assert counts.num_stood == counts.num_proposed > 0
    # The prompt gives a token; then each step gives a last one besides those that it proposes.
    assert num_steps == 1 + -(-19 // (FORCED + 1))


def test_several_tokens_may_be_left_to_compute(folders: Any) -> None:
    engine = build(folders("qwen3, windows"), 2)
    params = SamplingParams(max_tokens=20, seed=1, ignore_eos=True)
    engine.add_request(Request(request_id="a", prompt_token_ids=(8, 9, 7), params=params))
    for _ in range(3):
        engine.step()
    (proposer,) = engine._scheduler.speculation._proposers
    (sequence,) = engine._scheduler._running
    expected = proposer.propose([sequence], [2])
    sequence.num_planned_tokens -= 2
    assert proposer.propose([sequence], [2]) == expected
    tokens = tuple(sequence.token_ids), tuple(expected[0])
    whole = chunk(sequence.num_planned_tokens, 5, tokens[1])
    _, layers = first_layers_of(engine).take([whole], [Placed(tokens[0], sequence.tables.groups)])
    assert layers == range(2, NUM_LAYERS)


def test_nothing_is_computed_twice(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each step every layer computes each token once, whoever asks for it."""
    engine = build(folders("llama"), 1, num_blocks=40)
    runner = executor_of(engine)._runner
    forward = runner.forward
    computed: Counter[tuple[int, int]] = Counter()  # by layer and slot, in one step

    def counting(
        batch: Batch, layers: range | None = None, stream_TE: Tensor | None = None
    ) -> Tensor:
        slots = batch.groups[0].slots_T.tolist()
        computed.update(itertools.product(layers or range(NUM_LAYERS), slots))
        return forward(batch, layers, stream_TE)

    monkeypatch.setattr(runner, "forward", counting)
    params = SamplingParams(max_tokens=20, seed=1, ignore_eos=True, n=3)
    engine.add_request(Request(request_id="a", prompt_token_ids=(8, 9), params=params))
    sizes = []
    while engine.has_work:
        computed.clear()
        engine.step()
        assert set(computed.values()) <= {1}
        num_tokens = Counter(layer for layer, _ in computed)
        assert len(num_tokens) in (0, NUM_LAYERS)
        assert len(set(num_tokens.values())) <= 1
        sizes.append(num_tokens[0])
    assert sizes.count(3 * (FORCED + 1)) > 5, "all three have proposals"


# What is kept for a step is for that step alone


TEXT = (5, 9, 2, 7, 30, 31, 32, 33)


@pytest.fixture
def two_layers(folders: Any) -> Iterator[tuple[FirstLayers, Runner, Batcher]]:
    """Yield two layers that have run ahead for 7 and two tokens after it, in bits of their own."""
    options: dict[str, Any] = {"max_num_batched_tokens": 100, "max_model_len": 100}
    options["num_blocks"] = 40
    executor = executor_of(build(folders("llama"), 2, **options))
    assert executor._first_layers is not None
    with torch.inference_mode(), executor._kernels:
        prompt = [chunk(0, 3)], [Placed(TEXT)]
        executor._runner.forward(executor._batcher.build(*prompt, range(3)))
        executor._first_layers.run([chunk(3, 1)], [Placed(TEXT[:4])])
        executor._first_layers.run([chunk(4, 1, (30,))], [Placed(TEXT[:4])])
        executor._first_layers.run([chunk(5, 1, (31,))], [Placed(TEXT[:4])])
        yield executor._first_layers, executor._runner, executor._batcher


Step = tuple[list[ScheduledChunk], list[Placed]]


@pytest.mark.parametrize(
    "step",
    [
        ([chunk(3, 3, (30, 31))], [Placed(TEXT[:4])]),
        ([chunk(3, 1)], [Placed(TEXT[:4])]),
        ([chunk(3, 4, (30, 31, 50))], [Placed(TEXT[:4])]),
        ([chunk(3, 5)], [Placed(TEXT)]),
        (
            [chunk(0, 4, request_id="b"), chunk(3, 3, (30, 31))],
            [Placed((1, 2, 3, 4), ((5, 6),)), Placed(TEXT[:4])],
        ),
    ],
    ids=["all", "fewer", "one more", "two more", "another first"],
)
def test_what_is_kept_is_used(two_layers: tuple[FirstLayers, Runner, Batcher], step: Step) -> None:
    first_layers, runner, batcher = two_layers
    rows = range(sum(each.num_tokens for each in step[0]))
    streams_TE, layers = first_layers.take(*step)
    assert layers == range(2, NUM_LAYERS)
    found_TE = runner.forward(batcher.build(*step, rows), layers, streams_TE).clone()
    expected_TE = runner.forward(batcher.build(*step, rows))
    assert torch.equal(found_TE, expected_TE)
    assert first_layers.take(*step) == (None, None), "once"


@pytest.mark.parametrize(
    "step",
    [
        ([chunk(3, 3, (30, 32))], [Placed(TEXT[:4])]),
        ([chunk(3, 2, (31,))], [Placed(TEXT[:4])]),
        ([chunk(3, 3, (30, 31))], [Placed((5, 9, 2, 8))]),
        ([chunk(2, 4, (30, 31))], [Placed(TEXT[:4])]),
        ([chunk(4, 2, (31,))], [Placed(TEXT[:5])]),
        ([chunk(4, 3, (30, 31))], [Placed((5, 9, 2, 1, 7))]),
        ([chunk(3, 3, (30, 31), "b")], [Placed(TEXT[:4])]),
        (
            [chunk(3, 3, (30, 31)), chunk(0, 65, request_id="b")],
            [Placed(TEXT[:4]), Placed((1,) * 65, (tuple(range(5, 25)),))],
        ),
    ],
    ids=["last", "first", "own", "earlier", "later", "alike", "another", "too many lack theirs"],
)
def test_a_step_of_other_tokens_computes_all(
    two_layers: tuple[FirstLayers, Runner, Batcher], step: Step
) -> None:
    first_layers, _, _ = two_layers
    assert first_layers.take(*step) == (None, None)
    assert first_layers.take([chunk(3, 3, (30, 31))], [Placed(TEXT[:4])]) == (None, None)


def test_what_was_kept_can_be_forgotten(
    two_layers: tuple[FirstLayers, Runner, Batcher],
) -> None:
    first_layers, _, _ = two_layers
    first_layers.forget(SequenceId("b", 0))
    first_layers.forget(SequenceId("a", 0))
    assert first_layers.take([chunk(3, 3, (30, 31))], [Placed(TEXT[:4])]) == (None, None)
    assert first_layers.num_bytes >= 64 * 48 * 4


@pytest.mark.parametrize("failing", [1, 6, 11, 17, 24])
def test_a_draft_that_fails_ends_no_request(
    folders: Any, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that fails, be it in the pass over what lacks the first layers, ends its own."""
    folder = folders("qwen3, windows")
    expected = run(build(folder), 0)
    engine = build(folder, 1)
    executor = executor_of(engine)
    forward, launch, count = executor._runner.forward, executor.launch, itertools.count()
    planned: set[str] = set()
    failed: set[str] = set()

    def launch_planned(plan: StepPlan) -> LocalStep:
        planned.update(chunk.request_id for chunk in plan.chunks)
        step = launch(plan)
        planned.clear()
        return step

    def fail_once(
        batch: Batch, layers: range | None = None, stream_TE: Tensor | None = None
    ) -> Tensor:
        if next(count) == failing:
            failed.update(planned)
            raise RuntimeError("planted")
        return forward(batch, layers, stream_TE)

    monkeypatch.setattr(executor._runner, "forward", fail_once)
    monkeypatch.setattr(executor, "launch", launch_planned)
    found = run(engine, 0)
    same(found, expected, may_fail=True)
    assert next(count) > failing
    errors = {key[0] for key, one in found.items() if one.ending and one.ending[0] == "error"}
    assert errors == failed


def test_sequences_leave_nothing_behind(folders: Any) -> None:
    engine = build(folders("llama"), 1)
    run(engine, 0)
    (proposer,) = engine._scheduler.speculation._proposers
    assert isinstance(proposer, EarlyLayersProposer)
    assert not proposer._params
    assert not proposer._sampler._processors._occurrences
    assert not first_layers_of(engine)._kept


def test_a_rewind_that_fails_leaves_the_others_to_rewind(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build(folders("llama"), 1)
    (proposer,) = engine._scheduler.speculation._proposers
    sequences: list[Any] = [SimpleNamespace() for _ in range(3)]
    rewound: list[object] = []

    def fail(draft: Any) -> None:
        rewound.append(draft.sequence)
        raise RuntimeError("planted")

    monkeypatch.setattr(early_layers._Draft, "rewind", fail)
    monkeypatch.setattr(proposer, "_draft_params", lambda _: SamplingParams())
    with pytest.raises(RuntimeError, match="planted"):
        proposer.propose(sequences, [0, 0, 0])
    assert sorted(map(id, rewound)) == sorted(map(id, sequences))


# Refused


@pytest.mark.parametrize("num_layers", [-1, 0, 3, 4])
def test_the_range_of_early_layers_is_told(folders: Any, num_layers: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"from 1 to 2, as .* 3 layers, not {num_layers}$"):
        check_num_layers(num_layers, of=3)
    executor = executor_of(build(folders("llama")))
    with pytest.raises(InvalidRequest) as refused:
        FirstLayers(executor._batcher, executor._runner, num_layers=num_layers, num_tokens=24)
    assert refused.value.param == "speculative_early_layers"


def test_a_model_of_one_layer_has_no_early_ones() -> None:
    with pytest.raises(InvalidRequest, match="has 1 layer, and proposals need one less"):
        check_num_layers(1, of=1)
