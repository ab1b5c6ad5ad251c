"""How many proposals pay, against all ways to choose."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import product

import pytest

from inferno.engine.scheduling.acceptance import Candidate, Rate, Trials, choose


def expected_tokens(rate: float, length: int) -> float:
    return sum(rate**depth for depth in range(1, length + 1))


def speed(
    candidates: list[Candidate], lengths: Iterable[int], streams: int, fixed: float, token: float
) -> float:
    """Return the tokens a second of a step that costs `fixed`, and `token` for each token."""
    lengths = list(lengths)
    tokens = streams + sum(
        expected_tokens(each.rate, length) for each, length in zip(candidates, lengths, strict=True)
    )
    seconds = fixed + token * (streams + sum(lengths))
    for name in {each.proposer for each in candidates} - {None}:
        own = [
            (each.pass_seconds, length)
            for each, length in zip(candidates, lengths, strict=True)
            if each.proposer == name
        ]
        seconds += own[0][0] * max(length for _, length in own)
    return tokens / seconds


def chosen(
    candidates: list[Candidate], streams: int, fixed: float, token: float, most: int = 100
) -> list[int]:
    def seconds(positions: Iterable[int]) -> Iterator[float]:
        now = fixed + token * streams
        yield now
        for _ in positions:
            now += token
            yield now

    return choose(candidates, streams, seconds, most)


@pytest.mark.parametrize("seed", range(40))
def test_the_lengths_give_the_most_tokens_a_second(seed: int) -> None:
    rng = random.Random(seed)
    candidates = [
        Candidate(rng.choice([0.05, 0.3, 0.6, 0.9, 0.99]), rng.randint(0, 4), 10)
        for _ in range(rng.randint(1, 4))
    ]
    streams, fixed, token = len(candidates) + rng.randint(0, 3), 1.0, rng.choice([0.01, 0.1, 0.5])
    ways = product(*(range(each.most + 1) for each in candidates))
    best = max(speed(candidates, way, streams, fixed, token) for way in ways)
    found = speed(candidates, chosen(candidates, streams, fixed, token), streams, fixed, token)
    none = speed(candidates, [0] * len(candidates), streams, fixed, token)
    assert found == pytest.approx(best) or (found == none and best <= 1.03 * none)


@pytest.mark.parametrize("seed", range(40))
def test_passes_of_a_model_count_once_for_all_its_sequences(seed: int) -> None:
    rng = random.Random(seed)
    each_pass, rate = rng.choice([0.05, 0.2, 0.6]), rng.choice([0.3, 0.6, 0.9])
    candidates = [Candidate(rate, 4, 10, "model", each_pass) for _ in range(rng.randint(1, 4))]
    streams, fixed, token = len(candidates), 1.0, rng.choice([0.01, 0.1])
    ways = product(*(range(each.most + 1) for each in candidates))
    best = max(speed(candidates, way, streams, fixed, token) for way in ways)
    found = speed(candidates, chosen(candidates, streams, fixed, token), streams, fixed, token)
    assert found >= best / 1.03


def test_nothing_is_proposed_where_it_hardly_pays() -> None:
    assert chosen([Candidate(0.5, 8, 10)], 1, fixed=1.0, token=0.9) == [0]
    assert chosen([Candidate(0.5, 8, 10)], 1, fixed=1.0, token=0.1) != [0]


def test_a_step_has_at_most_so_many_proposals() -> None:
    candidates = [Candidate(0.9, 50, 10), Candidate(0.99, 50, 10)]
    lengths = chosen(candidates, 2, fixed=1.0, token=0.0001, most=30)
    assert sum(lengths) == 30
    assert lengths[1] > lengths[0]


def test_beside_prompts_a_proposal_is_worth_what_it_costs_there() -> None:
    candidates = [Candidate(0.8, 8, 10)]
    cheap = choose(candidates, 1, lambda positions: [1.0, *(1.0 for _ in positions)], 8, 0.0)
    dear = choose(candidates, 1, lambda positions: [1.0, *(1.0 for _ in positions)], 8, 0.15)
    assert cheap == [8]
    assert 0 < dear[0] < 8


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_rate_is_learnt(rate: float) -> None:
    rng = random.Random(1)
    learnt = Rate()
    for _ in range(2000):
        stood = 0
        while stood < 4 and rng.random() < rate:
            stood += 1
        learnt.learn(4, stood)
    assert learnt.estimate() == pytest.approx(rate, abs=0.06)


def test_who_fails_is_tried_ever_more_rarely_and_who_stands_soon_again() -> None:
    trials = Trials()
    waits = []
    for _ in range(10):
        trials.learn(4, 0, length=100)
        waits.append(trials.next_trial - 100)
    assert waits == [16, 32, 64, 128, 256, 512, 512, 512, 512, 512]
    trials.learn(4, 1, length=100)
    assert trials.next_trial == 108


def test_nothing_is_proposed_where_a_step_is_expected_to_take_no_time() -> None:
    """So it is where only long prompts were seen: the last tokens have all of the price."""
    candidates = [Candidate(0.8, 8, 10)]
    assert choose(candidates, 1, lambda positions: [0.0, *(0.0 for _ in positions)], 8) == [0]
