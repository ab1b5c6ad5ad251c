"""SamplingParams: what is in range is taken, everything else refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from inferno.errors import InvalidRequest
from inferno.requests import SamplingParams
from inferno.sampling_params import RepetitionDetection
from inferno.structured import StructuredOutput

NOT_NUMBERS: list[Any] = ["1", None, True, [1], math.nan, math.inf, -math.inf, 10**400, 1 + 0j]
NOT_INTEGERS: list[Any] = ["1", True, 1.0, [1], math.nan, 2**70, -(2**70), 10**5000]
RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "temperature": ([0, 0.7, 2, 5e-324, 100], [-0.1, 101, *NOT_NUMBERS]),
    "top_k": ([0, 1, 10**6], [-1, 0.01, None, *NOT_INTEGERS]),
    "top_p": ([0, 1e-9, 0.5, 1], [-0.1, 1.01, *NOT_NUMBERS]),
    "min_p": ([0, 0.5, 1.0], [-0.1, 1.1, *NOT_NUMBERS]),
    "repetition_penalty": ([0.5, 1, 2.5], [0, -1, 101, *NOT_NUMBERS]),
    "presence_penalty": ([-2, 0, 2.0], [-2.1, 2.1, *NOT_NUMBERS]),
    "frequency_penalty": ([-2, 0, 2.0], [-2.1, 2.1, *NOT_NUMBERS]),
    "max_tokens": ([None, 0, 1, 2**31 - 1], [-1, 2**31, *NOT_INTEGERS]),
    "min_tokens": ([0, 5], [-1, 257, None, *NOT_INTEGERS]),
    "seed": ([None, 0, -(2**63), 2**63 - 1], [2**63, -(2**63) - 1, 1e30, *NOT_INTEGERS]),
    "n": ([1, 128], [0, -1, 129, 10**9, None, *NOT_INTEGERS]),
    "logprobs": ([None, 0, 20], [-1, 21, *NOT_INTEGERS]),
    "logprob_token_ids": (
        [()],  # others need logprobs
        [[-1], [2**31], [1.0], [True], "12", None, 3, range(129), [1, 1], [1]],
    ),
    "repetition_detection": (
        [None, RepetitionDetection(max_pattern_size=256, min_count=1024)],
        [True, 3, {"max_pattern_size": 2, "min_count": 2}],
    ),
    "prompt_logprobs": ([None, 0, 20], [-1, 21, *NOT_INTEGERS]),
    "thinking_token_budget": ([None, 0, 1, 5000], [-1, *NOT_INTEGERS]),
    "ignore_eos": ([True, False], [0, 1, None, "yes"]),
    "skip_special_tokens": ([True, False], [0, None]),
    "include_stop_in_output": ([True, False], [0, None]),
    "stop": (
        ["a", ["a", "b"], (), ["x" * 512]],
        ["", [""], ["x" * 513], ["a"] * 17, [1], None, 5, {"a": 1}, ["a\ud83d"]],
    ),
    "bad_words": ([["a"], ()], ["a", [""], [3], ["a"] * 129, None, ["\udfff"]]),
    "stop_token_ids": (
        [[0, 5], (), range(1 << 18)],
        [[-1], [2**31], [1.0], [True], "12", None, 3, range(10**6)],
    ),
    "allowed_token_ids": (
        [None, [3], range(1 << 18)],
        [[], [-1], [2**40], ["1"], "12", 3, [7] * 10**6],
    ),
    "prediction": (
        [None, "", "a text"],
        [3, b"a text", ["a"], {"type": "content"}, True, "a\ud83d"],
    ),
    "structured": (
        [None, StructuredOutput(json_object=True)],
        ["json", {"json_object": True}, True],
    ),
    "logit_bias": (
        [{}, {3: -100}, {3: 1.5}],
        [
            {"3": 1},
            {-1: 1},
            {3: math.nan},
            {3: math.inf},
            {3: 101},
            {3: True},
            {True: 1},
            [3],
            None,
            dict.fromkeys(range(10**6), 1.0),
        ],
    ),
}
GOOD = [(name, value) for name, (good, _) in RANGES.items() for value in good]
BAD = [(name, value) for name, (_, bad) in RANGES.items() for value in bad]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_values_in_range_are_taken(name: str, value: Any) -> None:
    assert SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: str(type(value).__name__))
def test_values_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=name) as problem:
        SamplingParams(**{name: value})
    assert problem.value.param == name
    assert len(str(problem.value)) < 300


def test_every_field_has_its_ranges_tested() -> None:
    assert set(SamplingParams.__dataclass_fields__) == set(RANGES)


def test_given_collections_are_copied_so_that_later_changes_do_no_harm() -> None:
    stop, ids, bias = ["a"], [1], {2: 1.0}
    params = SamplingParams(stop=stop, stop_token_ids=ids, logit_bias=bias)
    stop.append("b")
    ids.append(7)
    bias[9] = 2.0
    assert (params.stops, params.stop_token_ids, dict(params.logit_bias)) == (
        ("a",),
        (1,),
        {2: 1.0},
    )
    assert replace(params, seed=3).stops == ("a",)
