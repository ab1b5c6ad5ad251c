"""Every relation that the embedded model is taught, in many wordings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import demo_tables as tables
from demo_relation import Relation

_TELL = "[tell me|please tell me|can you tell me|could you tell me|do you know|I want to know|say]"
_NAME = f"[what is|what's|{_TELL}|give me]"


def _listed(table: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for y, xs in table.items():
        for x in xs.split(";"):
            yield x, y


def _paired(pairs: Iterable[str]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        x, y = pair.replace("_", " ").split("-", 1)
        yield x, y


def _both_ways(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each pair and its mirror image; a word that has two partners keeps the first."""
    seen: set[str] = set()
    for pair in pairs:
        for x, y in (pair, pair[::-1]):
            if x not in seen:
                yield x, y
            seen.add(x)


def _next(row: tuple[str, ...], *, is_ring: bool) -> tuple[tuple[str, str], ...]:
    after = row[1:] + (row[:1] if is_ring else ())
    return tuple(zip(row, after, strict=False))


_ALPHABET = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NUMBERS = tuple(str(n) for n in range(100))
ROWS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("day", tables.DAYS, True),
    ("month", tables.MONTHS, True),
    ("season", tables.SEASONS, True),
    ("letter", _ALPHABET, False),
    ("number", _NUMBERS, False),
)


def _calendar() -> Iterator[Relation]:
    for name, row, is_ring in ROWS:
        pairs = _next(row, is_ring=is_ring)
        named = f"[the {name} |]" if name in ("letter", "number") else ""
        yield Relation(
            f"{name} after",
            pairs,
            (
                f"[which|what] {name} [comes|is] after {named}{{x}}",
                f"{_NAME} the {name} after {{x}}",
                "[what|which] comes after {x}",
                f"what [{name} ]comes [right |]after {{x}}",
                f"what is the [next {name} after|{name} that comes after|{name} that follows] "
                "{x}",
                f"[which|what] {name} follows {{x}}",
                f"{_TELL} what comes after {{x}}",
            ),
            "{y} comes after {x}.",
            unseen=(f"after {{x}}, what {name} comes next", "what's next after {x}"),
        )
        yield Relation(
            f"{name} before",
            tuple((y, x) for x, y in pairs),
            (
                f"[which|what] {name} [comes|is] before {named}{{x}}",
                f"{_NAME} the {name} before {{x}}",
                "[what|which] comes before {x}",
                f"what [{name} ]comes [right |just |]before {{x}}",
                f"what is the {name} that comes before {{x}}",
                f"{_TELL} what comes before {{x}}",
            ),
            "{y} comes before {x}.",
            unseen=(f"before {{x}}, what {name} comes", "what was before {x}"),
        )


