"""With the compiled kernels a token has the same logits, bit for bit, in whatever schedule."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.compiled_kernels import why_not
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.ops.cpu.captured_graph import CallList
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.engine.wire import WiredExecutor
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no kernels: {why_not()}")

VOCAB_SIZE = 96
NUM_SCHEDULES = 4
WINDOWS = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}

# A model and how it is run.
CASES: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "llama, float32": ("llama", {}, {"dtype": "float32"}),
    "llama, bfloat16": ("llama", {}, {"dtype": "bfloat16"}),
    "qwen3, windows": ("qwen3", {"head_dim": 16, **WINDOWS}, {"dtype": "bfloat16"}),
    "qwen3, int8, int8 cache": (
        "qwen3",
        {"head_dim": 16},
        {"quantize": "int8", "kv_dtype": "int8"},
    ),
    "llama, int4": ("llama", {}, {"quantize": "int4"}),
    "qwen3_moe": ("qwen3_moe", {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2}, {}),
    "gpt_oss, mxfp4": ("gpt_oss", {}, {"dtype": "bfloat16"}),
    "qwen3, int8, bfloat16 activations": (
        "qwen3",
        {"head_dim": 16},
        {"quantize": "int8", "activations": "bfloat16"},
    ),
    "gpt_oss, mxfp4, bfloat16 activations": ("gpt_oss", {}, {"activations": "bfloat16"}),
}


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Mapping[str, Any]]:
    model_type, config, options = CASES[request.param]
    reason = ops.why_no_bfloat16_activations(torch.device("cpu"), torch.float32)
    if reason is not None and "activations" in options:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("model")
    if model_type == "gpt_oss":
        save_tiny_mxfp4(folder)
    else:
        save_tiny(folder, model_type, **config)
    return folder, options


def test_logits_have_the_same_bits_in_every_schedule(
    case: tuple[Path, Mapping[str, Any]],
) -> None:
    folder, options = case
    rng = random.Random(7)
    texts = [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(3, 90))] for _ in range(6)]
    alone = [run_alone(folder, options, text) for text in texts]
    for _ in range(NUM_SCHEDULES):
        for text, expected, found in zip(
            texts, alone, run_together(folder, options, texts, rng), strict=True
        ):
            assert torch.equal(expected, found), f"{(expected - found).abs().max()} on {len(text)}"


def test_full_steps_are_replayed_with_the_same_bits(
    case: tuple[Path, Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, options = case
    rng = random.Random(8)
    texts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (71, 150, 90, 209)]
    alone = [run_alone(folder, options, text) for text in texts]
    sizes: list[int] = []
    replay = CallList.replay

    def counting(graph: CallList) -> Tensor:
        result = replay(graph)
        sizes.append(len(result))
        return result

    monkeypatch.setattr(CallList, "replay", counting)
    engine = build_engine(
        EngineOptions(model=folder, num_blocks=64, threads=2, max_num_batched_tokens=70, **options)
    )
    for index, text in enumerate(texts):
        engine._executor.capture_logits(str(index), [len(text) - 1])
        add(engine, str(index), text, max_tokens=1)
    drain(engine)
    assert sizes.count(70) >= 5  # of 7 full steps, the first of which was recorded
    for index, expected in enumerate(alone):
        assert torch.equal(whole(engine, str(index)), expected)


def run_alone(folder: Path, options: Mapping[str, Any], text: list[int]) -> Tensor:
    engine = build_engine(EngineOptions(model=folder, num_blocks=64, threads=1, **options))
    return engine.logits(text, [len(text) - 1])


def run_together(
    folder: Path, options: Mapping[str, Any], texts: list[list[int]], rng: random.Random
) -> list[Tensor]:
    """All at once, in chunks, with too few blocks, after others that began alike.

    The executor has nothing but the bytes of plans.
    """
    engine = build_engine(
        EngineOptions(
            model=folder,
            threads=rng.choice((1, 2)),
            num_blocks=rng.choice((24, 64)),
            block_size=16,
            max_num_batched_tokens=rng.choice((1, 7, 33, 70, 512)),
            graphs=rng.random() < 0.3,
            **options,
        )
    )
    engine._executor = WiredExecutor(engine._executor)
    warm = rng.choice(texts)
    add(engine, "warm", warm[: rng.randint(1, len(warm))], max_tokens=4)
    drain(engine)
    order = list(range(len(texts)))
    rng.shuffle(order)
    for index in order:
        positions = range(len(texts[index]) - 1, len(texts[index]))
        engine._executor.capture_logits(str(index), positions)
        add(engine, str(index), texts[index], max_tokens=rng.randint(1, 12))
        for _ in range(rng.randint(0, 2)):
            engine.step()
    drain(engine)
    return [whole(engine, str(index)) for index in range(len(texts))]


def add(engine: Engine, request_id: str, prompt: list[int], max_tokens: int) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    engine.add_request(
        Request(request_id=request_id, prompt_token_ids=tuple(prompt), params=params)
    )


def drain(engine: Engine) -> None:
    while engine.has_work:
        engine.step()


def whole(engine: Engine, request_id: str) -> Tensor:
    return torch.stack(engine._executor.take_logits(request_id))
