"""Talk that refers back: names, likings, repeats, and what was just asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, words
from demo_names import person_name, pet
from demo_stories import ADJECTIVES, ANIMALS
from demo_unknown import nonsense


class Personal(NamedTuple):
    """Something that people say about themselves, and may ask for later."""

    kind: str
    told: str
    heard: str
    asked: str
    recalled: str
    not_told: str
    values: Callable[[random.Random], str]


def _one_of(text: str) -> Callable[[random.Random], str]:
    options = text.split(";")
    return lambda rng: rng.choice(options)


_CITIES = words(
    "Berlin London Paris Rome Hamburg Boston Tokyo Vienna Madrid Chicago Oslo Munich Lisbon Prague "
    "Milan Sydney Toronto Dublin Athens"
)
_PERSONAL = (
    Personal(
        "name",
        "[my name is|I am|I'm|hello, my name is|hi, I am|call me|hi! I'm|you can call me|my name's|"
        "hello, I'm|the name is|hey, my name is] {x}",
        "Nice to meet you, {x}!",
        "[what is my name|do you [know|remember] my name|who am I|what's my name|what was my name|"
        "can you tell me my name|tell me my name|say my name|and what is my name|what am I called]",
        "Your name is {x}.",
        "I don't know your name yet. What is it?",
        person_name,
    ),
    Personal(
        "favourite colour",
        "[my favourite colour is|I like the colour|the colour I like best is] {x}",
        "I will remember that: {x}.",
        "[what is|what's|do you remember|do you know|tell me] my favourite colour",
        "Your favourite colour is {x}.",
        "You have not told me your favourite colour.",
        _one_of("red;blue;green;yellow;purple;black;white;pink;orange;brown;grey;gold;silver"),
    ),
    Personal(
        "favourite animal",
        "[my favourite animal is|the animal I like best is] the {x}",
        "I will remember that: the {x}.",
        "[what is|what's|do you remember|do you know|tell me] my favourite animal",
        "Your favourite animal is the {x}.",
        "You have not told me your favourite animal.",
        _one_of(
            "cat;dog;horse;owl;fox;lion;tiger;bear;rabbit;penguin;panda;elephant;dolphin;whale;"
            "giraffe;zebra;wolf;mouse;hamster;parrot;snake;turtle;monkey;koala"
        ),
    ),
    Personal(
        "age",
        "[I am|I'm] {x}[| years old]",
        "I see: you are {x} years old.",
        "[how old am I|what is my age|do you know how old I am|do you remember my age]",
        "You are {x} years old.",
        "You have not told me how old you are.",
        lambda rng: str(rng.randrange(4, 99)),
    ),
    Personal(
        "home",
        "[I live in|I am from|I come from|my home is in] {x}",
        "I see: you live in {x}.",
        "[where do I live|where am I from|do you remember where I live|what city do I live in]",
        "You live in {x}.",
        "You have not told me where you live.",
        lambda rng: rng.choice(_CITIES) if rng.random() < 0.6 else nonsense(rng).title(),
    ),
    Personal(
        "pet",
        "[I have a [dog|cat|pet|rabbit|hamster] [named|called]|my [dog|cat|pet] is [named|called]|"
        "my [dog|cat|pet]'s name is] {x}",
        "{x} is a nice name!",
        "[what is my [dog|cat|pet] called|what is my [pet|dog|cat]'s name|"
        "what is the name of my [pet|dog|cat]|do you [remember|know] my [pet|dog|cat]'s name|"
        "how is my [pet|dog|cat] called|what did I call my [pet|dog|cat]]",
        "The name is {x}.",
        "You have not told me about it.",
        lambda rng: pet(rng, rng.random() < 0.5),
    ),
    Personal(
        "food",
        "[my favourite food is|I like to eat|I love to eat] {x}",
        "I will remember that: {x}.",
        "[what is my favourite food|what do I like to eat|do you remember my favourite food]",
        "You like {x}.",
        "You have not told me your favourite food.",
        _one_of(
            "pizza;soup;cake;rice;pasta;bread;cheese;fish;apples;salad;pancakes;ice cream;curry"
        ),
    ),
)
Kind = Callable[[random.Random], list[Exchange]]


def personal(rng: random.Random, interludes: tuple[Kind, ...]) -> list[Exchange]:
    """The person says things, talks about something else, and asks for the things again."""
    told = rng.sample(_PERSONAL, rng.choice((1, 1, 1, 2, 3)))
    if rng.random() < 0.55 and _PERSONAL[0] not in told:
        told[0] = _PERSONAL[0]
    values = {item.kind: item.values(rng) for item in told}
    exchanges = []
    for item in told:
        x = values[item.kind]
        said = sentence_case(expand(item.told, rng, {"x": x}))
        exchanges.append(Exchange(f"{said}{rng.choice('..!')}", item.heard.format(x=x), "told"))
        exchanges += _interlude(rng, interludes)
    asked = rng.sample(told, rng.randrange(1, len(told) + 1))
    for item in asked:
        question = punctuate(sentence_case(expand(item.asked, rng, {})))
        answer = item.recalled.format(x=values[item.kind])
        exchanges.append(Exchange(question, answer, f"recall {item.kind}"))
        if rng.random() < 0.3:
            exchanges += _interlude(rng, interludes)
    return exchanges


def not_told(rng: random.Random) -> list[Exchange]:
    """The person asks for something that was never said."""
    item = rng.choice((_PERSONAL[0], rng.choice(_PERSONAL)))
    question = punctuate(sentence_case(expand(item.asked, rng, {})))
    return [Exchange(question, item.not_told, "not told")]


def ask_back(rng: random.Random, before: list[Exchange]) -> list[Exchange]:
    """A question about the last question or the last answer, which was short."""
    last = before[-1]
    question, answer = rng.choice(
        (
            (
                "[what did I [just |]ask|what was my [last |]question|repeat my question|"
                "what did I just [say|ask you]|what did I say|what was the question|"
                "what have I [just |]asked]",
                f"You said: {last.question}",
            ),
            (
                "[can you repeat that|repeat that|say that again|what did you say|"
                "please repeat|again, please|can you say that again|pardon|what]",
                f"I said: {last.answer}",
            ),
            ("[are you sure|really|is that [true|right|correct]]", f"Yes: {last.answer}"),
        )
    )
    return [Exchange(punctuate(sentence_case(expand(question, rng, {}))), answer, "ask back")]


def echo(rng: random.Random) -> list[Exchange]:
    """Words to be said after the person, which teaches to copy any text."""
    said = [rng.choice(_ECHOED)(rng) for _ in range(rng.choice((1, 2, 3, 4, 6)))]
    text = sentence_case(" ".join(said))
    lead = expand("[repeat after me|repeat|say|please repeat|please say|echo]", rng, {})
    return [Exchange(f"{sentence_case(lead)}: {text}", text, "echo")]


def in_other_case(rng: random.Random) -> list[Exchange]:
    """A word to be written in capitals or in small letters, which teaches what is the same."""
    word = rng.choice(_ECHOED)(rng)
    word = f"{word} {rng.choice(_ECHOED)(rng)}" if rng.random() < 0.5 else word
    lead = expand("[write|say|what is|how do I write|please write|put]", rng, {})
    if rng.random() < 0.4:
        kind, asked, answer = "[capitals|capital letters|big letters]", word, word.upper()
    else:
        kind, asked, answer = "[small|little|lower-case] letters", word.upper(), word.lower()
    question = f"{lead} {asked} in {expand(kind, rng, {})}"
    return [Exchange(punctuate(sentence_case(question)), answer, "other case")]


_ECHOED: tuple[Callable[[random.Random], str], ...] = (
    nonsense,
    person_name,
    lambda rng: str(rng.randrange(1000)),
    lambda rng: rng.choice(ANIMALS),
    lambda rng: rng.choice(ADJECTIVES),
)


def _interlude(rng: random.Random, interludes: tuple[Kind, ...]) -> list[Exchange]:
    exchanges: list[Exchange] = []
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        exchanges += rng.choice(interludes)(rng)
    return exchanges


def name_and_recall(rng: random.Random) -> list[Exchange]:
    """A name that is never trained on, and the question for it; for the exam alone."""
    item = _PERSONAL[0]
    name = person_name(rng, held_out=True)
    said = sentence_case(expand(item.told, rng, {"x": name}))
    question = punctuate(sentence_case(expand(item.asked, rng, {})))
    return [
        Exchange(f"{said}.", item.heard.format(x=name), "told"),
        Exchange(question, item.recalled.format(x=name), "recall name"),
    ]