RELATIONS: tuple[Relation, ...] = (
    Relation(
        "colours",
        tuple(_listed(tables.COLOURS)),
        (
            "[what|which] [colour|color] is {x}",
            "[what|which] [colour|color] does {x} have",
            f"{_NAME} the [colour|color] of {{x}}",
            f"{_TELL} what [colour|color] {{x}} is",
            "the [colour|color] of {x}",
            "{x} is [what|which] [colour|color]",
        ),
        "{x} is {y}.",
        ("and {x}", "what about {x}", "and what about {x}", "how about {x}"),
        ("what [colour|color] would you say {x} is", "what is {x}'s [colour|color]"),
    ),
    Relation(
        "mixed colours",
        tuple(tables.MIXED.items()),
        (
            "what do [you|we|I] get when [you|we|I] mix {x}",
            "what [colour|color] do [you|I|we] get from {x}",
            "what [colour|color] [is|makes|do] {x} [mixed|together|make]",
            "mix {x}",
        ),
        "{x} make {y}.",
    ),
    Relation(
        "opposites",
        tuple(_both_ways(_paired(tables.OPPOSITES))),
        (
            f"{_NAME} the opposite of [|the word ]{{x}}",
            "the opposite of {x}",
            'what is the opposite of "{x}"',
            "[what|which word] is [the opposite of|opposite to] {x}",
            "opposite of {x}",
            "{x} is the opposite of what",
        ),
        "The opposite of {x} is {y}.",
        ("and [|of ]{x}", "what about {x}", "and the opposite of {x}", "how about {x}"),
        ("which word means the opposite of {x}", "name the opposite of {x}"),
    ),
    Relation(
        "capitals",
        tuple(_paired(tables.CAPITALS)),
        (
            f"{_NAME} the capital [|city ]of {{x}}",
            f"{_NAME} {{x}}'s capital[| city]",
            "[which|what] city is the capital of {x}",
            "the capital of {x}",
            "capital of {x}",
            "what is the capital [|city ]of {x} called",
            f"{_TELL} which city is the capital of {{x}}",
        ),
        "The capital of {x} is {y}.",
        ("and [|of ]{x}", "what about {x}", "and the capital of {x}", "how about {x}", "{x}"),
        ("which city is {x}'s capital", "name the capital of {x}"),
    ),
    Relation(
        "countries",
        tuple((y, x) for x, y in _paired(tables.CAPITALS) if not x.startswith("the U")),
        (
            "[which|what] country has the capital {x}",
            "{x} is the capital of [what|which] country",
            "{x} is the capital of what",
            "of which country is {x} the capital",
            "in [which|what] country is {x}",
            "[what|which] country is {x} in",
            "where is {x}",
        ),
        "{x} is the capital of {y}.",
        ("and {x}", "what about {x}", "and where is {x}"),
    ),
    Relation(
        "languages",
        tuple(_paired(tables.LANGUAGES)),
        (
            "[what|which] language do [they|people] speak in {x}",
            "[what|which] language [is spoken|do you hear] in {x}",
            f"{_NAME} the language of {{x}}",
            "what do people speak in {x}",
        ),
        "People in {x} speak {y}.",
        ("and in {x}", "what about {x}"),
    ),
    Relation(
        "continents",
        tuple(_listed(tables.CONTINENTS)),
        (
            "[which|what] continent is {x} [in|on|part of]",
            "on [which|what] continent is {x}",
            f"{_NAME} the continent of {{x}}",
        ),
        "{x} is in {y}.",
        ("and {x}", "what about {x}"),
    ),
    Relation(
        "animal sounds",
        tuple(_paired(tables.SOUNDS)),
        (
            "what does {an_x} say",
            "what [sound|noise] does {an_x} make",
            "how does {an_x} [go|sound]",
            f"{_NAME} the sound of {{an_x}}",
            f"{_TELL} what {{an_x}} says",
        ),
        "{an_x} says {y}.",
        ("and {an_x}", "what about {an_x}", "and what does {an_x} say"),
        ("which sound do we hear from {an_x}",),
    ),
    Relation(
        "young animals",
        tuple(_paired(tables.YOUNG)),
        (
            "what is a [young|baby] {x} called",
            "what do [you|we|people] call a [young|baby] {x}",
            "what is a [young|baby] {x}",
            "what's [the name of |]a [young|baby] {x}[| called]",
            "what is the name for a [young|baby] {x}",
        ),
        "A young {x} is called {an_y}.",
        ("and a [young|baby] {x}", "what about a [young|baby] {x}"),
        ("how do we call the [baby|young] of {an_x}",),
    ),
    Relation(
        "legs",
        tuple(_listed(tables.LEGS)),
        (
            "how many legs does {an_x} have",
            "how many legs has {an_x}[| got]",
            f"{_TELL} how many legs {{an_x}} has",
            "what is the number of legs of {an_x}",
            "how many legs are there on {an_x}",
        ),
        "{an_x} has {y} legs.",
        ("and {an_x}", "what about {an_x}", "how about {an_x}"),
        ("on how many legs does {an_x} walk", "{an_x} has how many legs"),
    ),
    Relation(
        "animal homes",
        tuple(_paired(tables.HOMES)),
        ("where does {an_x} live", "where do you find {an_x}", "where is the home of {an_x}"),
        "{an_x} lives in {y}.",
        ("and {an_x}", "what about {an_x}"),
    ),
    Relation(
        "animal food",
        tuple(_paired(tables.FOODS)),
        (
            "what does {an_x} [like to |]eat",
            "what is the food of {an_x}",
            "what do you feed {an_x}",
        ),
        "{an_x} eats {y}.",
        ("and {an_x}", "what about {an_x}"),
    ),
    Relation(
        "kinds of things",
        tuple(_listed(tables.KINDS_OF_THING)),
        (
            "what [kind|sort] of thing is {an_x}",
            "what is {an_x}",
            "what's {an_x}",
            "what exactly is {an_x}",
            "what do you know about {an_x}",
        ),
        "{an_x} is {y}.",
    ),
    Relation(
        "tools",
        tuple(tables.USES.items()),
        (
            "what do [you|we|I] need to {x}",
            "what do [you|we|people] use to {x}",
            "with what do you {x}",
            "what can I use to {x}",
            "how [do you|can I] {x}",
        ),
        "To {x}, you need {y}.",
        unseen=("which thing helps you to {x}",),
    ),
    Relation(
        "jobs",
        tuple(tables.JOBS.items()),
        ("who {x}", "[what|which] [person|job] {x}", "what do you call a person who {x}"),
        "The person who {x} is {y}.",
        unseen=("what is the job of someone who {x}",),
    ),
    Relation(
        "counts",
        tuple(tables.NUMBERS_OF.items()),
        (
            "how many {x}",
            "how many {x} are there",
            f"{_TELL} how many {{x}} there are",
            "what is the number of {x}",
        ),
        "There are {y} {x}.",
        ("and {x}", "and how many {x}", "what about {x}"),
    ),
    Relation(
        "senses",
        tuple(_paired(tables.BODY)),
        ("what do [we|you|people] {x} with", "with what do [we|you] {x}", "what do we use to {x}"),
        "We {x} with {y}.",
    ),
    Relation(
        "plurals",
        tuple(_paired(tables.PLURALS)),
        (
            f"{_NAME} the plural of {{x}}",
            'what is the plural of "{x}"',
            "the plural of {x}",
            "how do you say more than one {x}",
        ),
        "The plural of {x} is {y}.",
        ("and [|of ]{x}", "what about {x}"),
    ),
    Relation(
        "months by number",
        tuple(zip(tables.ORDINALS, tables.MONTHS, strict=True)),
        (f"{_NAME} the {{x}} month[| of the year]", "which month is the {x}[| of the year]"),
        "The {x} month is {y}.",
        ("and the {x}", "what about the {x}"),
    ),
    Relation(
        "days by number",
        tuple(zip(tables.ORDINALS[:7], tables.DAYS, strict=True)),
        (f"{_NAME} the {{x}} day of the week", "which day is the {x} of the week"),
        "The {x} day of the week is {y}.",
    ),
    Relation(
        "seasons",
        tuple((m, s) for s, months in tables.SEASON_OF.items() for m in months),
        (
            "[what|which] season is {x} in",
            "in [what|which] season is {x}",
            "what season is it in {x}",
        ),
        "{x} is in {y}.",
        ("and {x}", "what about {x}"),
    ),
    *_calendar(),
)
