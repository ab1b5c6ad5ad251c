"""Prompt lookup, against a search by brute force; memory, salts, and what a step indexes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno.engine.proposers import ngram
from inferno.engine.proposers.ngram import NgramProposer
from inferno.engine.scheduling.sequence import SequenceState
from tests.engine.proposers.sequences import sequence


def propose(proposer: NgramProposer, text: SequenceState, most: int = 1) -> list[int]:
    (proposed,) = proposer.propose([text], [most])
    return list(proposed)


def written(proposer: NgramProposer, output: Sequence[int], cache_salt: str = "") -> None:
    """Let a sequence write an output and end, and a step begin."""
    text = sequence([0], output, cache_salt=cache_salt)
    proposer.forget(text)
    proposer.propose([], [])


def test_what_followed_the_last_tokens_before_is_proposed() -> None:
    text = sequence([1, 2, 3, 4, 5, 6, 7, 8], [2, 3, 4])
    assert propose(NgramProposer(), text, 3) == [5, 6, 7]


def test_the_latest_place_counts() -> None:
    text = sequence([1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2, 3])
    proposer = NgramProposer()
    assert propose(proposer, text) == [5]
    text.token_ids += [6, 1, 2, 3]
    assert propose(proposer, text) == [6]


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("failing", range(6))  # tables of a prompt, an output, and a longer one
def test_memory_that_runs_out_leaves_nothing_behind(
    failing: int, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table, calls = ngram._new_table, count()

    def fail(num_slots: int) -> memoryview[int]:
        if next(calls) == failing:
            raise MemoryError
        return new_table(num_slots)

    proposer, text = NgramProposer(), sequence([1, 2, 3, 4, 5], [9] * 300)
    with monkeypatch.context() as scarce:
        scarce.setattr(ngram, "_new_table", fail)
        with pytest.raises(MemoryError):
            propose(proposer, text)
    if goes_on:
        text.token_ids += [2, 3, 4]
        assert propose(proposer, text) == [5]
    proposer.forget(text)
    assert not proposer._prompts
    assert proposer._num_bytes == 0


def test_new_tokens_find_nothing() -> None:
    assert propose(NgramProposer(), sequence([1, 2, 3, 4, 5])) == []


def test_a_repetition_is_continued_beyond_its_end() -> None:
    text = sequence([9], [1, 2] * 8)
    assert propose(NgramProposer(), text, 9) == [1, 2, 1, 2, 1, 2, 1, 2, 1]


def test_the_longer_the_match_the_more_is_proposed() -> None:
    sizes = [
        len(propose(NgramProposer(), sequence([*range(100)], [*range(50, 50 + length)]), 100))
        for length in (2, 3, 5, 20)
    ]
    assert sizes == sorted(set(sizes))


@settings(deadline=None)
@given(
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    output=st.lists(st.integers(0, 3), max_size=60),
    cuts=st.sets(st.integers(0, 60)),
)
def test_each_proposal_continues_the_latest_place_or_follows_the_one_before(
    prompt: list[int], output: list[int], cuts: set[int]
) -> None:
    """By brute force, whatever number of tokens came at a time, where no places share a slot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram, "_SLOTS", 1 << 16)
        compare_with_brute_force(prompt, output, cuts)


def compare_with_brute_force(prompt: list[int], output: list[int], cuts: set[int]) -> None:
    proposer, text = NgramProposer(most_bytes=1 << 40), sequence(prompt)
    followed: int | None = None  # the place of the token expected next
    for end in sorted({*cuts, len(output)}):
        new = output[len(text.token_ids) - len(prompt) : end]
        text.token_ids += new
        ids = text.token_ids
        if followed is not None:
            followed += len(new)
            goes_on = followed < len(ids) and ids[followed - len(new) : followed] == new
            # A text ends where it is another's beginning: the prompt, before the output.
            was_in_prompt = followed - len(new) < len(prompt)
            if not goes_on or (was_in_prompt and followed >= len(prompt)):
                followed = None
        if followed is None:
            followed = longest_of_latest(ids, len(prompt))
        proposed = propose(proposer, text)
        assert proposed == ([] if followed is None else [ids[followed]])


