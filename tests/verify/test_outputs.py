"""Tokens are judged by the gap between logits: a tie within rounding passes, a real one fails."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from inferno.engine.scheduling.limits import Limits
from inferno.verify.checks.layers import mask_problem, passed_over
from inferno.verify.checks.measures import Tolerances
from inferno.verify.checks.outputs import Generated, output_rows
from inferno.verify.outcome import Row
from tests.verify.planted import Folders
from tests.verify.tiny_models import verified

ALLOWED = 0.01
TRUTH = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 2.999], [0.0, 5.0, 1.0], [2.0, 0.0, 1.0]])


def rows(logits: Tensor, new_ids: list[int]) -> dict[str, Row]:
    found, expected = ({"hidden": x, "logits": x} for x in (logits, TRUTH))
    allowed = Tolerances(dtype=torch.float32, relative=ALLOWED / 5, noise={})  # 5: the largest
    generated = Generated(num_prompt=len(TRUTH) - len(new_ids) + 1, new_ids=new_ids)
    found_rows = output_rows(
        found, expected, generated, allowed, 1, lambda ids: f"text {list(ids)}"
    )
    return {row.number: row for row in found_rows}


def with_likeliest(position: int, token: int) -> Tensor:
    logits = TRUTH.clone()
    logits[position, token] = logits[position].max() + 0.001
    return logits


def test_equal_logits_pass_everywhere() -> None:
    found = rows(TRUTH, [1, 0])
    assert [*found] == ["8", "9", "10", "11", "12"]
    assert all(row.passed for row in found.values())
    assert "4 of 4 positions agree" in found["10"].findings
    assert found["12"].findings == ("2 of 2 tokens equal: 'text [1, 0]'",)


def test_another_token_of_nearly_equal_logit_is_a_tie() -> None:
    found = rows(with_likeliest(1, 2), [1, 0])
    assert found["10"].passed
    assert found["10"].findings[0] == "3 of 4 positions agree"
    found = rows(with_likeliest(1, 2), [2, 1, 0])  # and so it is when it was generated
    assert found["12"].passed
    assert found["12"].findings[0].startswith("0 of 3")


def test_another_likeliest_token_is_told_with_its_gap() -> None:
    found = rows(with_likeliest(2, 0), [0, 0])
    assert found["10"].problems == ("position 2: token 0 instead of 1, whose logit is 5 higher",)
    assert found["12"].problems == (
        "new token 0 is 0, where the oracle has 1: their logits are 5 apart",
    )


def test_a_token_that_is_not_the_engines_own_likeliest_is_the_samplers_fault() -> None:
    assert "by the engine's own logits" in rows(TRUTH, [1, 2])["12"].problems[0]


@pytest.mark.parametrize("num_off", [-2, 1])
def test_another_number_of_tokens_than_was_asked_for_is_told(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, num_off: int
) -> None:
    right = Limits.max_length
    monkeypatch.setattr(Limits, "max_length", lambda *args: right(*args) + num_off)
    report = verified(folders["llama"])
    assert report.first_failure is not None
    assert report.first_failure.number == "12"
    said = f"the engine ends after {16 + num_off} new tokens, and is to give 16"
    assert report.first_failure.problems == (said,)


def test_probabilities_move_by_half_of_what_logits_may() -> None:
    logits = TRUTH.clone()
    logits[:, 0] += 0.009
    found = rows(logits, [1, 0])
    assert found["8"].passed
    assert found["11"].passed
    logits[:, 0] += 0.1
    assert not rows(logits, [1, 0])["11"].passed


def test_a_key_that_should_be_hidden_is_named() -> None:
    due = torch.tensor([[[0.0, -math.inf, -math.inf], [0.0, 0.0, -math.inf], [-math.inf, 0, 0]]])
    seen = due.clone()
    seen[0, 2, 0] = 1.0
    assert mask_problem(due, due) == ""
    assert mask_problem(seen, due) == "position 2 sees keys 0 to 2, and should see keys 1 to 2"


def test_an_expert_may_be_passed_over_only_within_rounding() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.7], [3.0, 1.0, 0.7]])
    chosen = torch.tensor([[True, True, False], [True, False, True]])
    assert passed_over(chosen, logits, 0.2) == ""
    problem = passed_over(chosen, logits, 0.01)
    assert "position 1" in problem
    assert "0.3" in problem
