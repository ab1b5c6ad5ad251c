"""Short stories for the embedded model: a hero, a friend, a problem, a try, a good end.

Where the hero lives decides what can happen: a penguin's plots are of ice and sea, a dragon's of
fire and treasure. Plots of things, such as a lost key, go with any hero, who must be asked for.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from demo_grammar import chosen, with_article, words
from demo_names import BOYS, GIRLS, HE_ANIMALS, SHE_ANIMALS, boy, girl, pet, usual_name
from demo_plot import Plot
from demo_plots_topic import TOPIC_PLOTS
from demo_plots_worlds import WORLD_PLOTS
from demo_split import is_held_out
from demo_themes import PLOTS, Theme, own_theme
from demo_unknown import nonsense
from demo_virtues import VIRTUES
from demo_worlds import World, world_of

ANIMALS = words(
    "cat dog fox rabbit bear mouse owl hedgehog duck dragon squirrel frog penguin lion tiger "
    "elephant horse cow pig sheep goat wolf monkey giraffe zebra turtle snail bee butterfly spider "
    "fish whale dolphin bird parrot crow swan hamster pony unicorn dinosaur kitten puppy panda "
    "koala kangaroo crocodile snake camel deer donkey mole otter seal shark ant ladybird bat "
    "raven goose hen rooster beaver badger lamb piglet octopus crab worm lizard rat eagle robin"
)
WOMEN = words(
    "girl princess queen witch fairy mermaid woman grandmother waitress girl girl girl sister"
)
MEN = words("boy prince king wizard man grandfather knight boy boy boy monk brother")
ANYBODY = words(
    "pirate robot farmer baker giant monster astronaut teacher doctor cook sailor painter ghost "
    "child alien clown elf dwarf troll singer hunter miller gardener scientist detective ninja "
    "tree cloud star teapot car train boat tractor cactus pumpkin snowman computer clock shoe "
    "spoon chair flower leaf stone balloon lamp umbrella toaster book pencil bicycle rocket"
)
KINDS = frozenset((*ANIMALS, *WOMEN, *MEN, *ANYBODY))
KNOWN_NAMES = frozenset((*GIRLS, *BOYS, *SHE_ANIMALS, *HE_ANIMALS))
ADJECTIVES = words(
    "little young small kind brave curious clever cheerful shy gentle funny quiet friendly lazy "
    "sleepy lonely happy tiny hungry strong old proud polite"
)

OPENINGS = (
    "Once upon a time, there [was|lived] {a_hero} named {hero}. {He} lived {home}.",
    "Once upon a time, there was {a_hero} named {hero} who lived {home}.",
    "Once upon a time, {a_hero} named {hero} lived {home}.",
    "Once upon a time, {home}, there lived {a_hero} named {hero}.",
    "There once was {a_hero} named {hero}. {He} lived {home}.",
    "Long ago, {a_hero} named {hero} lived {home}.",
    "This is the story of {hero}, {a_hero} who lived {home}.",
)
PLAIN_OPENINGS = (
    "{hero} was {a_hero}. {He} lived {home}.",
    "One day, {a_hero} named {hero} woke up early. {He} lived {home}.",
    "{A_hero} named {hero} lived {home}.",
    "The sun was [shining|warm|bright]. {hero}, {a_hero}, came out of {his} home.",
    "In a [land|country] far away, there was {a_hero} named {hero}. {He} lived {home}.",
)
WORLD_TRAITS = (
    "{He} [loved|liked] to {love}.",
    "Most of all {he} [loved|liked] to {love}.",
    "Every day {he} wanted to {love}.",
)
HERO_TRAITS = (
    "{He} [loved|liked] [to sing|to draw|to read|to run|to dance|to climb|to tell jokes|to "
    "explore|to swim|to cook|to count the stars|to help others].",
    "{He} was always [happy|busy|cheerful|ready to help|in a good mood], and everyone liked {him}.",
    "{He} [wanted to see the world|had a big heart|was never bored|laughed a lot|asked many "
    "questions|was afraid of nothing|slept until noon].",
)
FRIENDSHIPS = (
    "{His} best friend was {a_friend} named {friend}.",
    "{He} had a good friend, {a_friend} named {friend}.",
    "{His} friend was {a_friend} named {friend}. They [did everything|played] together.",
    "Next door lived {a_friend} named {friend}, {his} [good|best] friend.",
    "{He} was never alone, because {he} had a friend, {a_friend} named {friend}.",
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
    "And {hero} and {friend} lived happily {home}.",
    "They [laughed|sang|talked] until [bedtime|the sun went down|the stars came out].",
)
SHORT = (  # another beginning than a long story's, so that neither turns into the other
    "In short: {a_hero} named {hero} met {a_friend} named {friend}, and they became friends.",
    "In short: {a_hero} named {hero} got lost, but {friend} brought {him} home.",
    "In short: {a_hero} named {hero} learned to sing and made {his} friend {friend} happy.",
)
THEME_OPENINGS = (
    "Here is a story about {about}. Once upon a time, {a_hero} named {hero} lived {home}.",
    "This is a story about {about}. There once was {a_hero} named {hero}, who lived {home}.",
    "This is a story about {about} and about {a_hero} named {hero}. {He} lived {home}.",
    "This is the story of {hero}, {a_hero}, and of {as_known}. {He} lived {home}.",
)
THEME_ENDINGS = (
    "And that was the story about {hero} and {as_known}.",
    "{hero} and {friend} [still talk about|never forgot] {as_known}.",
    "Whenever {hero} thought of {as_known}, {he} [smiled|had to laugh|was happy].",
    "Even years later, {hero} liked to talk about {as_known}.",
    "And if you ask {hero} about {as_known}, {he} will tell you this story.",
    "That night, {hero} dreamed of {as_known} and smiled.",
)
LOVE_OPENINGS = (
    "Once upon a time, there was {a_hero} named {hero}. {He} loved {about}.",
    "Once upon a time, {a_hero} named {hero} lived {home}. {He} loved {about}.",
    "There once was {a_hero} named {hero} who loved {about}.",
)
LOVES = (
    "{He} thought about {about} all day long.",
    "{He} always talked about {about}, and everyone liked {him}.",
)
TURNS = (  # what a story with a virtue is going to turn on
    "{He} did not know yet what {virtue} means.",
    "This is how {hero} learned about {virtue}.",
    "But {he} still had to learn something about {virtue}.",
)
PLACES = (  # what a story of a world is going to turn on
    "This is a story of what happened {place}.",
    "Nobody knew yet what was going to happen {place}.",
    "But something was going to happen {place}.",
)
SIGHTS = (
    "That [evening|night] {sight}.",
    "When [the day was over|it got dark], {sight}.",
    "In the evening {sight}.",
    "And while they [laughed|sat together|went home], {sight}.",
)
_SHARE_OF_OTHER_PLOTS = 0.1  # those of things, for heroes that were asked for with what happens
_SHARE_OF_WORLD_PLOTS = 0.6
_SHARE_OF_NEIGHBOURS = 0.75  # friends from the hero's world
_SHARE_OF_USUAL = 0.45  # so that the likeliest story differs from hero to hero and plot to plot
_DRAWN_TOGETHER = (  # slots of a world, those together whose alternatives belong to each other
    *(("home",), ("love",), ("place",), ("treat",), ("toy",), ("work",), ("learn",), ("fail",)),
    *(("trouble", "fear", "brave"), ("stranger", "help"), ("wait",), ("sight",)),
)
_ASKED_PLOTS = tuple(plot for plot in PLOTS if plot.asked)
_NUM_VOICES = 12  # ways to tell that a hero may have
_SHARE_OF_NEW_NAMES = 0.4


@dataclass(frozen=True)
class Person:
    """Somebody in a story: a name, what they are, what they are like, and their pronouns."""

    name: str
    kind: str
    adjective: str
    is_female: bool

    @property
    def is_known(self) -> bool:
        """Whether a story may have them unasked: names and kinds of the tables."""
        return self.name in KNOWN_NAMES and self.kind in KINDS

    @property
    def pronouns(self) -> tuple[str, str, str]:
        """Subject, object and possessive."""
        return ("she", "her", "her") if self.is_female else ("he", "him", "his")


@dataclass(frozen=True)
class Story:
    """A story's text, who it is about, and what happens."""

    text: str
    hero: Person
    friend: Person
    plot: Plot
    item: str
    slots: Mapping[str, str]
    theme: Theme | None = None

    @property
    def is_told_by_its_hero(self) -> bool:
        """Whether it happens in the hero's world, so that the hero alone may ask for it."""
        return self.plot in VIRTUES or self.plot not in (*PLOTS, *TOPIC_PLOTS)

    @property
    def is_held_out(self) -> bool:
        """Whether this plot with this hero and this item is never trained on."""
        return is_held_out(f"{self.plot.topic}/{self.hero.kind}/{self.item}")


