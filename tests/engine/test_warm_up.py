"""Steps before any request: all usual sizes are run once, and leave nothing behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from inferno.client.wire import Loading
from inferno.demo import MODEL_FOLDERS
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution import static_batcher
from inferno.engine.process.serve import Link, LoadProgress
from inferno.engine.warm_up import (
    fullest_steps,
    num_blocks_of,
    telling_of_first_kernels,
    warm_up,
    warm_up_steps,
    wide_steps,
)
from inferno.errors import EngineError
from inferno.options import EngineOptions
from inferno.requests import Request, SamplingParams
from tests.engine.fake_device import Device, fake_device
from tests.engine.local import executor_of
from tests.engine.simulation import chunks_of

__all__ = ["fake_device"]  # a fixture


def options(**given: Any) -> EngineOptions:
    asked: dict[str, Any] = {"threads": 1, "num_blocks": 64, "max_model_len": 128, **given}
    return EngineOptions(model=MODEL_FOLDERS["demo"], **asked)


def sizes_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each step that the engine launches from now on."""
    found: list[int] = []
    executor = executor_of(engine)
    launch = executor.launch

    def note(plan: Any) -> Any:
        found.append(sum(chunk.num_tokens for chunk in chunks_of(engine._scheduler, plan)))
        return launch(plan)

    monkeypatch.setattr(executor, "launch", note)
    return found


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"max_num_seqs": 1}, [1]),
        ({"max_num_seqs": 6}, [1, 2, 4, 6]),
        ({"max_num_seqs": 8}, [1, 2, 4, 8]),
        ({"max_num_seqs": 20}, [1, 2, 4, 8, 12, 16, 20]),
    ],
)
def test_sizes_reach_from_one_sequence_to_all(given: dict[str, Any], sizes: list[int]) -> None:
    found = warm_up_steps(options(**given, max_num_batched_tokens=36), 128)
    prompts = [step.num_tokens for step in found if step.num_tokens > 1]
    steps = found[len(prompts) :]
    assert prompts == [36, 32, 16, 8, 4]
    assert [step.num_seqs for step in steps] == [
        *(size for size in sizes for _ in range(3)),
        *[1] * 4,
    ]
    assert {step.params.temperature for step in steps} == {0.0, 1.0}


@pytest.mark.parametrize("max_model_len", [1, 2, 3])
def test_a_tiny_context_is_no_obstacle(max_model_len: int) -> None:
    asked = options(max_model_len=max_model_len, max_num_seqs=2)
    engine = build_engine(asked)
    for steps in (warm_up_steps, wide_steps):
        warm_up(engine, steps(asked, engine.max_model_len))
    assert engine.occupancy.blocks_used == 0
    assert num_blocks_of(fullest_steps(asked, max_model_len), 16, 1) >= 1


def test_every_size_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = options(max_num_seqs=6, max_num_batched_tokens=32)
    engine = build_engine(asked)
    found = sizes_run(engine, monkeypatch)
    told: list[tuple[int, int]] = []
    warm_up(engine, warm_up_steps(asked, 128), lambda done, total: told.append((done, total)))
    assert found == [32, 16, 8, 4, *[1] * 3, *[2] * 3, *[4] * 3, *[6] * 3, *[1] * 6]
    assert told == [(done, 20) for done in range(21)]
    assert not engine.has_work
    assert engine.occupancy.blocks_used == 0


def test_tokens_come_about_in_every_way_that_has_kernels(
    fake_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws from all tokens, from a part, by masks; penalties beside a token that nobody read."""
    asked = options(max_num_seqs=2, max_num_batched_tokens=8)
    engine = build_engine(asked)
    found: set[tuple[str, bool]] = set()
    tabulate, penalize, argmax = (
        getattr(fake_device, name) for name in ("sampling_specs", "penalize", "argmax")
    )
    log_probabilities = fake_device.log_probabilities

    def note_specs(specs: Any, device: Any) -> Any:
        found.update(("cut", spec.top_k > 0 or spec.top_p < 1.0) for spec in specs)
        return tabulate(specs, device)

    def note_masks(*given: Any, **others: Any) -> Any:
        found.add(("masked", others.get("allowed_RW") is not None))
        return argmax(*given, **others)

    def note_penalties(logits: Any, rows: Any, penalties: Any, drawn: Any) -> None:
        found.update(("pending", each.pending_row is not None) for each in penalties)
        penalize(logits, rows, penalties, drawn)

    def note_told(*given: Any) -> Any:
        found.add(("told", True))
        return log_probabilities(*given)

    monkeypatch.setattr(fake_device, "sampling_specs", note_specs, raising=False)
    monkeypatch.setattr(fake_device, "argmax", note_masks, raising=False)
    monkeypatch.setattr(fake_device, "penalize", note_penalties)
    monkeypatch.setattr(fake_device, "log_probabilities", note_told, raising=False)
    warm_up(engine, warm_up_steps(asked, 128))
    both = {(name, is_so) for name in ("cut", "pending", "masked") for is_so in (False, True)}
    assert found == both | {("told", True)}


def test_the_fullest_steps_have_as_many_blocks_as_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = options(max_num_seqs=6, max_num_batched_tokens=40)
    steps = fullest_steps(asked, 128)
    engine = build_engine(options(max_num_seqs=6, num_blocks=num_blocks_of(steps, 16, 1)))
    found = sizes_run(engine, monkeypatch)
    warm_up(engine, steps)
    assert found == [40, 6]
    assert engine.occupancy.num_preemptions == 0


def test_graphs_of_all_sizes_and_widths_are_captured_at_the_start(
    fake_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards no step is captured, of short requests or of long ones, alone or together."""
    monkeypatch.setattr(static_batcher, "_LEAST_REACH", 32)  # then 128
    given: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 16}
    told: list[tuple[int, int]] = []
    engine = build_engine(
        options(**given, capture_graphs="start"), captures=lambda *done: told.append(done)
    )
    assert told == [(done, len(told) - 1) for done in range(len(told))]
    widths = {len(table) for table in graphs_of(engine)}
    assert widths == {2, 8}
    num_captures = fake_device.num_captures
    # Chunks of 2, 4, 8, 12 and 16 tokens, and 1, 2 or 4 sequences, with tables of both widths.
    assert num_captures == 2 * (5 + 3)
    texts = [run(engine, lengths) for lengths in ([3], [100], [5, 9, 30, 70])]
    assert fake_device.num_captures == num_captures
    assert fake_device.num_replays > 0
    engine.close()
    lazy = build_engine(options(**given))
    assert [run(lazy, lengths) for lengths in ([3], [100], [5, 9, 30, 70])] == texts
    lazy.close()


