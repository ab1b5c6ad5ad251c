"""docs/python-api.md names every public class, method, parameter and default."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import inferno
from inferno import LLM, AsyncLLM, SamplingParams, errors
from inferno.requests import FinishReason, TokenLogprobs
from inferno.text.completion import Chunk, Completion, Timings, Usage
from tests.docs.pages import PAGES, rows, section

PAGE = "docs/python-api.md"
RESULTS = (Completion, Chunk, Usage, Timings, TokenLogprobs)
ERRORS = [one for one in vars(errors).values() if isinstance(one, type)]
METHODS = [name for name, _ in inspect.getmembers(LLM, inspect.isfunction) if name[0] != "_"]


def table(heading: str) -> dict[str, list[str]]:
    """The rows under a heading by what their first cell quotes."""
    return {row[0].strip("`"): row[1:] for row in rows(section(PAGE, heading))}


@pytest.mark.parametrize("name", inferno.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert f"`{name}`" in PAGES[PAGE]


@pytest.mark.parametrize("kind", [LLM, SamplingParams])
def test_every_parameter_has_its_default_and_a_meaning(kind: type) -> None:
    documented = table(f"## {kind.__name__}")
    parameters = inspect.signature(kind).parameters
    for name, parameter in parameters.items():
        default, meaning = documented.pop(name)
        shown = default.strip("`").replace('"', "'")
        # What a dataclass makes anew each time has no repr of its own in the signature.
        is_made = dataclasses.is_dataclass(kind) and name == "logit_bias"
        assert shown == ("{}" if is_made else repr(parameter.default)), name
        assert meaning
    unknown = [name for name in documented if name[0].islower() and "." not in name]
    assert not unknown, f"{PAGE} names {unknown}"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_parameters_and_defaults(method: str) -> None:
    text = section(PAGE, f"### llm.{method}")
    shown = text[: text.index("->")]
    parameters = list(inspect.signature(getattr(LLM, method)).parameters.values())[1:]
    for parameter in parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        default = parameter.default
        default = f'"{default}"' if isinstance(default, str) else default
        expected = f"{parameter.name}={default}" if has_default else parameter.name
        assert expected in shown
    assert shown.count(",") == max(0, len(parameters) - 1) + ("*" in shown)
    assert any(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters) == (
        "*" in shown
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name != "as_completed"])
def test_coroutines_have_every_method_with_the_same_parameters(method: str) -> None:
    ours = inspect.signature(getattr(AsyncLLM, method)).parameters
    assert list(ours.values()) == list(inspect.signature(getattr(LLM, method)).parameters.values())


def test_coroutines_have_every_attribute_and_are_documented(tiny_llm: LLM) -> None:
    found = {name for name in dir(tiny_llm) if name[0] != "_"} - {"as_completed"}
    assert {name for name in dir(AsyncLLM) if name[0] != "_"} == found | {"start"}
    text = section(PAGE, "## AsyncLLM")
    differs = {"start", "generate", "chat", "stream", "stream_chat", "encode_chat", "logits"}
    for name in differs | {"close"}:
        assert f"`{name}" in text
    assert inspect.signature(AsyncLLM) == inspect.signature(LLM)


def test_every_attribute_of_llm_is_there(tiny_llm: LLM) -> None:
    found = {name for name in dir(tiny_llm) if name[0] != "_"} - set(METHODS)
    documented = {name.removeprefix("llm.") for name in table("## LLM") if name.startswith("llm.")}
    assert found == documented


@pytest.fixture(scope="module")
def tiny_llm() -> LLM:
    return LLM("demo", threads=1, num_blocks=4)


@pytest.mark.parametrize("kind", RESULTS)
def test_every_attribute_of_a_result_is_there(kind: type) -> None:
    assert list(table(f"## {kind.__name__}"))[1:] == list(inspect.signature(kind).parameters)


def test_every_reason_to_finish_is_there() -> None:
    assert list(table("## FinishReason"))[1:] == [str(reason) for reason in FinishReason]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_there_with_its_kind(kind: type) -> None:
    if kind is not errors.InfernoError:
        assert table("## Errors")[kind.__name__][0] == f"`{kind.__mro__[1].__name__}`"
