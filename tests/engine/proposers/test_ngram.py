"""Prompt lookup: what followed the same tokens before."""

from __future__ import annotations

from inferno.engine.proposers.ngram import NgramProposer
from tests.engine.proposers.sequences import sequence


def test_what_followed_the_last_tokens_before_is_proposed() -> None:
    text = sequence([1, 2, 3, 4, 5, 6, 7, 8], [2, 3, 4])
    assert NgramProposer().propose([text], [3]) == [[5, 6, 7]]


def test_the_latest_place_counts() -> None:
    text = sequence([1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2, 3])
    proposer = NgramProposer()
    assert proposer.propose([text], [2]) == [[5, 0]]
    text.token_ids += [6, 1, 2, 3]
    assert proposer.propose([text], [2]) == [[6, 1]]


def test_new_tokens_find_nothing() -> None:
    assert NgramProposer().propose([sequence([1, 2, 3, 4, 5])], [2]) == [()]
