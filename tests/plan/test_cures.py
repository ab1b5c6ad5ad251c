"""What is said to fit does, also where smaller weights and caches alone would not be enough."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_group

from inferno.cli.app import app
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.plan.memory import make_plan
from inferno.plan.report import cure_lines, cures
from inferno.plan.shape import ModelShape, read_shape
from tests.tiny import save_tiny

DEMO = MODEL_FOLDERS["demo"]
GB = 10**9


def found(shape: ModelShape, options: EngineOptions) -> list[str]:
    """The cures' options, with which each fits what the plan didn't."""
    plan = make_plan(shape, options, 20 * GB)
    assert not plan.fits
    flags = []
    for cure in cures(shape, options, plan):
        words = cure.flags.split()
        numbers: dict[str, Any] = {}
        for flag, value in zip(words[::2], words[1::2], strict=True):
            is_number = value.replace(".", "").isdigit()
            numbers[flag.removeprefix("--").replace("-", "_")] = (
                json.loads(value) if is_number else value
            )
        if "quantize" in numbers:
            numbers["dtype"] = "auto"
        assert make_plan(shape, replace(options, **numbers), 20 * GB).fits, cure.flags
        flags.append(cure.flags)
    return flags


def test_a_context_that_is_a_claim_is_shortened() -> None:
    shape = read_shape(DEMO)
    claimed = replace(shape, decoder=replace(shape.decoder, max_model_len=10**9))
    assert found(claimed, EngineOptions(model=DEMO)) == ["--max-model-len 2048"]


@pytest.mark.parametrize("command", ["generate", "plan", "serve"])
def test_commands_have_the_options_that_are_proposed(command: str) -> None:
    known = {opt for each in get_group(app).commands[command].params for opt in each.opts}
    shape = read_shape(DEMO)
    claimed = replace(shape, decoder=replace(shape.decoder, max_model_len=10**9))
    flags = [
        *found(claimed, EngineOptions(model=DEMO)),
        *found(shape, EngineOptions(model=DEMO, memory="300MB", preemption="swap")),
    ]
    proposed = {word for each in flags for word in each.split() if word.startswith("--")}
    assert {"--max-model-len", "--swap-space", "--preemption"} <= proposed <= known


def test_swap_space_is_lessened_or_left_out() -> None:
    options = EngineOptions(model=DEMO, memory="300MB", preemption="swap")
    flags = found(read_shape(DEMO), options)
    assert flags[0].startswith("--swap-space 0.0")
    assert flags[1] == "--preemption recompute"


def test_reductions_are_tried_together(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", hidden_size=1024, intermediate_size=2048, vocab_size=4096)
    shape = read_shape(tmp_path)
    options = EngineOptions(model=tmp_path, max_num_batched_tokens=2048)
    small = replace(
        options, quantize="int4", dtype="auto", max_num_seqs=4, max_num_batched_tokens=128
    )
    plan = make_plan(shape, small, None)
    bare = plan.total_bytes - plan.cache_bytes + 256 * plan.cache.token_bytes
    least = max(bare, plan.loading_bytes) + 10**6
    tight = replace(options, memory=f"{int(least * 1.03)}B")  # a cache leaves a part of a bound
    flags = found(shape, tight)
    assert flags
    assert all("--max-num-seqs 4 --max-num-batched-tokens 128" in each for each in flags)


@pytest.mark.parametrize("memory", ["100MB", "150MB"])
def test_nothing_helps_where_python_alone_takes_more(memory: str) -> None:
    shape, options = read_shape(DEMO), EngineOptions(model=DEMO, memory=memory)
    plan = make_plan(shape, options, 20 * GB)
    assert found(shape, options) == []
    assert "nothing that was tried" in next(cure_lines(shape, options, plan))
