"""A relation: facts of one kind, and the wordings that ask for them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, with_article


@dataclass(frozen=True)
class Relation:
    """A table of facts `x -> y` and how people ask for them.

    `unseen` wordings are never trained on: they measure what the model makes of new ones. A
    follow-up asks the same of another x, as in "And of Spain?", and a check whether y is right.
    """

    name: str
    pairs: tuple[tuple[str, str], ...]
    wordings: tuple[str, ...]
    answer: str
    follow_ups: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    def ask(self, rng: random.Random, x: str, y: str, wordings: tuple[str, ...]) -> Exchange:
        """One question in one wording, and the one answer that this fact has."""
        slots = _slots(x, y)
        question = punctuate(sentence_case(expand(rng.choice(wordings), rng, slots)))
        answer = sentence_case(self.answer.format_map(slots))
        return Exchange(question, answer, self.name, is_split=True)

    def check(self, rng: random.Random, x: str, y: str, asked: str) -> Exchange:
        """Whether the fact of `x` is what is `asked`; the answer says what it is: `y`."""
        question = punctuate(sentence_case(expand(rng.choice(self.checks), rng, _slots(x, asked))))
        fact = self.answer.removeprefix("The ").format_map(_slots(x, y))
        article = "the " if self.answer.startswith("The ") else ""
        says = "Yes" if asked == y else "No"
        return Exchange(question, f"{says}, {article}{fact}", "yes or no", is_split=True)


def _slots(x: str, y: str) -> dict[str, str]:
    an_x = x if x[0].isupper() else with_article(x)  # Mars is no "a Mars"
    return {"x": x, "y": y, "an_x": an_x, "an_y": with_article(y)}
