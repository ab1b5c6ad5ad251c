"""The exam of the embedded models: questions that were never trained on, kind by kind."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from demo_about import about_inferno, from_the_tables
from demo_commands import commands_in, problems
from demo_exchange import Exchange, typed
from demo_facts import (
    facts_in_a_row,
    neighbours,
    simple_fact,
    single_fact,
    unseen_wordings,
)
from demo_grammar import with_article
from demo_languages import other_language
from demo_names import person_name
from demo_questions import HAND_WRITTEN
from demo_speech import Said, prompt_of, speak
from demo_stories import KINDS, person, tell
from demo_sums import comparison, one_digit, sum_in_a_row, two_digits, word_problem
from demo_talk import equal_answers, small_talk
from demo_themes import theme
from demo_turns import ask_back, name_and_recall, not_told
from demo_unknown import unknown
from demo_virtues import VIRTUE_WORDS, VIRTUES
from demo_worlds import world_of
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

BY_HAND = "about inferno, by hand"
_NUM_SHOWN = 8  # wrong answers of each kind
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")
_PRONOUNS = ("He", "She", "His", "Her")
_KNOWN_CAPITALS = frozenset(
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "I"]
)


@dataclass(frozen=True)
class Item:
    """A chat whose last question is put to the model, and what counts as right."""

    before: tuple[Exchange, ...]
    question: str
    is_right: Callable[[Said], bool]
    expected: str


@dataclass(frozen=True)
class Mark:
    """How one kind of question went: shares of right answers, and of answers that ended."""

    kind: str
    num_items: int
    greedy: float
    sampled: float
    ended: float


# The shares of right answers, greedily, that the embedded model is meant to reach; the card names
# them beside what it did reach.
BARS = {
    "facts in tables": 0.9,
    "other facts": 0.9,
    "one-digit arithmetic": 0.9,
    "running sums": 0.9,
    "names never seen": 0.8,
    "about inferno": 0.9,
    BY_HAND: 0.9,
    "commands that exist": 1.0,
    "other languages": 0.9,
    "I don't know": 0.8,
    "questions in capitals": 0.8,
    "stories in their hero's world": 0.8,
    "stories on a virtue": 0.8,
}
Draw = Callable[[random.Random], list[Exchange]]
DrawItem = Callable[[random.Random], Item]


def examine(
    model: LlamaForCausalLM, tokenizer: Tokenizer, *, seed: int, size: int
) -> tuple[list[Mark], list[str]]:
    """Put `size` questions of each kind, greedily and at the default temperature.

    Returns the marks, and some wrong answers as text.
    """
    torch.manual_seed(seed)
    marks, wrong = [], []
    for kind in EXAM:
        items = items_of(kind, seed=seed, size=size)
        prompts = [prompt_of(item.before, item.question) for item in items]
        greedy = speak(model, tokenizer, prompts, is_greedy=True)
        sampled = speak(model, tokenizer, prompts, is_greedy=False)
        is_right = [item.is_right(said) for item, said in zip(items, greedy, strict=True)]
        is_right_sampled = [item.is_right(said) for item, said in zip(items, sampled, strict=True)]
        has_ended = [said.has_ended for said in greedy + sampled]
        marks.append(
            Mark(kind, len(items), _share(is_right), _share(is_right_sampled), _share(has_ended))
        )
        wrong += [
            f"{kind}: {item.question!r} -> {said.text!r}, expected {item.expected!r}"
            for item, said, right in zip(items, greedy, is_right, strict=True)
            if not right
        ][:_NUM_SHOWN]
    return marks, wrong


def items_of(kind: str, *, seed: int, size: int) -> list[Item]:
    """The same items for the same seed; those by hand are always the same."""
    if kind == BY_HAND:
        return [_by_hand(number) for number in range(len(HAND_WRITTEN))]
    rng = random.Random(f"exam {kind} {seed}")
    return [EXAM[kind](rng) for _ in range(size)]


def is_about(story: str, kind: str, name: str | None) -> bool:
    """Whether the hero is what was asked for, keeps name and pronouns, and no stranger comes in."""
    opening = _SENTENCE_END.split(story)[:3]
    named = re.findall(r"(?:named|story of) ([A-Z]\w*)", story)
    if kind not in " ".join(opening[:2]) or len(named) != 2 or name not in (None, named[0]):
        return False
    first_words = {sentence.split()[0] for sentence in opening if sentence}
    genders = {word in ("He", "His") for word in first_words if word in _PRONOUNS}
    capitals = set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", story))
    strangers = capitals - {*named, *_KNOWN_CAPITALS}
    return story.count(named[0]) >= 2 and len(genders) <= 1 and not strangers


def carries(story: str, word: str, *, least: int) -> bool:
    """Whether a word is in the first two sentences, in the last, and in so many altogether."""
    has_it = [word in sentence for sentence in _SENTENCE_END.split(story)]
    return any(has_it[:2]) and has_it[-1] and sum(has_it) >= least


def is_told_throughout(story: str, words: str, *, parts: Sequence[int] = (0, 1, 2)) -> bool:
    """Whether each of these thirds of a story, from 0 to 2, has a word with such a beginning."""
    sentences = _SENTENCE_END.split(story.lower())
    size = len(sentences)
    thirds = [" ".join(sentences[i * size // 3 : (i + 1) * size // 3]) for i in parts]
    beginning = re.compile(rf"\b(?:{'|'.join(words.split())})")
    return all(beginning.search(third) for third in thirds)


def _asks(draw: Draw, *, kind: str | None = None, new: int = -1) -> DrawItem:
    """Items of a kind in which the question at `new` was never trained on, however typed."""
    return lambda rng: _exact(_drawn(draw, rng, kind, new), rng)


def _drawn(draw: Draw, rng: random.Random, kind: str | None, new: int) -> list[Exchange]:
    while True:
        exchanges = draw(rng)
        if exchanges[new].is_held_out and kind in (None, exchanges[new].kind):
            return exchanges


def _asks_as_is(draw: Draw) -> DrawItem:
    """Items of a kind whose every question is new, or none is split."""
    return lambda rng: _exact(draw(rng), rng)


def _exact(exchanges: Sequence[Exchange], rng: random.Random) -> Item:
    """An item that has one right answer, to the letter."""
    *before, last = exchanges
    return Item(
        tuple(before),
        typed(last.question, rng),
        lambda said: said.has_ended and said.text == last.answer,
        last.answer,
    )


def _story(rng: random.Random) -> Item:
    """A request for a story about somebody, half of the time with a name that is new."""
    hero = person(rng)
    name = person_name(rng, held_out=True) if rng.random() < 0.5 else None
    kind = f"{hero.adjective} {hero.kind}" if rng.random() < 0.3 else hero.kind
    about = with_article(kind) + (f" named {name}" if name else "")
    return Item(
        (),
        f"{rng.choice(('Tell', 'Write'))} me a story about {about}.",
        lambda said: said.has_ended and is_about(said.text, kind, name),
        about,
    )


def _story_with_a_thing(rng: random.Random) -> Item:
    """A request for a story about somebody and a thing, together never told."""
    while True:
        asked = theme(rng, KINDS)
        told = tell(rng, asked)
        if asked and asked.item and told.hero.kind in KINDS and told.is_held_out:
            break
    kind, thing = told.hero.kind, asked.item.split()[-1]
    about = f"{with_article(kind)} and {asked.about}"
    return Item(
        (),
        f"{rng.choice(('Tell', 'Write'))} me a story about {about}.",
        lambda said: (
            said.has_ended
            and is_about(said.text, kind, None)
            and carries(said.text, thing, least=3)
        ),
        about,
    )


def _story_on_a_theme(rng: random.Random) -> Item:
    """A request for a story about no hero, but about rain, being brave, or a word that is new."""
    while (asked := theme(rng, KINDS)) is None or asked.item:
        continue
    word = asked.as_known.removeprefix("the ")
    return Item(
        (),
        f"{rng.choice(('Tell', 'Write'))} me a story about {asked.about}.",
        lambda said: (
            said.has_ended and is_about(said.text, "", None) and carries(said.text, word, least=2)
        ),
        asked.about,
    )


def _story_in_a_world(rng: random.Random) -> Item:
    """A request for a story about a hero whose world must be in its beginning, middle and end."""
    while (kind := person(rng).kind) not in KINDS:
        continue
    about = with_article(kind)
    return Item(
        (),
        f"{rng.choice(('Tell', 'Write'))} me a story about {about}.",
        lambda said: (
            said.has_ended
            and is_about(said.text, kind, None)
            and is_told_throughout(said.text, world_of(kind).words)
        ),
        about,
    )


def _story_on_a_virtue(rng: random.Random) -> Item:
    """A request for a story about a hero and a virtue: its middle and its end must turn on it."""
    while (kind := person(rng).kind) not in KINDS:
        continue
    virtue = rng.choice(VIRTUES).topic
    about = f"{with_article(kind)} and {virtue}"
    return Item(
        (),
        f"{rng.choice(('Tell', 'Write'))} me a story about {about}.",
        lambda said: (
            said.has_ended
            and is_about(said.text, kind, None)
            and is_told_throughout(said.text, world_of(kind).words)
            and is_told_throughout(said.text, VIRTUE_WORDS[virtue], parts=(1, 2))
        ),
        about,
    )


def _by_hand(number: int) -> Item:
    """A question that was written by hand, and its key facts."""
    asked = HAND_WRITTEN[number]
    return Item(
        (),
        asked.question,
        lambda said: said.has_ended and asked.is_right(said.text) and not problems(said.text),
        " and ".join(asked.facts),
    )


def _command(rng: random.Random) -> Item:
    """A question that a command answers: right is one that inferno takes, this or another."""
    while not commands_in((asked := _drawn(about_inferno, rng, None, -1)[0]).answer):
        continue
    return Item(
        (),
        typed(asked.question, rng),
        lambda said: bool(commands_in(said.text)) and not problems(said.text),
        asked.answer,
    )


def _about_inferno(rng: random.Random) -> Item:
    """A question about inferno: whatever the answer is, it utters nothing that does not exist."""
    [asked] = _drawn(rng.choice((about_inferno, from_the_tables)), rng, None, -1)
    return Item(
        (),
        typed(asked.question, rng),
        lambda said: said.has_ended and not problems(said.text),
        asked.answer,
    )


def _in_capitals(rng: random.Random) -> list[Exchange]:
    [asked] = _drawn(simple_fact, rng, kind=None, new=-1)
    return [asked._replace(question=asked.question.upper())]


def _small_talk(rng: random.Random) -> Item:
    """What people say at the start; no wording of it is held out."""
    [exchange] = small_talk(rng)
    answers = equal_answers(exchange.answer)
    return Item(
        (),
        typed(exchange.question, rng),
        lambda said: said.has_ended and said.text in answers,
        exchange.answer,
    )


def _question_and_back(rng: random.Random) -> list[Exchange]:
    before = _drawn(simple_fact, rng, kind=None, new=-1)
    return before + ask_back(rng, before)


def _share(outcomes: Iterable[bool]) -> float:
    counted = list(outcomes)
    return sum(counted) / len(counted)


EXAM: dict[str, DrawItem] = {
    "facts in tables": _asks(simple_fact),
    "other facts": _asks(single_fact),
    "facts in unseen wordings": _asks_as_is(unseen_wordings),
    "follow-ups: and of Spain?": _asks(facts_in_a_row),
    "what comes after that?": _asks(neighbours, new=0),
    "one-digit arithmetic": _asks(one_digit, kind="one-digit arithmetic"),
    "division": _asks(one_digit, kind="division"),
    "two-digit arithmetic": _asks(two_digits),
    "running sums": _asks(sum_in_a_row, new=0),
    "word problems": _asks(word_problem),
    "comparisons": _asks(comparison),
    "names never seen": _asks_as_is(name_and_recall),
    "what was not told": _asks_as_is(not_told),
    "what did I just ask?": _asks_as_is(_question_and_back),
    "about inferno": _asks(about_inferno),
    BY_HAND: lambda rng: _by_hand(rng.randrange(len(HAND_WRITTEN))),
    "commands that exist": _about_inferno,
    "a command for an answer": _command,
    "options and routes": _asks(from_the_tables),
    "other languages": _asks(other_language),
    "I don't know": _asks(unknown),
    "questions in capitals": _asks_as_is(_in_capitals),
    "stories on the topic": _story,
    "stories in their hero's world": _story_in_a_world,
    "stories on a virtue": _story_on_a_virtue,
    "stories with a thing": _story_with_a_thing,
    "stories on a theme": _story_on_a_theme,
    "small talk (no wording held out)": _small_talk,
}
