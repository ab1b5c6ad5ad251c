"""What the embedded models are taught is true to itself: facts, sums, grammar."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import islice

import pytest
from demo_about import about_inferno, from_the_tables
from demo_corpus import Kind, documents
from demo_exchange import Exchange
from demo_facts import simple_fact, single_fact, yes_or_no
from demo_grammar import words
from demo_languages import other_language
from demo_properties import property_question, size_question
from demo_relations import RELATIONS
from demo_split import canonical
from demo_story_talk import short_story, story_talk
from demo_sums import (
    comparison,
    one_digit,
    sum_in_a_row,
    three_numbers,
    two_digits,
    word_problem,
)
from demo_talk import jokes, small_talk
from demo_turns import not_told
from demo_unknown import unknown

_EQUATION = re.compile(r"(-?\d+) ([-+*/]) (\d+) = (-?\d+)")
_NUMBER_WORDS = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": int.__floordiv__,
}
_SIGNS = {
    "+": r"\+|plus|and|added|add|sum",
    "-": r"-|minus|take|less|subtract",
    "*": r"\*|times|x|multiply|product",
    "/": r"/|divided|divide|over",
}


def draw(kind: Kind, number: int = 2000) -> list[Exchange]:
    rng = random.Random(f"{kind.__name__} of the tests")
    return [exchange for _ in range(number) for exchange in kind(rng)]


def answers(number: int = 3000) -> list[str]:
    """What the model would say in as many documents."""
    drawn = islice(documents(random.Random("tests")), number)
    return [piece.text.removesuffix("<|end|>") for d in drawn for piece in d if piece.is_learned]


@pytest.mark.parametrize(
    "kind",
    [one_digit, two_digits, three_numbers, sum_in_a_row, word_problem],
    ids=lambda k: k.__name__,
)
def test_every_equation_in_an_answer_is_right(kind: Kind) -> None:
    for exchange in draw(kind):
        equations = _EQUATION.findall(exchange.answer)
        assert equations
        for a, sign, b, result in equations:
            assert _OPERATIONS[sign](int(a), int(b)) == int(result), exchange


@pytest.mark.parametrize("kind", [one_digit, two_digits], ids=lambda k: k.__name__)
def test_the_answer_is_to_the_sum_that_was_asked(kind: Kind) -> None:
    for exchange in draw(kind):
        asked = exchange.question.lower()
        for number in reversed(range(21)):
            asked = re.sub(rf"\b{_NUMBER_WORDS[number]}\b", str(number), asked)
        a, sign, b, _ = _EQUATION.findall(exchange.answer)[-1]
        numbers = re.findall(r"\d+", asked)
        is_turned = re.search(r"subtract|take \d+ away|add \d+ to", asked) is not None
        expected = numbers[::-1] if is_turned and "add" not in asked else numbers
        assert [a, b] == expected, exchange
        assert re.search(_SIGNS[sign], asked), exchange


def test_comparisons_are_right() -> None:
    for exchange in draw(comparison):
        answer = exchange.answer
        if found := re.search(r"(\d+) is (bigger|smaller) than (\d+)", answer):
            a, b = int(found[1]), int(found[3])
            assert (a > b) == (found[2] == "bigger"), exchange
            says_yes = re.match(r"Is (\d+) \w+ than (\d+)", exchange.question)
            assert not says_yes or answer.startswith("Yes" if a > b else "No"), exchange
        elif found := re.fullmatch(r"(\d+) is (even|odd)\.", answer):
            assert (int(found[1]) % 2 == 0) == (found[2] == "even"), exchange
        elif found := re.fullmatch(r"(Twice|Half of) (\d+) is (\d+)\.", answer):
            a, b = int(found[2]), int(found[3])
            assert (a * 2, a)[found[1] == "Half of"] == (b, b * 2)[found[1] == "Half of"], exchange
        else:
            pytest.fail(f"{exchange} is no comparison")


def test_a_check_says_what_is_so() -> None:
    said = {exchange.question: exchange.answer for exchange in draw(yes_or_no, 20_000)}
    for question, answer in {
        "Is the sky blue?": "Yes, the sky is blue.",
        "Is snow green?": "No, snow is white.",
        "Is Paris the capital of France?": "Yes, the capital of France is Paris.",
        "Does an ant have six legs?": "Yes, an ant has six legs.",
        "Is Mars a planet?": "Yes, Mars is a planet.",
        "Is cold the opposite of hot?": "Yes, the opposite of hot is cold.",
        "Does Monday come after Sunday?": "Yes, Monday comes after Sunday.",
    }.items():
        assert said[question] == answer


def test_no_bird_is_said_to_be_no_animal() -> None:
    checks = draw(yes_or_no, 20_000)
    assert not [e for e in checks if "an animal" in e.question and e.answer.startswith("No")]


def test_properties_and_sizes_are_not_contradictory() -> None:
    bigger = set()
    for exchange in draw(property_question) + draw(size_question):
        if found := re.fullmatch(
            r"(?:\w+, )?(.*) is (bigger|smaller) than (.*)\.", exchange.answer
        ):
            one, word, other = found[1].lower(), found[2], found[3].lower()
            bigger.add((one, other) if word == "bigger" else (other, one))
    assert len(bigger) > 200
    assert not {(b, a) for a, b in bigger} & bigger
    assert {("an elephant", "a mouse"), ("the sun", "the moon")} <= bigger
    says = {exchange.question: exchange.answer for exchange in draw(property_question)}
    assert says["Is fire cold?"] == "No, fire is hot."
    assert says["Is fire hot?"] == "Yes, fire is hot."


def test_a_question_has_one_answer() -> None:
    said = defaultdict(set)
    kinds = (simple_fact, single_fact, yes_or_no, property_question, size_question, not_told)
    for kind in (
        *kinds,
        unknown,
        about_inferno,
        from_the_tables,
        other_language,
        one_digit,
        comparison,
    ):
        for exchange in draw(kind, 6000):
            said[canonical(exchange.question)].add(exchange.answer)
    assert len(said) > 10_000
    assert {question: a for question, a in said.items() if len(a) > 1} == {}


def test_a_relation_has_each_subject_once() -> None:
    for relation in RELATIONS:
        subjects = [x for x, _ in relation.pairs]
        assert len(subjects) == len(set(subjects)), relation.name


def test_no_slot_or_choice_is_left_open() -> None:
    for document in islice(documents(random.Random("slots")), 3000):
        text = "".join(piece.text for piece in document)
        text = text.replace('".[serve]"', "").replace('".[SERVE]"', "")  # as pip takes it
        text = text.replace('--regex "[0-9]+"', "")
        assert not re.search(r"[\[\]{}*]{2}|[\[\]{}]|(?<!\|)\|(?![>\w])", text), text
        assert "  " not in text


def test_articles_fit_their_nouns() -> None:
    consonants = ("unicorn", "one", "use", "ukulele", "euro")
    vowels = ("hour", "honest", "nvidia", "http", "llm", "ssl", "mps", "hf")  # as they are spelled
    found = [pair for text in answers() for pair in re.findall(r"\b([Aa]n?) ([a-z]{2,})", text)]
    assert len(found) > 5000
    for article, noun in found:
        is_vowel = noun.startswith(vowels) or (
            noun[0] in "aeiou" and not noun.startswith(consonants)
        )
        assert article.lower() == ("an" if is_vowel else "a"), (article, noun)


@pytest.mark.parametrize(
    "kind",
    [simple_fact, single_fact, unknown, small_talk, jokes, story_talk, short_story, one_digit],
    ids=lambda kind: kind.__name__,
)
def test_answers_are_sentences(kind: Kind) -> None:
    for exchange in draw(kind, 500):
        assert re.match(r"[A-Z0-9]", exchange.answer), exchange
        assert exchange.answer[-1] in '.!?"', exchange
