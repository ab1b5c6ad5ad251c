"""Chats about stories: asking for one about something, for another, and who was in it."""

from __future__ import annotations

import random

from demo_exchange import Exchange, punctuate
from demo_grammar import expand, sentence_case, with_article
from demo_stories import KINDS, KNOWN_NAMES, Story, tell
from demo_talk import AGAIN, OFFER
from demo_themes import theme
from demo_virtues import VIRTUES

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
    "[tell|write] me a [|short |nice |bedtime |funny ]story",
    "[can|could] you tell me a [|short ]story",
    "do you know a [|good |nice ]story",
    "tell [a|another|me any] story",
    "a story, please",
    "[story|story time|bedtime story|once upon a time|a fairy tale]",
    "I want [to hear |]a story",
    "I'm bored. Tell me a story",
    "tell me something [nice|beautiful|exciting|interesting|new]",
    "[tell me|read me|write] a [fairy tale|tale|bedtime story]",
    "[entertain me|make up a story|surprise me|cheer me up]",
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
        exchanges.append(Exchange(question, _any_story(rng).text, "another story"))
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
        told = tell(rng, theme(rng, KINDS))
        if told.is_held_out == is_held_out:
            return told


def _any_story(rng: random.Random) -> Story:
    """A story that nothing was asked of."""
    while True:
        told = tell(rng)
        if told.hero.is_known and told.is_told_by_its_hero and not told.is_held_out:
            return told


def _asked(told: Story, rng: random.Random) -> list[Exchange]:
    """The request, at once or after an offer."""
    chance = rng.random()
    if chance < 0.85:
        return [Exchange(_request(told, rng), told.text, "story")]
    is_for_anybody = told.theme is None and told.hero.is_known and told.is_told_by_its_hero
    if chance < 0.92 and is_for_anybody:
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
    is_for_anybody = told.theme is None and told.hero.is_known and told.is_told_by_its_hero
    if is_for_anybody and rng.random() < 0.25:
        return punctuate(sentence_case(expand(rng.choice(ANY_REQUESTS), rng, {})))
    question = expand(rng.choice(REQUESTS), rng, {"about": _about(told, rng)})
    return punctuate(sentence_case(question))


def _about(told: Story, rng: random.Random) -> str:
    """What a story is asked to be about: its theme, its hero, or the hero and what happens."""
    if told.theme is not None:
        return _about_theme(told, rng)
    hero, friend = told.hero, told.friend
    a_hero, a_friend = with_article(hero.kind), with_article(friend.kind)
    named = _named(told, rng)
    if not told.is_told_by_its_hero:
        asked_for = a_hero if hero.name in KNOWN_NAMES else named
        return " ".join(
            expand(f"{asked_for} {rng.choice(told.plot.asked)}", rng, told.slots).split()
        )
    if hero.name not in KNOWN_NAMES:
        return rng.choice((named, named, named, hero.name, f"{named} and {a_friend}"))
    an_adjective_hero = with_article(f"{hero.adjective} {hero.kind}")
    abouts = [f"{a_hero} {rng.choice(told.plot.asked)}"] * 3 if told.plot.asked else []
    abouts += [a_hero, a_hero, a_hero, a_hero, an_adjective_hero, an_adjective_hero]
    abouts += [named, named, f"{a_hero} and {a_friend}"]
    abouts += [f"{a_hero} and {a_friend} named {friend.name}"]
    abouts += [f"{a_hero} {told.slots['home']}", f"{a_hero} who lives {told.slots['home']}"]
    if hero.kind in KINDS:
        abouts += [hero.name, f"{hero.name} and {friend.name}"]
    return " ".join(expand(rng.choice(abouts), rng, told.slots).split())


def _about_theme(told: Story, rng: random.Random) -> str:
    """The theme, alone or with the hero; a hero of an unheard name or kind must be asked for."""
    assert told.theme is not None
    hero, about = told.hero, told.theme.about
    is_alone = rng.random() < (0.25 if told.theme.item else 0.65)
    if hero.is_known and is_alone:
        return about
    an_adjective_hero = with_article(f"{hero.adjective} {hero.kind}")
    a_hero = rng.choice((with_article(hero.kind), with_article(hero.kind), an_adjective_hero))
    if hero.name not in KNOWN_NAMES or rng.random() < 0.15:
        a_hero = _named(told, rng)
    between = ("and", "and", "and", "with")
    if told.theme.plot in VIRTUES:
        between = ("and", "and", "who learns about", "who thinks about")
    return f"{a_hero} {rng.choice(between)} {about}"


def _named(told: Story, rng: random.Random) -> str:
    called = rng.choice(("named", "named", "called"))
    return f"{with_article(told.hero.kind)} {called} {told.hero.name}"


def _questions(told: Story, rng: random.Random) -> list[Exchange]:
    """Who was in the story that was just told."""
    hero, friend = told.hero, told.friend
    about = told.theme.about if told.theme else told.plot.topic
    asked: tuple[tuple[str, str], ...] = (
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
        (
            "[what was the {kind}'s name|what was the name of the {kind}|"
            "what was the {kind} called|how was the {kind} called]",
            f"The {hero.kind}'s name was {hero.name}.",
        ),
        (
            "[what was the {friend_kind}'s name|what was the name of the {friend_kind}|"
            "what was the {friend_kind} called]",
            f"The {friend.kind}'s name was {friend.name}.",
        ),
        ("[what was the story about|what was it about]", f"It was about {about}."),
        (
            "[what happened then|what happened next|go on|and then|continue|is that all|tell me "
            "more|continue the story|how does it go on]",
            "That was the end. Ask me for another story!",
        ),
    )
    if told.slots["home"] in told.text:
        lived = f"{hero.name} lived {told.slots['home']}."
        asked += (("where did [{hero}|the {kind}] live", lived),)
    slots = {
        "hero": hero.name,
        "friend": friend.name,
        "kind": hero.kind,
        "friend_kind": friend.kind,
    }
    return [
        Exchange(punctuate(sentence_case(expand(q, rng, slots))), answer, "about the story")
        for q, answer in rng.sample(asked, rng.choice((1, 1, 2)))
    ]
