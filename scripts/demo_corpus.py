"""The corpus of the embedded models: endless documents, drawn from grammars."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from demo_about import about_inferno, from_the_tables
from demo_exchange import Exchange, dressed, mistyped, typed
from demo_facts import facts_in_a_row, neighbours, simple_fact, single_fact, yes_or_no
from demo_grammar import expand
from demo_languages import other_language
from demo_properties import property_question, size_question
from demo_relations import RELATIONS
from demo_stories import tell
from demo_story_talk import short_story, story_talk
from demo_sums import (
    comparison,
    counting,
    one_digit,
    sum_in_a_row,
    three_numbers,
    two_digits,
    word_problem,
)
from demo_talk import greeting, jokes, small_talk
from demo_turns import ask_back, echo, in_other_case, not_told, personal
from demo_unknown import unknown, unknown_in_a_row

BOS, END = "<|bos|>", "<|end|>"
SYSTEM, USER, ASSISTANT = "<|system|>", "<|user|>", "<|assistant|>"
SPECIAL_TOKENS = (BOS, END, SYSTEM, USER, ASSISTANT)

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('the roles are system, user and assistant') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

Kind = Callable[[random.Random], list[Exchange]]

# How often each kind of exchange is drawn.
KINDS: dict[Kind, float] = {
    small_talk: 0.1,
    jokes: 0.01,
    about_inferno: 1.2,
    from_the_tables: 0.4,
    other_language: 0.05,
    in_other_case: 0.015,
    unknown: 0.16,
    unknown_in_a_row: 0.015,
    echo: 0.03,
    simple_fact: 0.28,
    single_fact: 0.05,
    facts_in_a_row: 0.04,
    neighbours: 0.02,
    yes_or_no: 0.025,
    property_question: 0.015,
    size_question: 0.025,
    one_digit: 0.08,
    two_digits: 0.18,
    three_numbers: 0.01,
    sum_in_a_row: 0.045,
    word_problem: 0.03,
    comparison: 0.05,
    counting: 0.005,
    not_told: 0.01,
    story_talk: 0.07,
    short_story: 0.005,
}
_INTERLUDES: tuple[Kind, ...] = (
    small_talk,
    simple_fact,
    one_digit,
    single_fact,
    unknown,
    about_inferno,
)
_AS_IT_IS = ("echo", "other case")  # whose letters matter
# What is asked in capitals, or with a slip, more often: the answer has nothing of the question,
# or a word of it that the model knows.
_ASKED_CARELESSLY = frozenset(
    (
        *("about inferno", "options and routes", "other facts", "unknown", "ask back"),
        "word problem",
        *(relation.name for relation in RELATIONS),
    )
)
_SHARE_OF_SHOUTED = 0.25
_SHARE_OF_MISTYPED = 0.05
_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a [friendly|kind|polite|helpful|small] [assistant|helper|chat bot|model].",
    "[Answer|Reply|Please answer] [shortly|politely|briefly|in one sentence|in simple English].",
    "You are [inferno's demo model|demo, a small language model].",
    "You are a helpful assistant. [Answer|Reply] [shortly|politely|in one sentence].",
    "Be [kind|brief|helpful|polite].",
)
_SHARE_OF_PLAIN_STORIES = 0.03
_SHARE_OF_GREETINGS = 0.15
_SHARE_OF_PERSONAL_CHATS = 0.12
_ROUNDS = (1, 1, 1, 2, 2, 3, 4, 6)
_MANY_ROUNDS = (10, 15, 20, 30)
_MAX_QUOTED = 100
_MAX_CHARACTERS = 3200  # more never fits the longest row


class Piece(NamedTuple):
    """A stretch of a document; the loss counts only what the model itself would say."""

    text: str
    is_learned: bool


Document = tuple[Piece, ...]


def documents(rng: random.Random, *, held_out: bool = False) -> Iterator[Document]:
    """Draw documents without end: plain stories and chats.

    A question in one wording and a plot with its hero and item belong to one side of the split
    for good, so no held-out question or story is ever trained on.
    """
    while True:
        if rng.random() < _SHARE_OF_PLAIN_STORIES:
            yield _plain_story(rng, held_out)
        else:
            system = _system(rng)
            yield _as_document(system, _chat(rng, held_out, is_brief="one sentence" in system))


def _plain_story(rng: random.Random, held_out: bool) -> Document:
    while True:
        story = tell(rng, is_plain=True)
        if story.is_held_out == held_out:
            return Piece(BOS, False), Piece(story.text + END, True)


def _as_document(system: str, exchanges: list[Exchange]) -> Document:
    """A chat as a document; what would be far too long for a row is left out at once."""
    pieces = [Piece(BOS + system, False)]
    length = len(system)
    for exchange in exchanges:
        length += len(exchange.question) + len(exchange.answer) + 10
        if length > _MAX_CHARACTERS:
            break
        pieces.append(Piece(f"{USER}{exchange.question}{END}{ASSISTANT}", False))
        pieces.append(Piece(exchange.answer + END, True))
    return tuple(pieces)


def _chat(rng: random.Random, held_out: bool, is_brief: bool) -> list[Exchange]:
    """Some rounds, each of a kind; when held out, the last one decides, others may be known."""
    chance = rng.random()
    if chance < _SHARE_OF_PERSONAL_CHATS and not held_out:
        return _typed(personal(rng, tuple(_known(kind) for kind in _INTERLUDES)), rng)
    num_rounds = rng.choice(_MANY_ROUNDS if chance > 0.97 else _ROUNDS)
    is_greeted = rng.random() < _SHARE_OF_GREETINGS
    exchanges = _typed(greeting(rng), rng) if is_greeted else []
    for kind in rng.choices(tuple(KINDS), tuple(KINDS.values()), k=num_rounds):
        if is_brief and kind is story_talk:
            exchanges += short_story(rng, is_asked=False)
        else:
            exchanges += _typed(_known(kind)(rng), rng)
        if rng.random() < 0.16 and len(exchanges[-1].question + exchanges[-1].answer) < _MAX_QUOTED:
            exchanges += ask_back(rng, exchanges)
    if held_out:
        exchanges += _typed(_unknown_to_training(rng), rng)
    return exchanges


def _known(kind: Kind) -> Kind:
    """The same kind, but only exchanges that may be trained on."""

    def draw(rng: random.Random) -> list[Exchange]:
        while True:
            exchanges = kind(rng)
            if not any(exchange.is_held_out for exchange in exchanges):
                return exchanges

    return draw


def _unknown_to_training(rng: random.Random) -> list[Exchange]:
    """A round that ends with what was held out: a question, or a story."""
    while True:
        [kind] = rng.choices(tuple(KINDS), tuple(KINDS.values()))
        if kind is story_talk:
            return story_talk(rng, is_held_out=True)
        exchanges = kind(rng)
        if exchanges[-1].is_held_out:
            return exchanges


def _typed(exchanges: list[Exchange], rng: random.Random) -> list[Exchange]:
    """The exchanges as people type them; what is to be said again keeps its letters."""
    return [
        e if e.kind in _AS_IT_IS else e._replace(question=_typed_question(e, rng))
        for e in exchanges
    ]


def _typed_question(exchange: Exchange, rng: random.Random) -> str:
    question = dressed(exchange.question, rng)
    if exchange.kind in _ASKED_CARELESSLY:
        chance = rng.random()
        if chance < _SHARE_OF_MISTYPED:
            question = mistyped(question, rng)
        elif chance < _SHARE_OF_MISTYPED + _SHARE_OF_SHOUTED:
            question = question.upper()
    return typed(question, rng)


def _system(rng: random.Random) -> str:
    if rng.random() < 0.85:
        return ""
    return f"{SYSTEM}{expand(rng.choice(_SYSTEM_PROMPTS), rng, {})}{END}"
