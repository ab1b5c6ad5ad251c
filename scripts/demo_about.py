"""What the embedded model is taught about inferno: by hand, and from inferno's own tables."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from demo_about_chat import CHAT
from demo_about_server import SERVER
from demo_about_shapes import SHAPES
from demo_about_speed import SPEED, sizes
from demo_about_spoken import SPOKEN
from demo_about_start import START
from demo_exchange import Exchange
from demo_reference import reference
from demo_topic import Topic


def _as_people_speak(topic: Topic) -> Topic:
    """The topic with the wordings that belong to its answer."""
    more = [asked for begin, asked in SPOKEN.items() if topic.answer.startswith(begin)]
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
