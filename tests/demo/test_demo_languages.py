"""Other languages, capitals, and sums that run on: what the corpus teaches of them."""

from __future__ import annotations

import random
import re
from itertools import islice, pairwise

from demo_corpus import documents
from demo_exchange import typed
from demo_languages import ONLY_ENGLISH, other_language
from demo_split import canonical
from demo_sums import sum_in_a_row
from demo_turns import in_other_case


def test_other_languages_have_one_answer() -> None:
    rng = random.Random("languages")
    asked = [other_language(rng)[0] for _ in range(3000)]
    assert {exchange.answer for exchange in asked} == {ONLY_ENGLISH}
    scripts = {"cyrillic": "[а-я]", "greek": "[α-ω]", "arabic": "[ا-ي]", "han": "[一-龥]"}
    scripts |= {"kana": "[あ-ん]", "hangul": "[가-힣]", "hebrew": "[א-ת]", "latin": "[ßéñçąşöø]"}
    for name, letters in scripts.items():
        found = {e.question for e in asked if re.search(letters, e.question)}
        assert len(found) > 15, name
    assert len({canonical(exchange.question) for exchange in asked}) > 1000


def test_a_tenth_of_the_questions_is_in_capitals() -> None:
    rng = random.Random("capitals")
    asked = [typed("What colour is the sky?", rng) for _ in range(4000)]
    assert 0.08 < sum(question.isupper() for question in asked) / len(asked) < 0.13
    assert 0.2 < sum(question[-1].isalpha() for question in asked) / len(asked) < 0.4


def test_words_change_their_case_when_asked_to() -> None:
    rng = random.Random("case")
    for _ in range(300):
        [exchange] = in_other_case(rng)
        letters = exchange.answer.replace(" ", "")
        assert letters.isupper() or letters.islower() or letters.isdigit()
        assert exchange.answer.lower() in exchange.question.lower()


def test_what_is_to_be_said_again_keeps_its_letters() -> None:
    for document in islice(documents(random.Random("letters")), 4000):
        said = [piece.text for piece in document]
        for asked, answer in pairwise(said):
            if found := re.match(
                r"<\|user\|>(?:Repeat after me|Please repeat|Echo): (.+?)<\|end", asked
            ):
                assert answer == f"{found[1]}<|end|>"


def test_that_is_the_result_of_the_sum_before() -> None:
    rng = random.Random("that")
    seen = set()
    for _ in range(3000):
        first, *more = sum_in_a_row(rng)
        total = re.findall(r"-?\d+", first.answer)[-1]
        for exchange in more:
            assert re.findall(r"\d+", exchange.answer)[0] == total, exchange
            asked = exchange.question.lower()
            a, sign, b = re.findall(r"(\d+) ([-+*/]) (\d+) = -?\d+\.$", exchange.answer)[0]
            if "double" in asked or "twice" in asked:
                assert (sign, b) == ("*", "2") or (sign == "+" and a == b)
                seen.add("double")
            elif "hal" in asked:
                assert (sign, b) == ("/", "2")
                seen.add("half")
            elif re.search(r"add|plus|more", asked):
                assert sign == "+"
                seen.add("add")
            elif re.search(r"minus|take|subtract|less", asked):
                assert sign == "-"
                seen.add("take")
            total = re.findall(r"-?\d+", exchange.answer)[-1]
    assert seen == {"double", "half", "add", "take"}
