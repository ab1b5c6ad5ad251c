"""Short stories for the embedded model: a hero, a friend, a problem, a try, a good end."""

from __future__ import annotations

import random
from dataclasses import dataclass

from demo_grammar import expand, with_article, words
from demo_plots import PLOTS, Plot

GIRLS = words(
    "Anna Lily Mia Emma Sara Nora Lucy Ella Ruby Rosa Clara Zoe Mary Alice Grace Ivy Maya Eva Tina "
    "Hanna Julia Lena Kate Olivia"
)
BOYS = words(
    "Tom Ben Max Leo Sam Jack Tim Oscar Felix Paul Noah Adam Luke Peter Henry Theo Finn Emil Hugo "
    "Daniel Oliver David Jonas Robin"
)
SHE_ANIMALS = words("Daisy Bella Luna Molly Poppy Hazel Willow Penny Coco Dotty")
HE_ANIMALS = words("Rusty Bruno Pip Milo Toby Fluff Teddy Biscuit Barney Ollie")
ANIMALS = words("cat dog fox rabbit bear mouse owl hedgehog duck dragon squirrel frog penguin")
ADJECTIVES = words(
    "little young small kind brave curious clever cheerful shy gentle funny quiet friendly"
)

OPENINGS = (
    "Once upon a time, there [was|lived] {a_hero} named {hero}. {He} lived {home}.",
    "Once upon a time, there was {a_hero} named {hero} who lived {home}.",
    "Once upon a time, {a_hero} named {hero} lived {home}.",
    "Once upon a time, {home}, there lived {a_hero} named {hero}.",
    "There once was {a_hero} named {hero}. {He} lived {home}.",
    "{hero} was {a_hero}. {He} lived {home}.",
    "Long ago, {a_hero} named {hero} lived {home}.",
    "This is the story of {hero}, {a_hero} who lived {home}.",
)
HOMES = (
    "in a [small|little|cosy|white|yellow] house [near the forest|by the river|on a hill|in the "
    "town]",
    "in a [quiet|pretty|busy] village [by the sea|near the mountains|in the valley]",
    "on a [small|big|sunny] farm [at the foot of a hill|near the lake|behind the woods]",
    "[beside a blue lake|at the edge of the forest|near a wide green meadow|next to an old mill]",
)
HERO_TRAITS = (
    "{He} [loved|liked] [to sing|to draw|to read|to run|to dance|to climb|to tell jokes|to "
    "explore].",
    "{He} was always [happy|busy|cheerful|ready to help], and everyone liked {him}.",
)
FRIENDSHIPS = (
    "{His} best friend was {a_friend} named {friend}.",
    "{He} had a good friend, {a_friend} named {friend}.",
    "{He} and {his} friend {friend} [did everything together|played together every day].",
    "Every day {he} [played|went for a walk|had fun] with {his} friend {friend}.",
)
DAYS = (
    "One [sunny|bright|warm|quiet|cool|fine|windy] [morning|afternoon|day],",
    "One day,",
    "One [Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday],",
)
ENDINGS = (
    "From that day on, {hero} and {friend} were [even better|the best of] friends.",
    "That [night|evening], {hero} [went to bed|fell asleep] with a [big|happy|warm] smile.",
    "And they all lived happily ever after.",
    "{hero} [never forgot|always remembered] that [happy|special|wonderful] day.",
    "It was the best day {hero} had ever had.",
    "The end.",
    "They [laughed|sang|talked] until [bedtime|the sun went down|the stars came out].",
)


@dataclass(frozen=True)
class Person:
    """Somebody in a story: a name, what they are, and their pronouns."""

    name: str
    kind: str
    is_female: bool

    @property
    def pronouns(self) -> tuple[str, str, str]:
        """Subject, object and possessive."""
        return ("she", "her", "her") if self.is_female else ("he", "him", "his")


@dataclass(frozen=True)
class Story:
    """A story's text, what it is about, and the combination that it stands for."""

    text: str
    hero: Person
    plot: Plot
    key: str


def tell(rng: random.Random) -> Story:
    """Tell one story; `key` names its plot, hero and item: whole combinations can be held out."""
    hero = person(rng)
    friend = _somebody_else(hero, rng)
    plot = rng.choice(PLOTS)
    item = expand(rng.choice(plot.items), rng, {})
    slots = _slots(hero, friend, item, rng)
    parts = [
        rng.choice(OPENINGS),
        rng.choice(HERO_TRAITS),
        rng.choice(FRIENDSHIPS),
        f"{rng.choice(DAYS)} {rng.choice(plot.setup)}",
        rng.choice(plot.problem),
        rng.choice(plot.attempt),
        rng.choice(plot.resolution),
        rng.choice(plot.lesson),
        rng.choice(ENDINGS),
    ]
    text = " ".join(expand(part, rng, slots) for part in parts)
    return Story(text, hero, plot, key=f"{plot.topic}/{hero.name}/{item}")


def person(rng: random.Random) -> Person:
    """Invent somebody: a girl, a boy, or an animal that talks."""
    is_female = rng.random() < 0.5
    if rng.random() < 0.6:
        return Person(
            rng.choice(GIRLS if is_female else BOYS), "girl" if is_female else "boy", is_female
        )
    return Person(
        rng.choice(SHE_ANIMALS if is_female else HE_ANIMALS), rng.choice(ANIMALS), is_female
    )


def _somebody_else(hero: Person, rng: random.Random) -> Person:
    """A friend of another name and another kind, so that no sentence is about two foxes."""
    while True:
        friend = person(rng)
        if friend.name != hero.name and (friend.kind != hero.kind or hero.kind in ("girl", "boy")):
            return friend


def _slots(hero: Person, friend: Person, item: str, rng: random.Random) -> dict[str, str]:
    he, him, his = hero.pronouns
    friend_he, friend_him, friend_his = friend.pronouns
    return {
        "hero": hero.name,
        "a_hero": with_article(f"{rng.choice(ADJECTIVES)} {hero.kind}"),
        "he": he,
        "him": him,
        "his": his,
        "He": he.title(),
        "His": his.title(),
        "friend": friend.name,
        "a_friend": with_article(f"{rng.choice(ADJECTIVES)} {friend.kind}"),
        "friend_he": friend_he,
        "friend_him": friend_him,
        "friend_his": friend_his,
        "Friend_he": friend_he.title(),
        "home": expand(rng.choice(HOMES), rng, {}),
        "item": item,
        "an_item": with_article(item),
    }
