"""The facts that the embedded model is taught, as tables and the sentences that ask for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from demo_grammar import sentence_case, with_article, words

COLOURS = {
    "blue": ["the sky", "the sea", "a blueberry"],
    "green": ["grass", "a frog", "a cucumber", "a leaf"],
    "white": ["snow", "milk", "a swan", "a polar bear", "salt"],
    "yellow": ["a banana", "a lemon", "the sun", "a sunflower"],
    "red": ["a tomato", "a strawberry", "blood", "a fire engine", "a cherry"],
    "black": ["coal", "a raven", "the night"],
    "orange": ["a carrot", "a pumpkin", "an orange"],
    "brown": ["chocolate", "coffee", "a bear"],
    "grey": ["an elephant", "a mouse", "a dolphin"],
    "pink": ["a flamingo", "a pig"],
}
OPPOSITES = words(
    "hot-cold big-small up-down left-right day-night black-white old-new fast-slow happy-sad "
    "good-bad open-closed full-empty hard-soft wet-dry high-low long-short light-dark early-late "
    "near-far loud-quiet rich-poor strong-weak thick-thin clean-dirty yes-no first-last in-out "
    "easy-difficult true-false love-hate begin-end win-lose buy-sell question-answer"
)
CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Portugal": "Lisbon",
    "England": "London",
    "Ireland": "Dublin",
    "Austria": "Vienna",
    "Greece": "Athens",
    "Poland": "Warsaw",
    "Sweden": "Stockholm",
    "Norway": "Oslo",
    "Denmark": "Copenhagen",
    "Finland": "Helsinki",
    "Russia": "Moscow",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Canada": "Ottawa",
    "Mexico": "Mexico City",
    "Brazil": "Brasilia",
    "Peru": "Lima",
    "Australia": "Canberra",
}
SOUNDS = {
    "dog": "woof",
    "cat": "meow",
    "cow": "moo",
    "duck": "quack",
    "sheep": "baa",
    "pig": "oink",
    "frog": "ribbit",
    "rooster": "cock-a-doodle-doo",
    "owl": "hoo hoo",
    "bee": "buzz",
    "mouse": "squeak",
    "lion": "roar",
    "snake": "hiss",
}
YOUNG = {
    "dog": "puppy",
    "cat": "kitten",
    "cow": "calf",
    "sheep": "lamb",
    "horse": "foal",
    "duck": "duckling",
    "bear": "cub",
    "chicken": "chick",
    "frog": "tadpole",
    "goat": "kid",
    "swan": "cygnet",
}
LEGS = {
    "two": ["bird", "duck", "chicken", "penguin"],
    "four": ["dog", "cat", "horse", "cow", "elephant", "mouse", "table"],
    "six": ["ant", "bee", "butterfly", "beetle"],
    "eight": ["spider"],
    "no": ["snake", "fish", "worm"],
}
NUMBERS_OF = {
    "days in a week": "seven",
    "days in a year": "365",
    "months in a year": "twelve",
    "seasons in a year": "four",
    "hours in a day": "24",
    "minutes in an hour": "60",
    "seconds in a minute": "60",
    "weeks in a year": "52",
    "centimetres in a metre": "100",
    "metres in a kilometre": "1000",
    "grams in a kilogram": "1000",
    "letters in the alphabet": "26",
    "fingers on a hand": "five",
    "sides in a triangle": "three",
    "sides in a square": "four",
    "wheels on a bicycle": "two",
    "wheels on a car": "four",
}
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words(
    "January February March April May June July August September October November December"
)
OTHERS = {
    "What do bees make?": "Bees make honey.",
    "Where does milk come from?": "Milk comes from cows.",
    "Which planet do we live on?": "We live on the Earth.",
    "What is the largest animal?": "The largest animal is the blue whale.",
    "What is the tallest animal?": "The tallest animal is the giraffe.",
    "What is the fastest animal on land?": "The fastest animal on land is the cheetah.",
    "What is the highest mountain?": "The highest mountain is Mount Everest.",
    "What is the largest planet?": "The largest planet is Jupiter.",
    "What is the largest ocean?": "The largest ocean is the Pacific Ocean.",
    "What is ice made of?": "Ice is frozen water.",
    "What do cows eat?": "Cows eat grass.",
    "What do pandas eat?": "Pandas eat bamboo.",
    "Where do fish live?": "Fish live in water.",
    "Where does the sun rise?": "The sun rises in the east.",
    "Where does the sun set?": "The sun sets in the west.",
    "What is the coldest season?": "The coldest season is winter.",
    "What is the warmest season?": "The warmest season is summer.",
    "What season comes after winter?": "Spring comes after winter.",
    "What season comes after summer?": "Autumn comes after summer.",
    "What are the seasons?": "The seasons are spring, summer, autumn and winter.",
    "What are the days of the week?": (
        f"The days of the week are {', '.join(DAYS[:-1])} and {DAYS[-1]}."
    ),
    "What is the first month of the year?": "The first month of the year is January.",
    "What is the last month of the year?": "The last month of the year is December.",
    "What do we breathe?": "We breathe air.",
}

Fact = tuple[tuple[str, ...], str]


def fact(rng: random.Random) -> tuple[str, str]:
    """One question in one of its wordings, and its answer; each table is equally likely."""
    wordings, answer = rng.choice(rng.choice(_TABLES))
    return rng.choice(wordings), answer


def _colours() -> Iterator[Fact]:
    for colour, things in COLOURS.items():
        for thing in things:
            yield (
                (
                    f"What colour is {thing}?",
                    f"What color is {thing}?",
                    f"Which colour is {thing}?",
                    f"Tell me the colour of {thing}.",
                    f"Do you know what colour {thing} is?",
                ),
                f"{sentence_case(thing)} is {colour}.",
            )


def _opposites() -> Iterator[Fact]:
    for pair in OPPOSITES:
        for one, other in (pair.split("-"), pair.split("-")[::-1]):
            yield (
                (
                    f"What is the opposite of {one}?",
                    f"What's the opposite of {one}?",
                    f"The opposite of {one}?",
                    f"Tell me the opposite of {one}.",
                ),
                f"The opposite of {one} is {other}.",
            )


def _capitals() -> Iterator[Fact]:
    for country, capital in CAPITALS.items():
        yield (
            (
                f"What is the capital of {country}?",
                f"What's the capital of {country}?",
                f"Which city is the capital of {country}?",
                f"Tell me the capital of {country}.",
                f"Do you know the capital of {country}?",
            ),
            f"The capital of {country} is {capital}.",
        )
        yield (
            (f"Which country has the capital {capital}?", f"{capital} is the capital of what?"),
            f"{capital} is the capital of {country}.",
        )


def _animals() -> Iterator[Fact]:
    for animal, sound in SOUNDS.items():
        one = with_article(animal)
        yield (
            (f"What does {one} say?", f"What sound does {one} make?", f"How does {one} go?"),
            f"{sentence_case(one)} says {sound}.",
        )
    for animal, young in YOUNG.items():
        one = with_article(animal)
        yield (
            (f"What is a young {animal} called?", f"What is a baby {animal}?"),
            f"A young {animal} is called {with_article(young)}.",
        )
    for count, animals in LEGS.items():
        for one in map(with_article, animals):
            yield (
                (f"How many legs does {one} have?", f"How many legs has {one}?"),
                f"{sentence_case(one)} has {count} legs.",
            )


def _numbers() -> Iterator[Fact]:
    for things, count in NUMBERS_OF.items():
        noun, where = things.split(" ", 1)
        yield (
            (
                f"How many {noun} are there {where}?",
                f"How many {noun} are {where}?",
                f"How many {things}?",
            ),
            f"There are {count} {things}.",
        )


def _calendar() -> Iterator[Fact]:
    for kind, names in (("day", DAYS), ("month", MONTHS)):
        for before, after in zip(names, names[1:] + names[:1], strict=True):
            yield (
                (
                    f"Which {kind} comes after {before}?",
                    f"What {kind} comes after {before}?",
                    f"What is the {kind} after {before}?",
                    f"What comes after {before}?",
                ),
                f"{after} comes after {before}.",
            )
            yield (
                (
                    f"Which {kind} comes before {after}?",
                    f"What {kind} comes before {after}?",
                    f"What is the {kind} before {after}?",
                    f"What comes before {after}?",
                ),
                f"{before} comes before {after}.",
            )


def _others() -> Iterator[Fact]:
    for question, answer in OTHERS.items():
        yield (question, f"Do you know? {question}", f"Tell me: {question}"), answer


_TABLES: tuple[tuple[Fact, ...], ...] = (
    tuple(_colours()),
    tuple(_opposites()),
    tuple(_capitals()),
    tuple(_animals()),
    tuple(_numbers()),
    tuple(_calendar()),
    tuple(_others()),
)
