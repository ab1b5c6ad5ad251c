"""Chats about stories: asking for one about something, for another, and who was in it."""

from __future__ import annotations

import random

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, with_article
from demo_stories import Story, tell
from demo_talk import AGAIN, OFFER

REQUESTS = (
    "[tell|write] me a [|short |nice |little |good ]story about {about}",
    "[can|could|would] you [please |]tell me a [|short ]story about {about}",
    "[write|tell|give me] a [|short ]story about {about}",
    "I would like [to hear |]a story about {about}",
    "I want a story about {about}",
    "a story about {about}[|, please]",
    "please tell me a story about {about}",
    "story about {about}",
    "[make up|invent] a story about {about}",
    "[do you know|have you got] a story about {about}",
    "tell me about {about} in a story",
)
ANY_REQUESTS = (
    "[tell|write] me a [|short |nice |bedtime ]story",
    "[can|could] you tell me a [|short ]story",
    "do you know a [|good |nice ]story",
    "tell a story",
    "a story, please",
    "story",
    "I want [to hear |]a story",
    "I'm bored. Tell me a story",
)
SHORT_REQUESTS = (
    "tell me a story about {about} in one sentence",
    "tell me a very short story about {about}",
    "a one-sentence story about {about}, please",
)


def story_talk(rng: random.Random, *, is_held_out: bool = False) -> list[Exchange]:
    """A request for a story, often about something, a story that fits it, and talk about it."""
    told = _told(rng, is_held_out)
    exchanges = _asked(told, rng)
    if rng.random() < 0.35:
        exchanges += _questions(told, rng)
    if rng.random() < 0.15 and not is_held_out:
        question = expand(rng.choice(AGAIN).replace("one", "[one|story]"), rng, {})
        exchanges.append(Exchange(question, _told(rng, False).text, "another story"))
    return exchanges


def short_story(rng: random.Random, *, is_asked: bool = True) -> list[Exchange]:
    """A story in one sentence, because the request asks for it, or the system prompt."""
    told = tell(rng, is_short=True)
    question = expand(
        rng.choice(SHORT_REQUESTS if is_asked else REQUESTS),
        rng,
        {"about": with_article(told.hero.kind)},
    )
    return [Exchange(punctuate(sentence_case(question)), told.text, "short story")]


def _told(rng: random.Random, is_held_out: bool) -> Story:
    while True:
        told = tell(rng)
        if told.is_held_out == is_held_out:
            return told


def _asked(told: Story, rng: random.Random) -> list[Exchange]:
    """The request, at once or after an offer."""
    chance = rng.random()
    if chance < 0.8:
        return [Exchange(_request(told, rng), told.text, "story")]
    if chance < 0.9:
        feeling = expand("[I am|I'm|I feel] [sad|tired|bored|lonely|unhappy].", rng, {})
        agreed = expand("[Yes|Yes, please|Okay|Sure|Yes, I would|Please][.|!|]", rng, {})
        return [
            Exchange(feeling, OFFER, "small talk"),
            Exchange(agreed, told.text, "story"),
        ]
    opening = expand("[Can you tell|Do you know] [stories|a story]?", rng, {})
    about = {"about": _about(told, rng)}
    wish = expand("[About|Something about|Maybe|] {about}[.|, please.|]", rng, about)
    return [
        Exchange(opening, "Yes! What should the story be about?", "small talk"),
        Exchange(sentence_case(wish.strip()), told.text, "story"),
    ]


def _request(told: Story, rng: random.Random) -> str:
    if rng.random() < 0.15:
        return punctuate(sentence_case(expand(rng.choice(ANY_REQUESTS), rng, {})))
    question = expand(rng.choice(REQUESTS), rng, {"about": _about(told, rng)})
    return punctuate(sentence_case(question))


def _about(told: Story, rng: random.Random) -> str:
    """What a story is about: its hero, both friends, its topic, or hero and topic."""
    hero, friend = told.hero, told.friend
    if told.plot.topic == "learning something new":  # its items are no things
        return rng.choice((with_article(hero.kind), told.plot.topic, *told.plot.also))
    a_hero, a_friend = with_article(hero.kind), with_article(friend.kind)
    return rng.choice(
        (
            a_hero,
            a_hero,
            with_article(f"{hero.adjective} {hero.kind}"),
            f"{a_hero} and {a_friend}",
            f"{a_hero} named {hero.name}",
            f"{a_hero} called {hero.name}",
            hero.name,
            f"{a_hero} named {hero.name} and {with_article(told.item)}",
            f"{a_hero} and {with_article(told.item)}",
            told.plot.topic,
            rng.choice((told.plot.topic, *told.plot.also)),
            rng.choice((told.plot.topic, *told.plot.also)),
            f"{a_hero} and {told.plot.topic}",
        )
    )


def _questions(told: Story, rng: random.Random) -> list[Exchange]:
    """Who was in the story that was just told."""
    hero, friend = told.hero, told.friend
    asked = (
        (
            "[who was the story about|who is the hero|who was in the story|who was the hero|"
            "what was the hero called|what was the name of the hero|who is {hero}|who was {hero}]",
            f"It was about {hero.name}, {with_article(hero.kind)}.",
        ),
        (
            "[who was {hero}'s friend|who was the friend|what was the friend called|"
            "what was the name of the friend|who is {friend}|who was {friend}]",
            f"The friend was {friend.name}, {with_article(friend.kind)}.",
        ),
        ("[what was the story about|what was it about]", f"It was about {told.plot.topic}."),
    )
    slots = {"hero": hero.name, "friend": friend.name}
    return [
        Exchange(punctuate(sentence_case(expand(q, rng, slots))), answer, "about the story")
        for q, answer in rng.sample(asked, rng.choice((1, 1, 2)))
    ]
