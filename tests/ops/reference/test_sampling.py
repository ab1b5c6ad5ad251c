"""The reference's draw where its public face can't tell which way it went."""

from __future__ import annotations

import pytest
import torch

from inferno.ops import DrawRule, reference
from inferno.ops.reference import sampling

CPU = torch.device("cpu")


@pytest.mark.parametrize("num_candidates", [1, 2, 7, 60, 299, 300])
def test_the_number_of_candidates_that_are_tried_first_changes_nothing(
    num_candidates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    logits_RV = (torch.randn(40, 300) * 6).round() / 6  # many ties
    rules = [
        DrawRule(1.0, top_k=7, top_p=1.0, min_p=0.0),
        DrawRule(1.0, top_k=100, top_p=1.0, min_p=0.0),
        DrawRule(1.0, top_k=0, top_p=0.5, min_p=0.0),
        DrawRule(1.0, top_k=100, top_p=0.4, min_p=0.0),
    ]
    peak_R, _ = reference.largest(logits_RV)
    grouped = reference.draw_rules(rules * 10, CPU)
    uniform_R = torch.rand(40, dtype=torch.float64)

    def drawn() -> list[int]:
        out = torch.full((40,), -1)
        return reference.draw(logits_RV, peak_R, grouped, uniform_R, out=out).tolist()

    usual = drawn()
    monkeypatch.setattr(sampling, "_NUM_CANDIDATES", num_candidates)
    assert drawn() == usual


@pytest.mark.parametrize("number", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize("vocab_size", [5, 256, 300, 1000])
def test_the_ends_of_the_random_range_give_tokens_that_are_possible(
    number: float, vocab_size: int
) -> None:
    torch.manual_seed(vocab_size)
    logits_RV = torch.randn(2, vocab_size)
    logits_RV[:, [0, -1]] = -torch.inf
    rules = [DrawRule(1.0, 0, 1.0, 0.0), DrawRule(1.0, vocab_size - 3, 1.0, 0.0)]
    peak_R, out = logits_RV.amax(1), torch.full((2,), -1)
    uniform_R = torch.full((2,), number, dtype=torch.float64)
    grouped = reference.draw_rules(rules, CPU)
    any_token, likely_token = reference.draw(logits_RV, peak_R, grouped, uniform_R, out=out)
    assert 0 < any_token < vocab_size - 1
    assert likely_token in logits_RV[1].argsort(descending=True)[: vocab_size - 3]
