"""Names of people and animals: common ones, and invented ones, so that copying is learned."""

from __future__ import annotations

import random
import zlib

from demo_grammar import words
from demo_split import is_held_out

GIRLS = words(
    "Anna Lily Mia Emma Sara Nora Lucy Ella Ruby Rosa Clara Zoe Mary Alice Grace Ivy Maya Eva Tina "
    "Hanna Julia Lena Kate Olivia Sophie Laura Nina Amy Jane Sally Betty Carol Diana Fiona Gina "
    "Heidi Irene Judy Karen Linda Marta Nancy Paula Rachel Susan Tessa Vera Wendy Yara Amira Aisha "
    "Priya Mei Yuki Ingrid Freya Chloe Megan Holly Jenny Stella Elena Sofia Carmen Lucia Ines "
    "Camille Elise Zara Leila Fatima Naomi Miriam Esther Ruth Martha Helen Monica Erica Sandra "
    "Barbara Angela Bianca Celia Dora Edith Frida Greta Hilda Iris Josie Kim Lola Mona Nelly"
)
BOYS = words(
    "Tom Ben Max Leo Sam Jack Tim Oscar Felix Paul Noah Adam Luke Peter Henry Theo Finn Emil Hugo "
    "Daniel Oliver David Jonas Robin Alex Bob Carl Dan Eric Frank George Harry Ian James Kevin "
    "Liam Mark Nick Owen Philip Quinn Ryan Simon Tony Victor Walter Xavier Zack Ahmed Omar Ali "
    "Hassan Raj Arjun Chen Kenji Lars Sven Anders Pedro Carlos Miguel Diego Juan Marco Luca Mario "
    "Pierre Jean Louis Antoine Ivan Boris Igor Stefan Martin Thomas Michael Robert William Richard "
    "Joseph Charles Edward Albert Arthur Bruce Chris Derek Elliot Fred Gavin Isaac Jacob Kurt John"
)
SHE_ANIMALS = words(
    "Daisy Bella Luna Molly Poppy Hazel Willow Penny Coco Dotty Pearl Honey Rosie Tilly Ginger "
    "Snowy Misty Pixie Sandy Maple Cherry Olive Juno Fern Sunny Lulu"
)
HE_ANIMALS = words(
    "Rusty Bruno Pip Milo Toby Fluff Teddy Biscuit Barney Ollie Rex Rocky Buddy Bingo Spot Scout "
    "Sparky Bandit Bruce Chip Duke Ziggy Oreo Whiskers Basil Gus"
)
_STARTS = words("B Br C Ch D Dr F Fl G Gr H J K Kl L M N P Pr R S Sh St T Th Tr V W Y Z A E I O U")
_MIDDLES = words("a e i o u ar el in or an ai ee oo al en ir om us at et")
_LINKS = words("b d f g k l ll m n nn p r s t v z st nd rt lm x th")
_GIRL_ENDS = words("a ia ina elle ie etta ya isa ora une")
_BOY_ENDS = words("o us an ert in or am ek ard ias")


def girl(rng: random.Random, *, held_out: bool = False, is_new: bool | None = None) -> str:
    """A girl's name of one side of the split."""
    return _name(rng, GIRLS, _GIRL_ENDS, held_out, is_new)


def boy(rng: random.Random, *, held_out: bool = False, is_new: bool | None = None) -> str:
    """A boy's name of one side of the split."""
    return _name(rng, BOYS, _BOY_ENDS, held_out, is_new)


def pet(
    rng: random.Random, is_female: bool, *, held_out: bool = False, is_new: bool | None = None
) -> str:
    """An animal's name of one side of the split."""
    known = SHE_ANIMALS if is_female else HE_ANIMALS
    return _name(rng, known, _GIRL_ENDS if is_female else _BOY_ENDS, held_out, is_new)


def person_name(rng: random.Random, *, held_out: bool = False) -> str:
    """Any person's name of one side of the split."""
    return (girl if rng.random() < 0.5 else boy)(rng, held_out=held_out)


def usual_name(kind: str, known: tuple[str, ...]) -> str:
    """The name that somebody of a kind has most often in the stories."""
    told = [name for name in known if not is_held_out(name)]
    return told[zlib.crc32(kind.encode()) % len(told)]


def _name(
    rng: random.Random,
    known: tuple[str, ...],
    ends: tuple[str, ...],
    held_out: bool,
    is_new: bool | None,
) -> str:
    """A name that is known or, if it `is_new`, invented; None leaves that to chance."""
    while True:
        invents = rng.random() >= 0.65 if is_new is None else is_new
        name = _invent(rng, ends) if invents else rng.choice(known)
        if is_held_out(name) == held_out:
            return name


def _invent(rng: random.Random, ends: tuple[str, ...]) -> str:
    """A name that nobody has, of one to three syllables."""
    name = rng.choice(_STARTS)
    name += rng.choice(_MIDDLES) if name not in "AEIOU" else ""
    for _ in range(rng.choice((1, 1, 2))):
        name += rng.choice(_LINKS) + (rng.choice(_MIDDLES) if rng.random() < 0.3 else "")
    is_cut = rng.random() < 0.2  # so that the end of any name is copied, too
    return (name if is_cut else name + rng.choice(ends)).title()
