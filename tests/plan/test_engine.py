"""An engine follows its plan: it sizes its cache, and refuses, with a table, what can't fit."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from inferno import machine
from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.engine.process import serve
from inferno.errors import InvalidRequest, NotEnoughMemory
from inferno.options import EngineOptions
from inferno.plan.memory import SERVER_CHILD_BYTES, SERVER_GROWTH_BYTES, make_plan
from inferno.plan.shape import read_shape
from tests.tiny import save_tiny

SMALL: dict[str, Any] = {"max_num_seqs": 2, "max_model_len": 64}


def options(path: Path = MODEL_FOLDERS["demo"], **given: Any) -> EngineOptions:
    return EngineOptions(model=path, **{**SMALL, **given})


@pytest.fixture
def own_memory(monkeypatch: pytest.MonkeyPatch) -> int:
    """What this process is taken to have, whatever other tests have left in it."""
    monkeypatch.setattr(machine, "own_memory", lambda: 200_000_000)
    return 200_000_000


def test_a_bound_sizes_the_cache(own_memory: int) -> None:
    wanted: dict[str, Any] = {"max_num_seqs": 64, "max_model_len": 1024, "dtype": "bfloat16"}
    whole = build_engine(options(memory="2GB", **wanted)).footprint
    part = build_engine(options(memory="230MB", **wanted)).footprint
    assert whole.kv_cache_bytes > part.kv_cache_bytes > 0
    assert own_memory + part.weights_bytes + part.kv_cache_bytes < 230e6


def test_a_bound_holds_a_server_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked when the engine starts, the server has less than it comes to have."""
    told: list[int] = []

    def build(*_: object, others: int, **__: object) -> NoReturn:
        told.append(others)
        raise InvalidRequest("enough")

    monkeypatch.setattr(serve, "own_memory", lambda process: 50_000_000)
    monkeypatch.setattr(serve, "build_engine", build)
    link: Any = SimpleNamespace(send=lambda message: None, faults=None)
    start: Any = SimpleNamespace(options=options(), num_starts=0)
    assert serve.serve(start, link) == 1
    assert told == [50_000_000 + SERVER_GROWTH_BYTES + 4 * SERVER_CHILD_BYTES]


def test_a_bounded_cache_leaves_what_plans_may_be_off() -> None:
    given = options(memory="400MB", max_num_seqs=256, max_model_len=1024)
    plan = make_plan(read_shape(given.model), given, 2**34)
    assert 0.975 < plan.total_bytes / 400e6 <= 0.98


def test_what_does_not_fit_a_bound_is_refused_with_the_table(own_memory: int) -> None:
    with pytest.raises(NotEnoughMemory) as refused:
        build_engine(options(memory="205MB"))
    message = str(refused.value)
    assert "doesn't fit in --memory 205MB" in message
    assert "weights, " in message
    assert "what would fit:" in message


def test_more_blocks_than_there_is_memory_for_are_refused(
    own_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 50_000_000)
    with pytest.raises(NotEnoughMemory, match="--num-blocks"):
        build_engine(options(num_blocks=10_000))


def test_a_plan_is_logged_beside_what_was_taken(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="inferno"):
        engine = build_engine(options())
        assert [record for record in caplog.records if record.message.startswith("planned ")]
        caplog.clear()
        engine.close()
    assert re.fullmatch(
        r"planned \S+ .B with all blocks of the KV cache written, took \S+ .B at the end",
        caplog.records[-1].message,
    )


def test_random_weights_are_planned_by_the_config(tmp_path: Path, own_memory: int) -> None:
    save_tiny(tmp_path, "gpt_oss", num_local_experts=4, num_experts_per_tok=2, head_dim=16)
    real = build_engine(options(tmp_path)).footprint
    dummy = build_engine(options(tmp_path, load_format="dummy")).footprint
    assert real.kv_cache_bytes == dummy.kv_cache_bytes


def test_a_bound_goes_with_the_cpu() -> None:
    with pytest.raises(InvalidRequest, match="memory bounds what a model takes on the CPU"):
        options(memory="8GB", device="cuda")


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_a_share_goes_with_a_gpu(device: str) -> None:
    with pytest.raises(InvalidRequest, match="goes with a CUDA device, not with device "):
        options(gpu_memory_utilization=0.5, device=device)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GB", 8 * 10**9), ("6.5GiB", 13 << 29), ("512 mib", 512 << 20), ("100B", 100)],
)
def test_a_bound_has_a_unit(text: str, count: int) -> None:
    assert options(memory=text).memory_bytes == count


@pytest.mark.parametrize("text", ["8", "8 G", "-1GB", "GB", "1e3GB", "8GBs"])
def test_a_bound_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="such as 8GB"):
        options(memory=text)