def test_tables_of_all_widths_are_tried_ahead(
    fake_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_batcher, "_LEAST_REACH", 32)  # then 128
    asked = options(max_num_seqs=4, max_num_batched_tokens=16)
    engine = build_engine(asked)
    warm_up(engine, wide_steps(asked, engine.max_model_len))
    sizes = {(size, width) for size, width, *_ in executor_of(engine)._runner._graphs}
    assert sizes == {(size, width) for size in (1, 4, 16) for width in (2, 8)}
    assert engine.occupancy.blocks_used == 0
    engine.close()


def graphs_of(engine: Engine) -> list[range]:
    """The blocks of the tables of each captured graph."""
    return [range(width) for _, width, *_ in executor_of(engine)._runner._graphs]


def run(engine: Engine, lengths: list[int]) -> dict[str, list[int]]:
    """The tokens that follow prompts of such lengths."""
    told: dict[str, list[int]] = {}
    for number, length in enumerate(lengths):
        ids = tuple((7 * number + place) % engine.vocab_size for place in range(length))
        params = SamplingParams(temperature=1.0, seed=number, max_tokens=5, ignore_eos=True)
        engine.add_request(Request(request_id=str(number), prompt_token_ids=ids, params=params))
        told[str(number)] = []
    while engine.has_work:
        for event in engine.step():
            told[event.request_id] += event.token_ids
    return told


def test_an_engine_whose_capture_fails_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EngineError("a step of the engine failed")

    monkeypatch.setattr("inferno.engine.build.warm_up", fail)
    with pytest.raises(EngineError, match="a step of the engine failed"):
        build_engine(options(capture_graphs="start"))


def test_recorded_steps_are_told_as_a_stage_of_loading() -> None:
    sent: list[Any] = []
    link = SimpleNamespace(num_turns=0, send=sent.append)
    progress = LoadProgress(cast(Link, link))
    progress(10, 10)
    progress.note_capture(3, 3)
    assert sent == [Loading(10, 10, "weights"), Loading(3, 3, "graphs")]


def test_a_step_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = options(max_num_seqs=2)
    engine = build_engine(asked)

    def fail(_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(executor_of(engine), "launch", fail)
    with pytest.raises(EngineError, match="memory ran out"):
        warm_up(engine, warm_up_steps(asked, 128))


def test_kernels_are_told_before_they_are_ready() -> None:
    knobs = pytest.importorskip("triton.knobs")
    jit = pytest.importorskip("triton.runtime.jit")
    told: list[tuple[str, int]] = []
    before = knobs.runtime.jit_cache_hook
    with telling_of_first_kernels("cuda:1", lambda *each: told.append(each)):
        for name in ("one_kernel", "another_kernel"):
            facts = jit.JitFunctionInfo("module", name, None)
            assert not knobs.runtime.jit_cache_hook(key="", fn=facts, already_compiled=False)
    assert told == [("one_kernel", 1), ("another_kernel", 2)]
    assert knobs.runtime.jit_cache_hook is before
    with telling_of_first_kernels("cpu", lambda *each: told.append(each)):
        assert knobs.runtime.jit_cache_hook is before


def test_a_kernel_that_is_compiled_counts_as_loading() -> None:
    """Else the parent would take a first start, which is silent for long, for a hanging one."""
    link = SimpleNamespace(num_turns=0)
    progress = LoadProgress(cast(Link, link))
    for count in (1, 2, 3):
        progress.note_kernel("a_kernel", count)
    assert link.num_turns == 3


def test_a_kernel_that_a_request_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    link = SimpleNamespace(num_turns=0)
    progress = LoadProgress(cast(Link, link))
    with caplog.at_level("INFO", logger="inferno"):
        progress.note_kernel("early_kernel", 1)
        progress.note_kernel("second_kernel", 2)
        progress.end()
        progress.note_kernel("late_kernel", 3)
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("making kernels ready")
    assert last.startswith("a step waits for late_kernel")
    assert link.num_turns == 3
