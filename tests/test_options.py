"""Tests of inferno.options: the tables, and that all that follows from them does."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from inferno import LLM
from inferno.cli.options import options_of
from inferno.cli.serve import serve
from inferno.errors import InvalidRequest
from inferno.llm import EngineKeywords
from inferno.option_table import OptionRow, table
from inferno.options import EngineOptions, ServerOptions, WorkerOptions

WORKER = {"worker_id": "w", "callback_url": "http://127.0.0.1:9/", "device": "cpu"}
NEEDED: dict[type, dict[str, Any]] = {
    EngineOptions: {"model": Path("m")},
    ServerOptions: {},
    WorkerOptions: WORKER,
}
ROWS = [(kind, row) for kind in NEEDED for row in table(kind).values()]


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=lambda each: getattr(each, "name", ""))
def test_help_is_a_sentence(kind: type, row: OptionRow) -> None:
    assert row.facts.help[0].isupper() or row.facts.help.startswith(("cpu, ", "dummy: "))
    assert row.facts.help.endswith(".")


@pytest.mark.parametrize(
    ("kind", "row"),
    [(kind, row) for kind, row in ROWS if row.kind in (int, float)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_numbers_are_held_to_their_bounds(kind: type, row: OptionRow) -> None:
    low, high = row.facts.low, row.facts.high
    assert low is not None
    assert high is not None
    of_cuda = ("cuda_device", "gpu_memory_utilization")
    needed = NEEDED[kind] | ({"device": "cuda"} if row.name in of_cuda else {})
    needed |= {"device": "metal"} if row.name == "metal_device" else {}
    for inside in (low, high):
        assert getattr(kind(**{**needed, row.name: inside}), row.name) == inside
    for outside in (low - 1, high + 1, True, "1", float("nan")):
        with pytest.raises(InvalidRequest) as refused:
            kind(**{**needed, row.name: outside})
        name = row.name if kind is EngineOptions else row.flag
        assert str(refused.value).startswith(f"{name} must be ")
        assert str(refused.value).endswith(f", not {outside!r}")
        assert refused.value.param == row.name


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (EngineOptions, {"dtype": "int3"}, "dtype must be one of auto, float32"),
        (EngineOptions, {"device": "tpu"}, "device must be cpu, cuda, cuda:N or mps, not 'tpu'"),
        (EngineOptions, {"device": "cuda:01"}, "device must be cpu, cuda, cuda:N or mps"),
        (EngineOptions, {"device": "cuda:\u0663"}, "device must be cpu, cuda, cuda:N or mps"),
        (WorkerOptions, {"device": "cuda:01"}, "--device must be cpu, cuda, cuda:N or metal"),
        (EngineOptions, {"prefix_cache": 1}, "prefix_cache must be true or false, not 1"),
        (EngineOptions, {"step_target_ms": "fast"}, "step_target_ms must be auto, or a number"),
        (EngineOptions, {"threads": 1.5}, "threads must be an integer from 1 to 1024, not 1.5"),
        (ServerOptions, {"allowed_hosts": "a"}, "--allowed-host must be host names without"),
        (ServerOptions, {"allowed_hosts": ("a:80/",)}, "--allowed-host must be host names"),
        (ServerOptions, {"ssl_certfile": "x"}, "--ssl-certfile must be of type Path"),
        (WorkerOptions, {"worker_id": ""}, "--worker-id must be 1 to 128 letters"),
        (WorkerOptions, {"cuda_device": 1}, "--cuda-device 1 goes with --device cuda"),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    kind: type, values: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        kind(**{**NEEDED[kind], **values})
    assert str(refused.value).startswith(expected)


def test_what_llm_takes_are_the_engines_options_with_their_defaults() -> None:
    rows = dict(table(EngineOptions))
    assert get_type_hints(EngineKeywords) == {name: row.hint for name, row in rows.items()}
    shown = inspect.signature(LLM).parameters
    assert {name: shown[name].default for name in rows} == {
        name: row.default for name, row in rows.items()
    }
    assert set(shown) - set(rows) == {"model", "revision", "progress", "captures"}


@pytest.mark.parametrize("kind", [EngineOptions, ServerOptions])
def test_a_command_that_is_given_nothing_says_the_defaults(kind: type) -> None:
    parameters = inspect.signature(serve).parameters.values()
    untouched = {each.name: each.default for each in parameters}
    untouched |= {"step_target_ms": "auto", "engine_timeout": None}  # as typer reads `auto`
    said = options_of(kind, untouched)
    assert kind(**NEEDED[kind], **said) == kind(**NEEDED[kind])
    absent = {row.name for row in table(kind).values()} - set(said)
    assert absent == (
        {"device"}
        if kind is EngineOptions
        else {"served_model_names", "allowed_hosts", "cors_origins", "log_format"}
    )


def test_a_path_may_be_a_text_in_python() -> None:
    given: Any = "mine.jinja"
    assert EngineOptions(model=Path(), chat_template=given).chat_template == Path("mine.jinja")
    given = 5
    with pytest.raises(InvalidRequest, match="chat_template must be of type Path"):
        EngineOptions(model=Path(), chat_template=given)


def test_a_former_value_works_with_a_warning() -> None:
    with pytest.warns(
        DeprecationWarning, match="attention='naive' is called attention='reference' now"
    ):
        options = EngineOptions(model=Path(), attention="naive")
    assert options.attention == "reference"


def test_former_names_on_the_command_line_are_told(caplog: pytest.LogCaptureFixture) -> None:
    said = options_of(EngineOptions, {"attention": "naive", "no_graphs": False, "eager": True})
    assert said == {"attention": "reference", "graphs": False}
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "--attention naive is called --attention reference now",
        "--eager is called --no-graphs now",
    ]


@pytest.mark.parametrize("given", [{"graphs": False}, {"attention": "flash"}])
def test_nothing_is_captured_at_the_start_where_nothing_is_ever(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="capture_graphs is 'start', and"):
        EngineOptions(model=Path(), capture_graphs="start", **given)
