"""An unknown parameter is answered with the one that is meant, whatever it is called elsewhere."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import inferno.async_llm
import inferno.llm
from inferno import LLM, AsyncLLM, SamplingParams
from inferno.parameters import ABSENT, OURS


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("demo", threads=1, num_blocks=256) as llm:
        yield llm


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (
            "max_new_tokens",
            r"SamplingParams\(\) has no parameter `max_new_tokens`: it is called `max_t",
        ),
        ("num_return_sequences", "it is called `n` here"),
        ("max_token", "did you mean `max_tokens`"),
        ("tempreature", "did you mean `temperature`"),
        ("max_new_token", "did you mean `max_tokens`"),
        ("guided_json", "StructuredOutput"),
        ("do_sample", "`temperature=0.0`"),
        ("tensor_parallel_size", "one `device`"),
        ("dtype", r"give LLM\(\.\.\., dtype="),
        ("gpu_memory_utilization", r"give LLM\(\.\.\., gpu_memory_utilization="),
        ("wobble", "it has `allowed_token_ids`, `bad_words`"),
    ],
)
def test_sampling_params_name_what_is_meant(name: str, answer: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=answer):
        SamplingParams(**given)


@pytest.mark.parametrize("kind", [LLM, AsyncLLM])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tensor_parallel_size", "a model runs on one `device`"),
        ("torch_dtype", "it is called `dtype` here"),
        ("trust_remote_code", "never runs a model's own code"),
        ("n_ctx", "it is called `max_model_len` here"),
        ("max_new_tokens", r"params=SamplingParams\(max_tokens="),
        ("temperature", r"params=SamplingParams\(temperature="),
        ("max_model_length", "did you mean `max_model_len`"),
        ("temprature", r"did you mean params=SamplingParams\(temperature="),
        ("wobble", "it has `activations`, `allow_unknown_config`"),
    ],
)
def test_models_name_what_is_meant(kind: type, name: str, answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        kind("demo", **{name: 1})


@pytest.mark.parametrize("method", ["generate", "as_completed", "stream", "chat", "stream_chat"])
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("sampling_params", "it is called `params` here"),
        ("temperature", r"params=SamplingParams\(temperature="),
        ("max_new_tokens", r"params=SamplingParams\(max_tokens="),
        ("quantize", r"give LLM\(\.\.\., quantize="),
        ("lora_request", "adapters"),
        ("guided_json", "StructuredOutput"),
        ("prority", "did you mean `priority`"),
        ("temprature", r"did you mean params=SamplingParams\(temperature=\.\.\.\)\?"),
        ("max_new_token", r"did you mean params=SamplingParams\(max_tokens="),
        ("quantise", r"did you mean LLM\(\.\.\., quantize="),
        ("tensor_paralel_size", "did you mean `tensor_parallel_size`.*one `device`"),
    ],
)
def test_calls_name_what_is_meant(llm: LLM, method: str, name: str, answer: str) -> None:
    with pytest.raises(TypeError, match=rf"^LLM\.{method}\(\) has no parameter `{name}`.*{answer}"):
        getattr(llm, method)("a", **{name: 1})
    if hasattr(AsyncLLM, method):
        with pytest.raises(TypeError, match=answer):
            getattr(AsyncLLM("demo"), method)("a", **{name: 1})


def test_a_prompt_and_prompts_are_told_apart(llm: LLM) -> None:
    with pytest.raises(TypeError, match="it is called `prompt` here"):
        llm.stream(input_ids=[1])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="it is called `prompts` here"):
        llm.generate(input_ids=[1])  # type: ignore[call-arg]


def test_every_name_of_the_tables_has_an_answer() -> None:
    assert not OURS.keys() & ABSENT.keys()
    for name in (*OURS, *ABSENT):
        given: dict[str, Any] = {name: 1}
        for taker in (LLM, SamplingParams):
            with pytest.raises(TypeError) as caught:
                taker(**given)
            assert "it has `" not in str(caught.value) or name not in ABSENT


@pytest.mark.parametrize("kind", [LLM, AsyncLLM, SamplingParams])
def test_signatures_stay_what_they_are(kind: Callable[..., Any]) -> None:
    parameters = inspect.signature(kind).parameters
    assert "self" not in parameters
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())
    assert inspect.signature(LLM.generate).parameters["priority"].default == 0


def test_the_examples_in_docstrings_work(llm: LLM) -> None:
    names = {"llm": llm, "SamplingParams": SamplingParams}
    for module in (inferno.llm, inferno.async_llm):
        found = doctest.testmod(module, extraglobs=names)
        assert found.attempted > 2
        assert not found.failed


def test_params_show_what_was_asked() -> None:
    params = SamplingParams(temperature=0, stop="x", logit_bias={3: 1}, n=2)
    assert repr(params) == (
        "SamplingParams(temperature=0.0, logit_bias={3: 1.0}, stop=('x',), n=2)"
    )
    assert eval(repr(params)) == params
    assert repr(SamplingParams()) == "SamplingParams()"


def test_models_and_completions_show_what_they_are(llm: LLM) -> None:
    dtype = llm.footprint.dtype  # by what the processor computes
    assert repr(llm) == f"LLM('demo', device='cpu', dtype={dtype!r}, max_model_len=1024)"
    [done] = llm.generate([list(range(5, 200))], SamplingParams(temperature=0.0, max_tokens=300))
    shown = repr(done)
    assert shown.startswith("Completion(prompt_index=0, sequence_index=0, text=")
    assert "finish_reason=" in shown
    assert f"tokens=195+{len(done.token_ids)}" in shown
    assert len(shown) < 400
