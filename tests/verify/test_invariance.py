"""Schedules that change what a request gets are found, whoever of them mixes requests up."""

from __future__ import annotations

import random
from typing import Any

import pytest

from inferno.engine.sampling import sampler
from inferno.verify.outcome import Row
from inferno.verify.runs.schedules import NUM_NEW, _ScheduleObserver, draw_schedule, draw_texts
from tests.verify.faults import Plant, stale_block
from tests.verify.faults_schedules import (
    odd_logits,
    shared_block_tables,
    swapped_chances,
    swapped_logits,
    swapped_samples,
)
from tests.verify.planted import Folders
from tests.verify.tiny_models import verified


def invariance(folders: Folders, model: str, **options: object) -> Row:
    report = verified(folders[model], invariance=6, **options)
    failed = [row.number for row in report.rows if not row.passed]
    assert failed in ([], ["I"], ["13", "I"])  # a wrong draw fails by itself too
    return report.rows[-1]


@pytest.mark.parametrize("model", ["llama", "qwen3, windows", "mixtral"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_schedules_change_no_more_than_rounding_does(
    folders: Folders, model: str, dtype: str
) -> None:
    row = invariance(folders, model, dtype=dtype)
    assert row.passed, row.problems
    states, logits = row.findings[:2]
    assert "states that leave the model" in states
    assert "bit-identical" in logits


def test_a_window_of_one_token_takes_nothing_from_a_cache(folders: Folders) -> None:
    row = invariance(folders, "mistral, window of one")
    assert row.passed, row.problems


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (swapped_logits, "it was given the logits of "),
        (odd_logits, "is chosen by is off by "),
        (swapped_samples, "not the likeliest by its own logits; it was given the token of "),
        (swapped_chances, "drawn from the same logits"),
        (shared_block_tables, "what leaves the model at position "),
    ],
)
def test_requests_that_are_mixed_up_in_company_alone_fail(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, plant: Plant, said: str
) -> None:
    plant(monkeypatch)
    row = invariance(folders, "llama")
    assert not row.passed
    assert any(said in problem for problem in row.problems), row.problems
    assert all("requests, " in problem for problem in row.problems)


def test_a_stale_block_shows_in_schedules_too(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale_block(monkeypatch)
    row = verified(folders["llama"], invariance=6).rows[-1]
    assert "what leaves the model at position 4" in " ".join(row.problems)


def test_a_request_that_fails_alone_and_in_company_fails(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = sampler.result_of

    def result(row: Any, *peaks: Any) -> Any:
        refusal = sampler.Sampled(0, None, "no token is chosen")
        return refusal if row.sequence_id.request_id == "request 2" else right(row, *peaks)

    monkeypatch.setattr(sampler, "result_of", result)
    row = invariance(folders, "llama")
    assert "request 2: alone it fails after 0 new tokens: no token is chosen" in row.problems[0]


def test_rows_that_nobody_saw_are_no_proof(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ScheduleObserver, "see_logits", lambda *_: None)
    row = invariance(folders, "llama")
    assert row.problems == (
        "nothing was compared of logits that tokens are chosen by: none were seen",
    )


def test_texts_fit_the_context_and_share_parts_of_the_prompt() -> None:
    prompt = range(100, 140)
    for seed in range(50):
        texts = draw_texts(random.Random(seed), prompt, max_model_len=60)
        assert texts[0].token_ids == tuple(prompt)
        assert all(1 <= len(text.token_ids) <= 60 - NUM_NEW for text in texts)
        assert {text.is_drawn for text in texts} == {False, True}
        schedule = draw_schedule(random.Random(seed), texts, num_groups=2)
        assert texts[0] in schedule.texts
        assert len(set(schedule.texts)) == len(schedule.texts)