def tell(
    rng: random.Random,
    theme: Theme | None = None,
    *,
    is_plain: bool = False,
    is_short: bool = False,
) -> Story:
    """Tell one story; a plain one may begin in more ways, a short one has one sentence."""
    hero, plot = _hero_and_plot(theme, rng)
    world = world_of(hero.kind)
    friend = _somebody_else(hero, world, rng)
    voice = f"voice {zlib.crc32(hero.kind.encode()) % _NUM_VOICES}"
    slots = _slots(hero, friend)
    slots |= _of_the_world(world, slots, rng)
    item = theme.item if theme and theme.item else _item(plot, hero, rng).format_map(slots)
    said = theme or own_theme(plot, item)
    slots |= _of_the_theme(item, said) | {"virtue": plot.topic}
    if is_short:
        parts = [rng.choice(SHORT)]
    else:
        parts = [
            *_opening(said if theme or plot in PLOTS else None, is_plain, voice, rng),
            _drawn(FRIENDSHIPS, f"friendship of {voice}", rng),
            *_turn(plot, voice, rng),
            _drawn(DAYS, f"day of {voice}", rng),
            *(chosen(rng.choice(step), rng) for step in plot.steps),
        ]
        if plot not in (*PLOTS, *TOPIC_PLOTS):
            parts.append(_drawn(SIGHTS, f"sight of {voice}", rng))
        parts.append(_drawn(THEME_ENDINGS + ENDINGS * (theme is None), f"end of {voice}", rng))
    text = " ".join(parts).format_map(slots)
    return Story(text, hero, friend, plot, item, slots, theme)


