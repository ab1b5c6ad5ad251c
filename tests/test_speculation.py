"""What a caller sees with speculation and without: the same, but for times and counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from inferno import LLM, SamplingParams
from inferno.errors import InvalidRequest
from inferno.options import EngineOptions
from inferno.text.completion import Completion, Timings

TEXT = "The fox went to the river. The fox went to the river. The fox went"


@pytest.fixture(scope="module")
def plain() -> Iterator[LLM]:
    with LLM("demo", speculative="off") as llm:
        yield llm


@pytest.fixture(scope="module")
def speculating() -> Iterator[LLM]:
    with LLM("demo", speculative="ngram", num_speculative_tokens=7) as llm:
        yield llm


def told(completion: Completion) -> Completion:
    return replace(completion, timings=Timings(None, 0.0, None))


@pytest.mark.parametrize(
    "params",
    [
        {"stop": ["river."]},
        {"stop": ["t to the ri"], "include_stop_in_output": True},
        {"stop": ["\n", "went to"], "n": 3, "temperature": 0.7},
        {"logprobs": 2, "stop": ["The fox"]},
        {"max_tokens": 5},
        {"min_tokens": 20, "repetition_penalty": 1.2},
    ],
    ids=str,
)
def test_a_completion_is_the_same_to_its_last_token(
    plain: LLM, speculating: LLM, params: dict[str, Any]
) -> None:
    asked = SamplingParams(**{"max_tokens": 40, "temperature": 0.0, "seed": 1, **params})
    expected = plain.generate(TEXT, asked)
    found = speculating.generate(TEXT, asked)
    assert list(map(told, found)) == list(map(told, expected))


def test_a_completion_tells_who_proposed_how_many_tokens(plain: LLM, speculating: LLM) -> None:
    asked = SamplingParams(max_tokens=40, temperature=0.0)
    [completion] = speculating.generate(TEXT, asked)
    [counts] = completion.timings.proposals
    assert counts.name == "ngram"
    assert 0 < counts.num_stood <= counts.num_proposed
    assert plain.generate(TEXT, asked)[0].timings.proposals == ()


def test_a_stream_is_the_same_however_many_tokens_come_together(
    plain: LLM, speculating: LLM
) -> None:
    asked = SamplingParams(max_tokens=40, temperature=0.0, stop=["to the river. The"])

    def texts(llm: LLM) -> tuple[str, list[int]]:
        chunks = list(llm.stream(TEXT, asked))
        return "".join(each.text for each in chunks), [t for each in chunks for t in each.token_ids]

    assert texts(speculating) == texts(plain)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"speculative": "off", "speculative_model": "demo-draft"}, "speculative_model"),
        ({"speculative": "ngram", "speculative_early_layers": 1}, "speculative_early_layers"),
        (
            {"speculative_model": "demo-draft", "speculative_early_layers": 1},
            "speculative_early_layers",
        ),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens"),
        ({"num_speculative_tokens": "some"}, "num_speculative_tokens"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        EngineOptions(model=".", **options)  # type: ignore[arg-type]
    assert refused.value.param == param
