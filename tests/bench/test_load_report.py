"""Figures of known requests, against numpy and a pencil; and how they are told."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from inferno.bench.load import LoadResult, RequestResult
from inferno.bench.load_figures import figures
from inferno.bench.load_report import as_json, as_table
from tests.bench.loads import load_of


def one(
    begun: float, *arrivals: float, tokens: int | None = None, problem: str | None = None
) -> RequestResult:
    """Begun then, with text so many seconds later, and ended a second after the last."""
    moments = tuple(begun + each for each in arrivals)
    return RequestResult(
        begun=begun,
        ended=(moments[-1] if moments else begun) + 1.0,
        arrivals=moments,
        prompt_tokens=10,
        completion_tokens=tokens,
        problem=problem,
    )


def driven(*asked: RequestResult) -> LoadResult:
    return LoadResult(requests=asked, cpu_seconds=0.01, most_late=0.002)


TWO = driven(
    one(100.0, 1.0, 2.0, 4.0),  # ends at 105
    one(101.0, 3.0, 4.0, tokens=5),  # ends at 106
    one(103.0, 0.5, problem="status 503"),
    one(104.0, problem="status 503"),
)


def test_rates_are_of_what_succeeded_over_the_whole_time() -> None:
    found = figures(load_of(), TWO)
    assert found.seconds == 6.0
    assert (found.num_completed, found.num_failed) == (2, 2)
    assert found.errors == {"status 503": 2}
    assert (found.prompt_tokens, found.output_tokens) == (20, 3 + 5)
    assert found.requests_per_second == pytest.approx(2 / 6)
    assert found.output_tokens_per_second == pytest.approx(8 / 6)
    assert found.prompt_tokens_per_second == pytest.approx(20 / 6)
    assert found.client_cpu_per_token == pytest.approx(0.01 / 8)
    assert found.client_cpu_share == pytest.approx(0.01 / 6)
    assert found.first_token is not None
    assert (found.first_token.mean, found.first_token.p50) == (2.0, 2.0)
    assert found.between_tokens is not None
    assert found.between_tokens.mean == pytest.approx((1 + 2 + 1) / 3)
    assert found.total is not None
    assert found.total.mean == 5.0


@pytest.mark.parametrize("num", [1, 2, 3, 10, 101, 1000])
def test_percentiles_are_numpys(num: int) -> None:
    draw = random.Random(num)
    firsts = [draw.expovariate(1.0) for _ in range(num)]
    found = figures(load_of(), driven(*[one(0.0, first) for first in firsts])).first_token
    assert found is not None
    told = (found.p50, found.p90, found.p99, found.mean)
    expected = [*np.percentile(firsts, [50, 90, 99]), np.mean(firsts)]
    assert told == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "between", "num_good"),
    [
        (None, None, None),
        (1.0, None, 1),
        (3.0, None, 2),
        (0.9, None, 0),
        (None, 1.5, 2),
        (None, 1.0, 1),  # a mean of 1.5 from text to text, and of 0.25 from token to token
        (1.0, 1.0, 0),
        (3.0, 0.25, 1),
    ],
)
def test_a_good_request_is_within_every_bound(
    first: float | None, between: float | None, num_good: int | None
) -> None:
    load = load_of(first_token_bound=first, between_tokens_bound=between)
    found = figures(load, TWO)
    assert found.good_requests == num_good
    assert found.good_requests_per_second == (None if num_good is None else num_good / 6)


def test_a_load_that_failed_whole_has_figures_too() -> None:
    found = figures(load_of(), driven(one(0.0, problem="a"), one(0.0, problem="b")))
    assert (found.num_completed, found.num_failed) == (0, 2)
    assert found.first_token is found.between_tokens is found.total is None
    assert found.client_cpu_per_token is None
    table = as_table(load_of(), found, "http://it", width=80, is_terminal=False)
    assert "2 failed" in table


def test_the_table_tells_the_conditions_and_the_figures() -> None:
    load = load_of(request_rate=2.5, first_token_bound=3.0, spread=0.25, model="a/[model]", seed=7)
    found = figures(load, TWO)
    table = as_table(load, found, "http://it/v1", width=100, is_terminal=False)
    for said in (
        *("http://it/v1, completions", "a/[model]", "4 words in, up to 3 tokens out"),
        *("each varied by up to 25%", "2.5 a second, at random moments; seed 7"),
        *("2 in 6.00 s, 0.33 requests/s; 2 failed", "2 x status 503", "1.3 tokens/s"),
        *("goodput   0.33 requests/s: 2 of 1 first token within 3,000.0 ms", "first token"),
        *("p50", "p90", "p99", "between tokens", "whole request", "5,000.0 ms", "1250 us of CPU"),
    ):
        assert said in table, table
    assert table.isascii()
    assert "─" in as_table(load, found, "x", width=100, is_terminal=True)


def test_a_busy_client_is_said_to_be_one() -> None:
    busy = LoadResult(requests=TWO.requests, cpu_seconds=4.0, most_late=0.0)
    for seen, is_told in ((busy, True), (TWO, False)):
        found = figures(load_of(), seen)
        table = as_table(load_of(), found, "x", width=100, is_terminal=False)
        assert ("too busy to measure well" in table) is is_told


def test_json_tells_each_request() -> None:
    load = load_of(concurrency=3)
    told = json.loads(json.dumps(as_json(load, TWO, figures(load, TWO), "http://it")))
    assert (told["bench"], told["base_url"], told["concurrency"]) == ("serve", "http://it", 3)
    assert told["measured"]["total"]["p50"] == 5.0
    assert "Authorization" not in json.dumps(told)
    first, _, third, fourth = told["requests"]
    assert first == {
        "begun": 0.0,
        "first_token": 1.0,
        "total": 5.0,
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "problem": None,
    }
    assert (third["begun"], third["problem"]) == (3.0, "status 503")
    assert fourth["first_token"] is None
