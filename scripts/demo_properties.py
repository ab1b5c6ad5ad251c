"""What things are like, and which of two is bigger: questions for yes, no, or one of two."""

from __future__ import annotations

import random

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, with_article, words

# A thing, what it is, and what it is not.
_PROPERTIES = tuple(
    row.replace("_", " ").split("-")
    for row in words(
        "fire-hot-cold ice-cold-hot snow-cold-warm the_sun-hot-cold lava-hot-cold soup-warm-cold "
        "ice_cream-cold-hot winter-cold-warm summer-warm-cold the_desert-dry-wet rain-wet-dry "
        "water-wet-dry sugar-sweet-sour honey-sweet-sour a_lemon-sour-sweet vinegar-sour-sweet "
        "a_stone-hard-soft iron-hard-soft a_pillow-soft-hard cotton-soft-hard "
        "a_feather-light-heavy an_elephant-heavy-light lead-heavy-light a_snail-slow-fast "
        "a_turtle-slow-fast a_rocket-fast-slow a_cheetah-fast-slow a_giraffe-tall-short "
        "a_mountain-high-low "
        "the_night-dark-bright the_day-bright-dark a_knife-sharp-blunt the_ocean-deep-shallow "
        "a_puddle-shallow-deep a_whale-big-small a_mouse-small-big an_ant-small-big "
        "thunder-loud-quiet a_whisper-quiet-loud a_baby-young-old a_grandfather-old-young "
        "gold-expensive-cheap a_ball-round-square a_wheel-round-square the_Earth-round-flat"
    )
)
# From small to big.
_SIZES = words(
    "ant bee mouse frog hamster rat duck rabbit cat fox dog sheep wolf pig lion bear cow horse "
    "camel giraffe elephant whale"
)
_OBJECTS = (
    *("a pea", "an egg", "an apple", "a melon", "a chair", "a car", "a house", "a mountain"),
    *("the moon", "the Earth", "the sun"),
)


def property_question(rng: random.Random) -> list[Exchange]:
    """Whether a thing is one way or the other."""
    thing, true, false = rng.choice(_PROPERTIES)
    wording, answer = rng.choice(
        (
            (f"[is|isn't] {thing} {true}", f"Yes, {thing} is {true}."),
            (f"is {thing} {false}", f"No, {thing} is {true}."),
            (f"is {thing} [{true} or {false}|{false} or {true}]", f"{thing} is {true}."),
        )
    )
    return [_exchange(wording, answer, "yes or no", rng)]


def size_question(rng: random.Random) -> list[Exchange]:
    """Which of two animals or things is bigger or smaller."""
    row = tuple(map(with_article, _SIZES)) if rng.random() < 0.7 else _OBJECTS
    small, big = (row[i] for i in sorted(rng.sample(range(len(row)), 2)))
    pair = rng.choice((f"{small} or {big}", f"{big} or {small}"))
    bigger, smaller = f"{big} is bigger than {small}.", f"{small} is smaller than {big}."
    wording, answer = rng.choice(
        (
            (f"[which|what|who] is [bigger|larger], {pair}", bigger),
            (f"[which|what|who] is smaller, {pair}", smaller),
            (f"is {big} [bigger|larger] than {small}", f"Yes, {bigger}"),
            (f"is {small} [bigger|larger] than {big}", f"No, {smaller}"),
            (f"is {small} smaller than {big}", f"Yes, {smaller}"),
            (f"is {big} smaller than {small}", f"No, {bigger}"),
        )
    )
    return [_exchange(wording, answer, "bigger or smaller", rng)]


def _exchange(wording: str, answer: str, kind: str, rng: random.Random) -> Exchange:
    question = punctuate(sentence_case(expand(wording, rng, {})))
    return Exchange(question, sentence_case(answer), kind, is_split=True)