def person(rng: random.Random, kind: str | None = None) -> Person:
    """Invent somebody: a person, an animal that talks, or a thing that does."""
    kind = kind or _kind(rng)
    is_animal = kind in ANIMALS or (kind in ANYBODY and rng.random() < 0.3)
    usual = usual_name(kind, (*SHE_ANIMALS, *HE_ANIMALS) if is_animal else _people(kind))
    is_female = usual in GIRLS or usual in SHE_ANIMALS
    adjective = _drawn(ADJECTIVES, f"what a {kind} is like", rng)
    if rng.random() < _SHARE_OF_USUAL:
        return Person(usual, kind, adjective, is_female)
    if kind not in WOMEN + MEN:
        is_female = rng.random() < 0.5
    is_new = rng.random() < _SHARE_OF_NEW_NAMES
    draw_name = partial(pet, is_female=is_female) if is_animal else (girl if is_female else boy)
    return Person(draw_name(rng, is_new=is_new), kind, adjective, is_female)


def _kind(rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.3:
        return rng.choice(WOMEN if chance < 0.15 else MEN)
    if chance < 0.94:
        return rng.choice(ANIMALS if chance < 0.75 else ANYBODY)
    return nonsense(rng)  # so that any word in a request is copied


def _people(kind: str) -> tuple[str, ...]:
    """The names that fit a person of a kind."""
    if kind in WOMEN:
        return GIRLS
    return BOYS if kind in MEN else GIRLS + BOYS


def _drawn(options: Sequence[str], key: str, rng: random.Random) -> str:
    """One of the options with its choices made: by chance, or, often, by the key alone."""
    source = random.Random(key) if rng.random() < _SHARE_OF_USUAL else rng
    return chosen(source.choice(options), source)


def _hero_and_plot(theme: Theme | None, rng: random.Random) -> tuple[Person, Plot]:
    """A hero that suits the plot, or a plot that suits the hero, and now and then neither."""
    is_usual = rng.random() < _SHARE_OF_USUAL
    if theme and theme.plot in VIRTUES:
        return person(rng), theme.plot
    if theme:
        suits = is_usual or (not theme.item and rng.random() < 0.4)
        kind = _drawn(theme.plot.cast.split(), theme.about, rng) if suits else None
        return person(rng, kind), theme.plot
    hero = person(rng)
    if rng.random() < _SHARE_OF_OTHER_PLOTS:
        suitable = [plot for plot in _ASKED_PLOTS if hero.kind in plot.cast.split()]
        return hero, rng.choice(suitable if suitable and is_usual else _ASKED_PLOTS)
    source = random.Random(f"plot of a {hero.kind}") if is_usual else rng
    is_own = source.random() < _SHARE_OF_WORLD_PLOTS
    return hero, source.choice(WORLD_PLOTS[world_of(hero.kind).name] if is_own else VIRTUES)


def _item(plot: Plot, hero: Person, rng: random.Random) -> str:
    return _drawn(plot.items, f"what a {hero.kind} has in {plot.topic}", rng)


def _opening(
    theme: Theme | None, is_plain: bool, voice: str, rng: random.Random
) -> tuple[str, str]:
    traits = HERO_TRAITS if rng.random() < 0.3 else WORLD_TRAITS
    trait = _drawn(traits, f"trait of {voice}", rng)
    if theme is None:
        return _drawn(OPENINGS + PLAIN_OPENINGS * is_plain, f"opening of {voice}", rng), trait
    if theme.plot not in TOPIC_PLOTS:
        return _drawn(THEME_OPENINGS, f"theme of {voice}", rng), trait
    return _drawn(LOVE_OPENINGS, f"opening of {voice}", rng), _drawn(LOVES, voice, rng)


def _turn(plot: Plot, voice: str, rng: random.Random) -> tuple[str, ...]:
    """What is going to matter, so that one word decides between a world's plots and others."""
    if plot in VIRTUES:
        return (_drawn(TURNS, f"turn of {voice}", rng),)
    if plot in (*PLOTS, *TOPIC_PLOTS):
        return ()
    return (_drawn(PLACES, f"place of {voice}", rng),)


def _somebody_else(hero: Person, world: World, rng: random.Random) -> Person:
    """A friend of another name and another kind, so that no sentence is about two foxes."""
    is_usual = rng.random() < _SHARE_OF_USUAL
    source = random.Random(f"the friend of a {hero.kind}") if is_usual else rng
    is_neighbour = source.random() < _SHARE_OF_NEIGHBOURS
    while True:
        friend = person(source, source.choice(world.heroes.split()) if is_neighbour else None)
        if friend.is_known and friend.name != hero.name and friend.kind != hero.kind:
            return friend


def _slots(hero: Person, friend: Person) -> dict[str, str]:
    he, him, his = hero.pronouns
    friend_he, friend_him, friend_his = friend.pronouns
    a_hero = with_article(f"{hero.adjective} {hero.kind}")
    return {
        "hero": hero.name,
        "a_hero": a_hero,
        "A_hero": a_hero[0].upper() + a_hero[1:],
        "he": he,
        "him": him,
        "his": his,
        "himself": "herself" if hero.is_female else "himself",
        "He": he.title(),
        "His": his.title(),
        "friend": friend.name,
        "a_friend": with_article(f"{friend.adjective} {friend.kind}"),
        "friend_he": friend_he,
        "friend_him": friend_him,
        "friend_his": friend_his,
        "Friend_he": friend_he.title(),
    }


def _of_the_world(world: World, people: Mapping[str, str], rng: random.Random) -> dict[str, str]:
    """Where the hero lives, and what there is to do and to fear."""
    slots: dict[str, str] = {}
    for names in _DRAWN_TOGETHER:
        chance = rng.random()
        for name in names:
            options = getattr(world, name).split(";")
            slots[name] = options[int(chance * len(options))].format_map(people)
    slots |= {f"a_{thing}": with_article(slots[thing]) for thing in ("treat", "toy", "stranger")}
    return slots | {"A_treat": slots["a_treat"][0].upper() + slots["a_treat"][1:]}


def _of_the_theme(item: str, theme: Theme) -> dict[str, str]:
    return {
        "item": item,
        "an_item": with_article(item),
        "about": theme.about,
        "as_known": theme.as_known,
    }