def longest_of_latest(ids: list[int], num_prompt: int) -> int | None:
    """Search backwards: of three tokens in output and prompt, whichever matches for longer."""
    found: list[tuple[int, int]] = []
    for size in (3, 2):
        if found or len(ids) < 3:
            break
        for low, high in ((max(num_prompt, 3), len(ids)), (3, num_prompt)):
            places = [e for e in range(low, high) if ids[e - size : e] == ids[-size:]]
            if places:
                found.append((common(ids[: places[-1]], ids) if size == 3 else 0, places[-1]))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many last tokens of both are equal, up to 16."""
    length = 0
    while length < min(16, len(left), len(right)) and left[-1 - length] == right[-1 - length]:
        length += 1
    return length


def test_what_was_written_lately_is_found() -> None:
    proposer = NgramProposer()
    written(proposer, [1, 2, 3, 4, 5, 6])
    assert propose(proposer, sequence([7, 8], [2, 3, 4]), 4) == [5, 6]
    assert propose(proposer, sequence([7, 8, 3, 4])) == [], "two tokens are too few among others"


def test_what_another_salt_wrote_is_not_found() -> None:
    proposer = NgramProposer()
    written(proposer, [1, 2, 3, 4, 5, 6], "a")
    for salt in ("", "b", "A"):
        assert propose(proposer, sequence([7], [2, 3, 4], cache_salt=salt)) == []
    assert propose(proposer, sequence([7], [2, 3, 4], cache_salt="a")) == [5]


def test_outputs_are_told_apart() -> None:
    """The end of one and the beginning of the next never meet in a proposal."""
    proposer = NgramProposer()
    written(proposer, [1, 2, 3, 4])
    written(proposer, [5, 6, 7, 8])
    assert propose(proposer, sequence([0], [1, 2, 3]), 9) == [4]
    assert propose(proposer, sequence([0], [2, 3, 4]), 9) == []
    assert propose(proposer, sequence([0], [3, 4, 5]), 9) == []


def test_the_end_of_an_output_hides_nothing() -> None:
    proposer = NgramProposer()
    written(proposer, [5, 1, 2, 3])
    written(proposer, [5, 6, 7, 8])
    assert propose(proposer, sequence([9, 9, 2, 3, 7], [1, 2, 3])) == [7]


def test_prompts_are_nobody_elses() -> None:
    proposer = NgramProposer()
    text = sequence([1, 2, 3, 4, 5, 6], [9])
    propose(proposer, text)
    proposer.forget(text)
    assert propose(proposer, sequence([0], [2, 3, 4])) == []


def test_a_cleared_proposer_keeps_what_was_written_and_no_sequence() -> None:
    proposer = NgramProposer()
    written(proposer, [1, 2, 3, 4, 5, 6])
    empty = proposer.num_bytes
    text = sequence([0], [2, 3, 4])
    propose(proposer, text)
    proposer.clear()
    assert proposer.num_bytes == empty
    assert propose(proposer, text) == [5]


@settings(deadline=None)
@given(
    outputs=st.lists(
        st.tuples(st.sampled_from(["", "a", "b"]), st.lists(st.integers(0, 5), max_size=20)),
        max_size=12,
    ),
    tail=st.lists(st.integers(0, 5), min_size=3, max_size=5),
)
def test_whatever_is_found_was_written_under_the_same_salt(
    outputs: list[tuple[str, list[int]]], tail: list[int]
) -> None:
    proposer = NgramProposer()
    for salt, output in outputs:
        written(proposer, output, salt)
    proposed = propose(proposer, sequence([9], tail, cache_salt="a"), 8)
    own = [output for salt, output in outputs if salt == "a"]
    if not own_repetition([9, *tail]):
        expected = any(
            contains(output, [*tail[-3:], token]) for output in own for token in range(6)
        )
        # An output's last tokens may have hidden an earlier place: then there is none.
        assert bool(proposed) <= expected
        assert not proposed or any(contains(output, [*tail[-3:], *proposed]) for output in own)


def own_repetition(ids: list[int]) -> bool:
    return any(ids[e - 2 : e] == ids[-2:] for e in range(3, len(ids)))


def contains(text: list[int], part: list[int]) -> bool:
    return any(text[i : i + len(part)] == part for i in range(len(text) - len(part) + 1))


@pytest.mark.parametrize("salts", [[""], [str(i) for i in range(300)]], ids=["one", "many"])
def test_memory_is_bounded_and_the_latest_stays(salts: list[str]) -> None:
    generator = random.Random(1)
    proposer = NgramProposer(most_bytes=400_000)
    num_found = 0
    for number in range(600):
        output = [generator.randrange(50_000) for _ in range(generator.randrange(4, 400))]
        salt = salts[number % len(salts)]
        written(proposer, output, salt)
        assert proposer.num_bytes <= 100_000
        text = sequence([0], output[:3], cache_salt=salt)
        num_found += propose(proposer, text) == [output[3]]
        proposer.clear()
    assert num_found >= 450, "but for places that share a slot with a later one"


def test_an_output_that_is_written_again_takes_no_room() -> None:
    proposer = NgramProposer()
    output = random.Random(1).sample(range(50_000), 1000)
    written(proposer, output)
    size = proposer.num_bytes
    for _ in range(20):
        written(proposer, output)
    assert proposer.num_bytes == size


def test_what_ends_while_nobody_asks_takes_bounded_memory_and_the_latest_is_found() -> None:
    generator = random.Random(1)
    proposer = NgramProposer(most_bytes=400_000)
    for _ in range(600):
        output = [generator.randrange(50_000) for _ in range(100)]
        proposer.forget(sequence([0], output))
        assert proposer.num_bytes <= 100_000
    for _ in range(2):  # steps, each of which takes in some
        proposer.propose([], [])
        assert proposer.num_bytes <= 100_000
    assert propose(proposer, sequence([0], output[:3])) == [output[3]]


def test_outputs_too_short_to_be_found_are_not_kept() -> None:
    proposer = NgramProposer()
    for length in (0, 1, 3):
        for _ in range(100):
            proposer.forget(sequence([0], range(length)))
    assert not proposer._unread


def test_running_sequences_take_bounded_memory_and_give_it_back() -> None:
    generator = random.Random(1)
    proposer = NgramProposer(most_bytes=400_000)
    texts = [
        sequence([generator.randrange(50_000) for _ in range(900)], request_id=str(number))
        for number in range(30)
    ]
    for _ in range(60):
        proposer.propose(texts, [4] * len(texts))
        assert proposer.num_bytes <= 400_000
        for text in texts:
            text.token_ids += [generator.randrange(50_000) for _ in range(20)]
    for text in texts:
        del text.token_ids[text.num_prompt_tokens :]
        proposer.forget(text)
    assert proposer.num_bytes == 0


def test_a_long_prompt_is_found_after_some_steps_and_sequences_share_it() -> None:
    prompt = random.Random(1).sample(range(200_000), 100_000)
    texts = [sequence(prompt, prompt[99_000:99_004], request_id="a") for _ in range(2)]
    proposer = NgramProposer()
    assert propose(proposer, texts[0]) == [], "it isn't looked through in one step"
    size = proposer.num_bytes
    for _ in range(60):
        proposer.propose(texts, [2, 2])
    assert proposer.propose(texts, [1, 1]) == [[prompt[99_004]]] * 2
    assert proposer.num_bytes < 1.1 * size


def test_few_places_are_lost_to_others_in_the_tables() -> None:
    prompt = random.Random(1).sample(range(200_000), 4000)
    proposer = NgramProposer()
    num_found = 0
    for first in range(0, 3900, 39):
        text = sequence(prompt, prompt[first : first + 3], request_id=str(first))
        num_found += propose(proposer, text) == [prompt[first + 3]]
        proposer.forget(text)
    assert num_found >= 95
