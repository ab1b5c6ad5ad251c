"""Short stories for the embedded model: a hero, a friend, a problem, a try, a good end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

from demo_grammar import expand, with_article, words
from demo_names import BOYS, GIRLS, HE_ANIMALS, SHE_ANIMALS, boy, girl, pet, usual_name
from demo_plot import Plot
from demo_plots_far import FAR_PLOTS
from demo_plots_home import HOME_PLOTS
from demo_plots_outside import OUTSIDE_PLOTS
from demo_split import is_held_out
from demo_unknown import nonsense

PLOTS: tuple[Plot, ...] = (*HOME_PLOTS, *OUTSIDE_PLOTS, *FAR_PLOTS)
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
)
HERO_TRAITS = (
    "{He} [loved|liked] [to sing|to draw|to read|to run|to dance|to climb|to tell jokes|to "
    "explore].",
    "{He} was always [happy|busy|cheerful|ready to help], and everyone liked {him}.",
)
FRIENDSHIPS = (
    "{His} best friend was {a_friend} named {friend}.",
    "{He} had a good friend, {a_friend} named {friend}.",
    "{His} friend was {a_friend} named {friend}. They [did everything|played] together.",
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
_SHARE_OF_USUAL = 0.4  # so that the likeliest story differs from hero to hero and plot to plot
_SHARE_OF_NEW_NAMES = 0.4


@dataclass(frozen=True)
class Theme:
    """What a story is to be about: its plot, or, if there is none, something that is loved."""

    about: str
    plot: Plot | None = None


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
    item = expand(rng.choice(plot.items), rng, {})
    slots = _slots(hero, friend, item, rng) | {"about": theme.about if theme else ""}
    if is_short:
        parts = [rng.choice(SHORT)]
    else:
        parts = [
            *_opening(theme, is_plain, rng),
            rng.choice(FRIENDSHIPS),
            f"{rng.choice(DAYS)} {rng.choice(plot.setup)}",
            rng.choice(plot.problem),
            rng.choice(plot.attempt),
            rng.choice(plot.resolution),
            rng.choice(plot.lesson),
            rng.choice(ENDINGS),
        ]
    text = " ".join(expand(part, rng, slots) for part in parts)
    return Story(text, hero, friend, plot, item, theme)


def person(rng: random.Random, kind: str | None = None) -> Person:
    """Invent somebody: a person, an animal that talks, or a thing that does."""
    kind = kind or _kind(rng)
    is_animal = kind in ANIMALS or (kind in ANYBODY and rng.random() < 0.3)
    usual = usual_name(kind, (*SHE_ANIMALS, *HE_ANIMALS) if is_animal else _people(kind))
    is_female = usual in GIRLS or usual in SHE_ANIMALS
    adjective = rng.choice(ADJECTIVES)
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


def _hero_and_plot(theme: Theme | None, rng: random.Random) -> tuple[Person, Plot]:
    """A hero that suits the plot, or a plot that suits the hero, and now and then neither."""
    is_usual = rng.random() < _SHARE_OF_USUAL
    if theme and theme.plot:
        cast = theme.plot.cast.split()
        return person(rng, rng.choice(cast) if is_usual else None), theme.plot
    hero = person(rng)
    suitable = [plot for plot in PLOTS if hero.kind in plot.cast.split()]
    return hero, rng.choice(suitable if suitable and is_usual else PLOTS)


def _opening(theme: Theme | None, is_plain: bool, rng: random.Random) -> tuple[str, str]:
    if theme is None:
        return rng.choice(OPENINGS + PLAIN_OPENINGS * is_plain), rng.choice(HERO_TRAITS)
    if theme.plot:
        return rng.choice(THEME_OPENINGS), rng.choice(HERO_TRAITS)
    return rng.choice(LOVE_OPENINGS), rng.choice(LOVES)


def _somebody_else(hero: Person, rng: random.Random) -> Person:
    """A friend of another name and another kind, so that no sentence is about two foxes."""
    while True:
        friend = person(rng)
        if friend.is_known and friend.name != hero.name and friend.kind != hero.kind:
            return friend


def _slots(hero: Person, friend: Person, item: str, rng: random.Random) -> dict[str, str]:
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
        "home": expand(rng.choice(HOMES), rng, {}),
        "item": item,
        "an_item": with_article(item),
    }
