"""The engine with gpt-oss: two groups of layers, one with a window, sinks, packed experts.

Whatever the schedule, greedy tokens are those that `transformers` generates for each prompt alone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from inferno import LLM
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.errors import NeverFits
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.mxfp4 import save_tiny_mxfp4
from tests.tiny import save_tokenizer

pytestmark = pytest.mark.usefixtures("reference_kernels")

WINDOW = 7
NUM_NEW = 24


class Saved:
    """A tiny checkpoint, and what `transformers` generates from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vocab_size = save_tokenizer(folder)
        self._model = save_tiny_mxfp4(
            folder,
            vocab_size=self.vocab_size,
            num_hidden_layers=3,  # of which two have a window
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=WINDOW,
            max_position_embeddings=512,
        )
        self._known: dict[tuple[int, ...], list[int]] = {}

    def generate(self, prompt: list[int], num_new: int = NUM_NEW) -> list[int]:
        """The greedy continuation of a prompt."""
        key = (num_new, *prompt)
        if key not in self._known:
            with torch.inference_mode():
                found = self._model.generate(
                    torch.tensor([prompt]),
                    do_sample=False,
                    max_new_tokens=num_new,
                    min_new_tokens=num_new,
                    eos_token_id=None,
                    pad_token_id=0,
                )
            self._known[key] = found[0, len(prompt) :].tolist()
        return self._known[key]

    def build(self, **options: Any) -> Engine:
        return build_engine(EngineOptions(model=self.folder, dtype="float32", **options))

    def prompts(self) -> list[list[int]]:
        """Texts of mixed lengths, some of which begin alike."""
        rng = random.Random(3)
        trunk = [rng.randrange(self.vocab_size) for _ in range(60)]
        others = [[rng.randrange(self.vocab_size) for _ in range(n)] for n in (1, 5, 33)]
        return [trunk[:50], trunk[:37] + others[1], *others, trunk]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("model"))


def run(
    engine: Engine, prompts: list[list[int]], num_new: int = NUM_NEW
) -> tuple[list[list[int]], int]:
    """All prompts in one batch: their new tokens, and how many tokens were found in the cache."""
    params = SamplingParams(temperature=0.0, max_tokens=num_new)
    for number, prompt in enumerate(prompts):
        engine.add_request(
            Request(request_id=str(number), prompt_token_ids=tuple(prompt), params=params)
        )
    found: list[list[int]] = [[] for _ in prompts]
    num_cached = num_steps = 0
    while engine.has_work:
        num_steps += 1
        assert num_steps < 5000, "the engine makes no progress"
        for event in engine.step():
            assert event.error is None
            found[int(event.request_id)] += event.token_ids
            num_cached += event.num_cached_tokens if event.finish_reason else 0
    pool = engine._scheduler._blocks.pool
    assert pool.num_available == pool.num_blocks, "a block was lost"
    return found, num_cached


@pytest.mark.parametrize(
    ("num_batched_tokens", "attention"),
    [(1, "flash"), (3, "reference"), (3, "flash"), (512, "reference"), (512, "flash")],
)
def test_any_chunking_gives_the_tokens_of_transformers(
    saved: Saved, num_batched_tokens: int, attention: str
) -> None:
    engine = saved.build(
        max_num_batched_tokens=num_batched_tokens, attention=attention, block_size=4
    )
    prompts = saved.prompts()
    assert run(engine, prompts)[0] == [saved.generate(prompt) for prompt in prompts]


@pytest.mark.parametrize("num_batched_tokens", [3, 512])
@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_preempted_requests_end_with_the_same_tokens(
    saved: Saved, preemption: str, prefix_cache: bool, num_batched_tokens: int
) -> None:
    prompts = [prompt[:20] for prompt in saved.prompts()]
    engine = saved.build(
        num_blocks=24,
        block_size=4,
        prefix_cache=prefix_cache,
        max_num_batched_tokens=num_batched_tokens,
        preemption=preemption,
        swap_space=0.01,
    )
    assert run(engine, prompts)[0] == [saved.generate(prompt) for prompt in prompts]
    assert engine._scheduler.num_preemptions > 0
    assert bool(engine.occupancy.num_swaps) == (preemption == "swap")


@pytest.mark.parametrize(("num_blocks", "least_cached"), [(400, 120), (48, 6)])
def test_cached_prefixes_serve_both_groups(
    saved: Saved, num_blocks: int, least_cached: int
) -> None:
    """In a small pool the window's blocks are evicted at other times than the others'."""
    engine = saved.build(num_blocks=num_blocks, block_size=4)
    rng = random.Random(5)
    prompts = saved.prompts()
    num_cached = 0
    for _ in range(8):
        chosen = rng.sample(prompts, k=rng.randrange(1, 4))
        chosen = [prompt[: rng.choice([10, 22, 48, 60])] for prompt in chosen]
        found, num_found = run(engine, chosen)
        num_cached += num_found
        assert found == [saved.generate(prompt) for prompt in chosen]
    assert num_cached >= least_cached


def test_the_window_group_gives_back_what_it_has_left(saved: Saved) -> None:
    """200 tokens are 50 blocks of each group, 100 in all; but the window holds three at most."""
    prompt = [random.Random(9).randrange(saved.vocab_size) for _ in range(100)]
    engine = saved.build(num_blocks=54, block_size=4, max_num_batched_tokens=4)
    assert run(engine, [prompt], num_new=101)[0] == [saved.generate(prompt, num_new=101)]
    assert engine._scheduler.num_preemptions == 0
    tight = saved.build(num_blocks=51, block_size=4, max_num_batched_tokens=4)
    with pytest.raises(NeverFits):
        run(tight, [prompt], num_new=101)


def test_samples_of_a_request_share_the_window_too(saved: Saved) -> None:
    prompt = saved.prompts()[0]
    engine = saved.build(num_blocks=200, block_size=4)
    params = SamplingParams(temperature=0.0, max_tokens=NUM_NEW, n=3)
    engine.add_request(Request(request_id="a", prompt_token_ids=tuple(prompt), params=params))
    found: list[list[int]] = [[], [], []]
    while engine.has_work:
        for event in engine.step():
            found[event.sequence_index] += event.token_ids
    assert found == [saved.generate(prompt)] * 3


def test_the_library_gives_the_same_text(saved: Saved) -> None:
    with LLM(saved.folder, dtype="float32", num_blocks=200, max_num_batched_tokens=5) as llm:
        prompts = ["Once upon a time", "a", "Two prompts in one batch, longer than any window"]
        params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        for completion in llm.generate(prompts, params):
            ids = list(completion.prompt_token_ids)
            assert list(completion.token_ids) == saved.generate(ids, num_new=8)
