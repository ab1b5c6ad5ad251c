"""The corpus of the embedded model: endless documents, drawn from grammars."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from demo_chats import KINDS, ONCE_A_CHAT, SYSTEM_PROMPTS, Exchange, Kind
from demo_grammar import expand
from demo_stories import tell

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

_HELD_OUT_ONE_IN = 20
_SHARE_OF_STORIES = 0.33


class Piece(NamedTuple):
    """A stretch of a document; the loss counts only what the model itself would say."""

    text: str
    is_learned: bool


Document = tuple[Piece, ...]


def documents(rng: random.Random, *, held_out: bool = False) -> Iterator[Document]:
    """Draw documents without end: plain stories and chats.

    A combination (a question in one wording; a plot with its hero and item) belongs to one side
    of the split for good, so no held-out question or story is ever trained on.
    """
    while True:
        if rng.random() < _SHARE_OF_STORIES:
            yield _plain_story(rng, held_out)
        else:
            yield _chat(rng, held_out)


def _plain_story(rng: random.Random, held_out: bool) -> Document:
    while True:
        story = tell(rng)
        if _is_held_out(story.key) == held_out:
            return Piece(BOS, False), Piece(story.text + END, True)


def _chat(rng: random.Random, held_out: bool) -> Document:
    """One exchange or several; when held out, the last one decides and the others may be known."""
    kinds = _kinds(rng)
    pieces = [Piece(BOS + _system(rng), False)]
    for i, kind in enumerate(kinds):
        wants_held_out = held_out and i == len(kinds) - 1
        for exchange in _exchanges(kind, rng, wants_held_out):
            pieces.append(Piece(f"{USER}{_typed(exchange.question, rng)}{END}{ASSISTANT}", False))
            pieces.append(Piece(exchange.answer + END, True))
    return tuple(pieces)


def _kinds(rng: random.Random) -> list[Kind]:
    """What a chat is about, round by round: a name is told once, and one long story is enough."""
    drawn = rng.choices(tuple(KINDS), tuple(KINDS.values()), k=rng.choice((1, 1, 1, 2, 3, 4, 6)))
    return [
        kind for i, kind in enumerate(drawn) if kind not in ONCE_A_CHAT or kind not in drawn[:i]
    ]


def _exchanges(kind: Kind, rng: random.Random, held_out: bool) -> list[Exchange]:
    """Exchanges of one kind on the side of the split that is asked for, if the kind is split."""
    while True:
        exchanges = kind(rng)
        keys = [exchange.key for exchange in exchanges if exchange.key is not None]
        if not keys or any(map(_is_held_out, keys)) == held_out:
            return exchanges


def _system(rng: random.Random) -> str:
    if rng.random() < 0.85:
        return ""
    return f"{SYSTEM}{expand(rng.choice(SYSTEM_PROMPTS), rng, {})}{END}"


def _typed(question: str, rng: random.Random) -> str:
    """The question as people type it: sometimes in small letters, sometimes with no full stop."""
    if rng.random() < 0.2:
        question = question.lower()
    if rng.random() < 0.25:
        question = question.rstrip(".?!") or question
    return question


def _is_held_out(key: str) -> bool:
    return zlib.crc32(key.encode()) % _HELD_OUT_ONE_IN == 0
