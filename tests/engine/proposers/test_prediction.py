"""The client's prediction: proposed from its beginning, and found again after an edit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno.engine.proposers.prediction import PredictionProposer
from tests.engine.proposers.sequences import sequence


def write(prediction: Sequence[int], output: Sequence[int], most: int = 16) -> tuple[int, int, int]:
    """Let a model write an output; return steps, proposed tokens and those that stood."""
    proposer = PredictionProposer()
    text = sequence([1, 2, 3], prediction=prediction)
    num_steps = num_proposed = num_stood = 0
    written = 0
    while written < len(output):
        (proposed,) = proposer.propose([text], [min(most, max(1, len(output) - written - 1))])
        assert len(proposed) <= most
        stood = 0
        while stood < len(proposed) and output[written + stood : written + stood + 1] == [
            proposed[stood]
        ]:
            stood += 1
        text.token_ids += output[written : written + stood + 1]
        written += stood + 1
        num_steps += 1
        num_proposed += len(proposed)
        num_stood += stood
    proposer.forget(text)
    assert proposer.num_bytes == 0
    return num_steps, num_proposed, num_stood


def test_the_prediction_is_proposed_from_its_beginning() -> None:
    proposer = PredictionProposer()
    text = sequence([1, 2], prediction=[5, 6, 7, 8])
    assert [list(each) for each in proposer.propose([text], [3])] == [[5, 6, 7]]
    text.token_ids += [5, 6]
    assert [list(each) for each in proposer.propose([text], [9])] == [[7, 8]]


def test_who_predicts_nothing_gets_nothing() -> None:
    proposer = PredictionProposer()
    text = sequence([1, 2, 3], [4])
    assert [list(each) for each in proposer.propose([text], [3])] == [[]]
    proposer.forget(text)


def test_a_right_prediction_takes_the_fewest_steps() -> None:
    output = random.Random(1).sample(range(1000), 170)
    assert write(output, output, most=16) == (10, 160, 160)


def test_a_wrong_prediction_proposes_little() -> None:
    generator = random.Random(1)
    prediction = [generator.randrange(50_000) for _ in range(500)]
    output = [generator.randrange(50_000) for _ in range(500)]
    _, num_proposed, _ = write(prediction, output, most=16)
    assert num_proposed <= 20


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([], [901, 902, 903]),
        ([30, 31, 32], []),
        ([30], [901]),
        ([*range(30, 50)], [*range(900, 915)]),
    ],
    ids=["insertion", "deletion", "replacement", "long replacement"],
)
def test_an_edit_costs_a_few_steps(old: list[int], new: list[int]) -> None:
    prediction = [*range(100)]
    output = [*range(30), *new, *range(30 + len(old), 100)]
    num_steps, _, num_stood = write(prediction, output, most=100)
    assert num_steps <= 5 + len(new)
    assert num_stood >= 100 - len(old) - 4


def test_parts_in_another_order_are_found() -> None:
    first, second = [*range(100)], [*range(100, 200)]
    _, _, num_stood = write(first + second, second + first)
    assert num_stood >= 180


def test_text_before_the_answer_leaves_the_prediction_where_it_is() -> None:
    thoughts = random.Random(1).sample(range(1000, 2000), 200)
    prediction = [*range(200)]
    _, _, num_stood = write(prediction, thoughts + prediction)
    assert num_stood >= 180


@given(st.data())
def test_after_any_edits_most_of_what_is_left_stands(data: st.DataObject) -> None:
    """Each edit of a text without repetitions costs at most four tokens."""
    prediction = random.Random(data.draw(st.integers(0, 9))).sample(range(1000), 300)
    edits = data.draw(st.integers(0, 5))
    output = list(prediction)
    fresh = iter(range(1000, 2000))
    for number in range(edits):
        place = number * 60 + data.draw(st.integers(0, 40))
        num_old, num_new = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
        start = output.index(prediction[place])
        output[start : start + num_old] = [next(fresh) for _ in range(num_new)]
    num_kept = len(set(output) & set(prediction))
    num_steps, num_proposed, num_stood = write(prediction, output, most=16)
    num_fresh = len(output) - num_kept
    assert num_stood >= num_kept - num_kept // 17 - 4 * edits - 1
    assert num_steps <= num_kept // 17 + num_fresh + 4 * edits + 1
    assert num_proposed <= num_stood + 17 * (edits + num_fresh + 1)


def test_sequences_of_a_request_read_on_their_own() -> None:
    proposer = PredictionProposer()
    texts = [sequence([1], prediction=[5, 6, 7, 8, 9], request_id="a") for _ in range(2)]
    proposer.propose(texts, [1, 1])
    texts[0].token_ids += [5, 6]
    texts[1].token_ids += [7]
    assert [list(each) for each in proposer.propose(texts, [2, 2])] == [[7, 8], [8, 9]]
    proposer.forget(texts[0])
    texts[1].token_ids += [8]
    assert [list(each) for each in proposer.propose(texts[1:], [2])] == [[9]]
    proposer.forget(texts[1])
    proposer.forget(texts[1])


def test_one_prediction_is_looked_through_in_a_step() -> None:
    proposer = PredictionProposer()
    texts = [
        sequence([1], [99], prediction=[*range(4), 99, 50], request_id=str(number))
        for number in range(3)
    ]
    found = [sum(map(len, proposer.propose(texts, [1] * 3))) for _ in range(3)]
    assert found == [1, 1, 1] or found == [1, 2, 3]
    proposer.clear()
    assert proposer.num_bytes == 0
