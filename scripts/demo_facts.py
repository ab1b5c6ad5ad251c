"""Questions about the world, alone or in a row, drawn from the relations and the single facts."""

from __future__ import annotations

import random

from demo_calendar import ROWS
from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case
from demo_relations import RELATIONS
from demo_single_facts import SINGLE_FACTS

_WEIGHTS = [len(relation.pairs) ** 0.7 for relation in RELATIONS]
_WITH_FOLLOW_UPS = [relation for relation in RELATIONS if relation.follow_ups]
_WITH_CHECKS = [relation for relation in RELATIONS if relation.checks]
_AND_THEN = {
    "after": (
        "and [what comes ]after that",
        "and then",
        "what comes after that",
        "and the next one",
        "and after {x}",
        "what comes next",
        "then what",
    ),
    "before": (
        "and [what comes ]before that",
        "what comes before that",
        "and before {x}",
        "and the one before",
    ),
}


def simple_fact(rng: random.Random) -> list[Exchange]:
    """A question about the world and its answer."""
    relation = rng.choices(RELATIONS, _WEIGHTS)[0]
    return [relation.ask(rng, *rng.choice(relation.pairs), relation.wordings)]


def yes_or_no(rng: random.Random) -> list[Exchange]:
    """Whether something is so; half of the time it is not."""
    relation = rng.choice(_WITH_CHECKS)
    x, y = rng.choice(relation.pairs)
    asked = y if rng.random() < 0.5 else rng.choice(relation.pairs)[1]
    if asked == "an animal":  # a bird is one too, though the tables call it a bird
        asked = y
    return [relation.check(rng, x, y, asked)]


def facts_in_a_row(rng: random.Random) -> list[Exchange]:
    """A question, and short ones that ask the same of something else: "And of Spain?"."""
    relation = rng.choice(_WITH_FOLLOW_UPS)
    pairs = rng.sample(relation.pairs, rng.choice((2, 2, 3)))
    first = relation.ask(rng, *pairs[0], relation.wordings)
    more = [relation.ask(rng, *pair, relation.follow_ups) for pair in pairs[1:]]
    return [first, *(exchange._replace(kind="follow-up") for exchange in more)]


def unseen_wordings(rng: random.Random) -> list[Exchange]:
    """A known fact, asked for in words that are never trained on; for the exam alone."""
    relation = rng.choice([relation for relation in RELATIONS if relation.unseen])
    asked = relation.ask(rng, *rng.choice(relation.pairs), relation.unseen)
    return [asked._replace(kind="unseen wording")]


def neighbours(rng: random.Random) -> list[Exchange]:
    """What comes after Monday, and after that, and after that."""
    name, row, is_ring = rng.choice(ROWS)
    forward = rng.random() < 0.6
    row = row if forward else row[::-1]
    direction = "after" if forward else "before"
    steps = rng.choice((2, 2, 3, 4))
    start = rng.randrange(len(row) if is_ring else len(row) - steps)
    relation = next(r for r in RELATIONS if r.name == f"{name} {direction}")
    exchanges = []
    for i in range(steps):
        x, y = row[(start + i) % len(row)], row[(start + i + 1) % len(row)]
        wordings = relation.wordings if i == 0 else _AND_THEN[direction]
        asked = relation.ask(rng, x, y, wordings)
        exchanges.append(asked if i == 0 else asked._replace(kind="next one", is_split=False))
    return exchanges


def single_fact(rng: random.Random) -> list[Exchange]:
    """A fact that belongs to no table."""
    wordings, answer = rng.choice(SINGLE_FACTS)
    lead = rng.choice(("", "", "", "", "tell me: ", "do you know? ", "please tell me: "))
    question = punctuate(sentence_case(lead + expand(rng.choice(wordings), rng, {})))
    return [Exchange(question, answer, "other facts", is_split=True)]
