"""What the embedded model is taught about inferno: by hand, and from inferno's own tables."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from demo_about_chat import CHAT
from demo_about_server import SERVER
from demo_about_shapes import SHAPES
from demo_about_speed import SPEED, sizes
from demo_about_spoken_chat import SPOKEN_CHAT
from demo_about_spoken_server import SPOKEN_SERVER
from demo_about_spoken_speed import SPOKEN_SPEED
from demo_about_spoken_start import SPOKEN_START
from demo_about_start import START
from demo_exchange import Exchange
from demo_reference import reference
from demo_topic import Topic

SPOKEN = tuple(
    itertools.chain(
        *(table.items() for table in (SPOKEN_START, SPOKEN_CHAT, SPOKEN_SERVER, SPOKEN_SPEED))
    )
)


def _as_people_speak(topic: Topic) -> Topic:
    """The topic with the wordings that belong to its answer."""
    more = [asked for begin, asked in SPOKEN if topic.answer.startswith(begin)]
    return replace(topic, asking=topic.asking + tuple(itertools.chain(*more)))


TOPICS: tuple[Topic, ...] = tuple(map(_as_people_speak, (*START, *CHAT, *SERVER, *SHAPES, *SPEED)))
SIZES: tuple[Topic, ...] = tuple(sizes())
REFERENCE: tuple[Topic, ...] = tuple(reference())


def about_inferno(rng: random.Random) -> list[Exchange]:
    """What inferno is and how it is used, in the words of the documentation."""
    return [rng.choice(TOPICS if rng.random() < 0.94 else SIZES).ask(rng)]


def from_the_tables(rng: random.Random) -> list[Exchange]:
    """What an option, a command or a route is, in the words of its own table."""
    return [rng.choice(REFERENCE).ask(rng)._replace(kind="options and routes")]
