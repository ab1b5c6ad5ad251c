"""Short stories for the embedded model: a hero, a friend, a problem, a try, a good end."""

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
from demo_split import is_held_out
from demo_themes import PLOTS, Theme, own_theme
from demo_unknown import nonsense

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
HOMES = (
    "in a [small|little|cosy|white|yellow] house [near the forest|by the river|on a hill|in the "
    "town]",
    "in a [quiet|pretty|busy] village [by the sea|near the mountains|in the valley]",
    "on a [small|big|sunny] farm [at the foot of a hill|near the lake|behind the woods]",
    "[beside a blue lake|at the edge of the forest|near a wide green meadow|next to an old mill]",
    "[in a castle|in a cave|on an island|in the jungle|in a big city|on a ship|in the desert|"
    "in a tree house|under a bridge|in a lighthouse|in the mountains|at the zoo|in a tower]",
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
SHORT = (
    "Once upon a time, {a_hero} named {hero} met {a_friend} named {friend}, and they "
    "became friends.",
    "Once upon a time, {a_hero} named {hero} got lost, but {friend} brought {him} home.",
    "Once upon a time, {a_hero} named {hero} learned to sing and made {his} friend {friend} happy.",
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
_SHARE_OF_USUAL = 0.45  # so that the likeliest story differs from hero to hero and plot to plot
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
    friend = _somebody_else(hero, rng)
    item = theme.item if theme and theme.item else _item(plot, hero, rng)
    voice = f"voice {zlib.crc32(hero.kind.encode()) % _NUM_VOICES}"
    home = _drawn(HOMES, f"home of {voice}", rng)
    slots = _slots(hero, friend, item, theme or own_theme(plot, item)) | {"home": home}
    if is_short:
        parts = [rng.choice(SHORT)]
    else:
        parts = [
            *_opening(theme, is_plain, voice, rng),
            _drawn(FRIENDSHIPS, f"friendship of {voice}", rng),
            _drawn(DAYS, f"day of {voice}", rng),
            *(chosen(rng.choice(step), rng) for step in plot.steps),
            _drawn(THEME_ENDINGS + ENDINGS * (theme is None), f"end of {voice}", rng),
        ]
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
    if theme:
        suits = is_usual or (not theme.item and rng.random() < 0.4)
        kind = _drawn(theme.plot.cast.split(), theme.about, rng) if suits else None
        return person(rng, kind), theme.plot
    hero = person(rng)
    suitable = [plot for plot in PLOTS if hero.kind in plot.cast.split()]
    return hero, rng.choice(suitable if suitable and is_usual else PLOTS)


def _item(plot: Plot, hero: Person, rng: random.Random) -> str:
    return _drawn(plot.items, f"what a {hero.kind} has in {plot.topic}", rng)


def _opening(
    theme: Theme | None, is_plain: bool, voice: str, rng: random.Random
) -> tuple[str, str]:
    trait = _drawn(HERO_TRAITS, f"trait of {voice}", rng)
    if theme is None:
        return _drawn(OPENINGS + PLAIN_OPENINGS * is_plain, f"opening of {voice}", rng), trait
    if theme.plot not in TOPIC_PLOTS:
        return _drawn(THEME_OPENINGS, f"theme of {voice}", rng), trait
    return _drawn(LOVE_OPENINGS, f"opening of {voice}", rng), _drawn(LOVES, voice, rng)


def _somebody_else(hero: Person, rng: random.Random) -> Person:
    """A friend of another name and another kind, so that no sentence is about two foxes."""
    is_usual = rng.random() < _SHARE_OF_USUAL
    source = random.Random(f"the friend of a {hero.kind}") if is_usual else rng
    while True:
        friend = person(source)
        if friend.is_known and friend.name != hero.name and friend.kind != hero.kind:
            return friend


def _slots(hero: Person, friend: Person, item: str, theme: Theme) -> dict[str, str]:
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
        "He": he.title(),
        "His": his.title(),
        "friend": friend.name,
        "a_friend": with_article(f"{friend.adjective} {friend.kind}"),
        "friend_he": friend_he,
        "friend_him": friend_him,
        "friend_his": friend_his,
        "Friend_he": friend_he.title(),
        "item": item,
        "an_item": with_article(item),
        "about": theme.about,
        "as_known": theme.as_known,
    }
