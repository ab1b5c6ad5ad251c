"""A question and its answer: what chats are made of."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from demo_grammar import words
from demo_split import is_held_out

_TELLING = frozenset(
    words(
        "tell please say give name mix list recite count calculate compute add subtract multiply "
        "divide take solve i i'm my write read sing show let make help repeat draw paint translate "
        "double halve increase raise lower reduce remove add describe list play call buy order "
        "book spell find set open close delete turn search drive explain phone"
    )
)


_LEAD_INS = (
    *("Hey,", "So,", "Okay,", "Well,", "Hm,", "Demo,", "Now,", "Oh,", "Quick question:"),
    *("One question:", "A question:", "Let me ask:", "Another question:", "By the way,"),
)
_TAILS = (", please", " then", ", demo", " exactly", " again")
_KEPT = ("I ", "I'")
_LONG_WORD = re.compile(r"[A-Za-z]{5,}[.,?!]?")


class Exchange(NamedTuple):
    """A question and its answer.

    `kind` names it in the exam. A question that `is_split` is trained on or held out for good.
    """

    question: str
    answer: str
    kind: str
    is_split: bool = False

    @property
    def is_held_out(self) -> bool:
        """Whether the question, in these words, is never trained on."""
        return self.is_split and is_held_out(self.question)


def punctuate(question: str) -> str:
    """End a question with its mark, unless it has one."""
    if question[-1] in ".?!=":
        return question
    return question + ("." if question.lower().split()[0] in _TELLING else "?")


def dressed(question: str, rng: random.Random) -> str:
    """The question as people lead up to it, end it, or break its line; mostly as it was."""
    chance = rng.random()
    if chance < 0.07:
        first = question if question.startswith(_KEPT) else question[:1].lower() + question[1:]
        return f"{rng.choice(_LEAD_INS)} {first}"
    if chance < 0.085 and question.endswith("?"):
        return f"{question[:-1].rstrip()}{rng.choice(_TAILS)}?"
    return _broken(question, rng) if chance < 0.1 else question


def _broken(question: str, rng: random.Random) -> str:
    """A line break in place of one of the spaces."""
    parts = question.split(" ")
    at = rng.randrange(len(parts))
    return "\n".join(filter(None, (" ".join(parts[:at]), " ".join(parts[at:]))))


def mistyped(question: str, rng: random.Random) -> str:
    """The question with a slip in one of its longer words: a letter lost, doubled or swapped."""
    parts = question.split(" ")
    places = [i for i, part in enumerate(parts) if _LONG_WORD.fullmatch(part)]
    if not places:
        return question
    at = rng.choice(places)
    word = parts[at]
    i = rng.randrange(1, len(word) - 2)
    parts[at] = word[:i] + rng.choice(
        (word[i + 1 :], word[i] + word[i:], word[i + 1] + word[i] + word[i + 2 :])
    )
    return " ".join(parts)


def typed(question: str, rng: random.Random) -> str:
    """The question as people type it: in small or capital letters, with no mark, or too many."""
    chance = rng.random()
    if chance < 0.23:
        question = question.lower()
    elif chance < 0.33:
        question = question.upper()
    elif chance < 0.345:
        question = question.title()
    elif chance < 0.36:
        question = "".join(rng.choice((c.upper(), c.lower())) for c in question)
    chance = rng.random()
    if chance < 0.25:
        question = question.rstrip(".?!") or question
    elif chance < 0.28:
        question = question.rstrip(".?! ") + rng.choice(("??", "!", " ?", "...", ".", "?"))
    return question
