"""The workspace of a plan is what a step's results reach in the kernels' arena, to the value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.shape import read_shape
from inferno.plan.workspace import token_extent
from inferno.quantization import INT8
from inferno.requests import Request
from inferno.sampling_params import SamplingParams
from tests.models.test_against_transformers import GPT_OSS
from tests.tiny import save_tiny

pytestmark = pytest.mark.skipif(
    not ops.has_kernels(torch.device("cpu"), INT8), reason="no kernels here"
)

FULL = 192
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "wide attention": (
        "qwen3",
        {"hidden_size": 64, "head_dim": 32, "intermediate_size": 192},
    ),
    "wide feed-forward": ("llama", {"hidden_size": 128, "intermediate_size": 352}),
    "narrow feed-forward": ("llama", {"hidden_size": 128, "intermediate_size": 128}),
    "mixture": (
        "qwen3_moe",
        {
            "hidden_size": 128,
            "head_dim": 64,
            "moe_intermediate_size": 48,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "a late layer without a mixture": (
        "qwen3_moe",
        {
            "num_hidden_layers": 5,
            "mlp_only_layers": [3],
            "hidden_size": 64,
            "intermediate_size": 512,
            "moe_intermediate_size": 48,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "gpt-oss": ("gpt_oss", dict(GPT_OSS)),
}


class Arena:
    """The addresses of results with so many rows, as the kernels' arena gave them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from inferno import _native  # noqa: PLC0415 - where it was compiled

        self.num_rows, self._bounds = 0, list[int]()
        empty = _native.empty

        def watched(shape: Sequence[int], dtype: int) -> Tensor:
            found: Tensor = empty(list(shape), dtype)
            if shape[0] == self.num_rows:
                self._bounds += [found.data_ptr(), found.data_ptr() + found.nbytes]
            return found

        monkeypatch.setattr(_native, "empty", watched)

    def extent(self, engine: Engine, num_tokens: int) -> float:
        """What a prompt of so many tokens reaches, in bytes for each."""
        self.num_rows = num_tokens
        self._bounds.clear()
        run(engine, num_tokens)
        return (max(self._bounds) - min(self._bounds)) / num_tokens


def run(engine: Engine, num_tokens: int) -> None:
    prompt = tuple(4 + place * 7 % 60 for place in range(num_tokens))
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    engine.add_request(Request(request_id=str(num_tokens), prompt_token_ids=prompt, params=params))
    while engine.has_work:
        engine.step()


def options(folder: Path, **given: Any) -> EngineOptions:
    return EngineOptions(
        model=folder,
        threads=1,
        num_blocks=64,
        max_num_seqs=2,
        max_num_batched_tokens=FULL,
        prefix_cache=False,
        step_target_ms=10_000,
        **given,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_extent_of_a_step_is_the_arenas(
    name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, sizes = SHAPES[name]
    save_tiny(tmp_path, kind, **sizes)
    engine = build_engine(options(tmp_path, dtype=dtype))
    arena = Arena(monkeypatch)
    decoder = read_shape(tmp_path).decoder
    expected = token_extent(decoder, 4 if dtype == "float32" else 2)
    assert arena.extent(engine, FULL) == pytest.approx(expected, abs=1)
    assert arena.extent(engine, FULL - 16) == pytest.approx(expected, abs=1)


def test_kernels_pack_so_many_rows_at_a_time(tmp_path: Path) -> None:
    kind, sizes = SHAPES["mixture"]
    save_tiny(tmp_path, kind, **sizes)
    given = {"max_num_seqs": 64, "graphs": False, "dtype": "float32"}
    options = [
        EngineOptions(model=tmp_path, max_num_batched_tokens=count, **given)  # type: ignore[arg-type]
        for count in (512, 1024, 2048)
    ]
    shape = read_shape(tmp_path)
    few, some, many = (make_plan(shape, each, 2**34).workspace for each in options)
    assert some - few == 512 * token_extent(shape.decoder, 4)
    assert many - some == 1024 * token_extent(shape.decoder, 4)


def test_one_of_the_two_arenas_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full steps are recorded, and have an arena of their own: it is let go of for other steps."""
    kind, sizes = SHAPES["narrow feed-forward"]
    save_tiny(tmp_path, kind, **sizes)
    engine = build_engine(options(tmp_path))
    released: list[int] = []
    executor: Any = engine._executor
    forward, release = executor._runner.forward, executor._kernels.release_memory

    class Kernels:
        """The engine's, whose releases are noted."""

        __enter__, __exit__ = executor._kernels.__enter__, executor._kernels.__exit__

        def release_memory(self) -> None:
            released.append(len(steps))
            release()

    steps: list[int] = []

    def noted(batch: Any, *others: Any) -> Tensor:
        steps.append(len(batch.token_ids_T))
        states: Tensor = forward(batch, *others)
        return states

    monkeypatch.setattr(executor, "_kernels", Kernels())
    monkeypatch.setattr(executor._runner, "forward", noted)
    for count in (FULL, FULL, 100, 101, 20, FULL):
        run(engine, count)
    assert steps == [FULL, FULL, 100, 101, 20, FULL]
    assert released == [0, 2, 5]
