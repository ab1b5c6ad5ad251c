"""What a story may be asked to be about, besides its hero: a plot, a thing, or anything at all."""

from __future__ import annotations

import random
from dataclasses import dataclass

from demo_grammar import expand, with_article, words
from demo_plot import Plot
from demo_plots_far import FAR_PLOTS
from demo_plots_home import HOME_PLOTS
from demo_plots_outside import OUTSIDE_PLOTS
from demo_plots_topic import TOPIC_PLOTS
from demo_unknown import nonsense
from demo_virtues import VIRTUES

PLOTS: tuple[Plot, ...] = (*HOME_PLOTS, *OUTSIDE_PLOTS, *FAR_PLOTS)
THINGS = words(
    "key book cup ring hat coat bell flute drum kite ball doll mirror candle basket box bottle "
    "blanket pillow scarf sock glove button coin map letter feather shell stick pearl crown wand "
    "sword rope wheel ladder bucket brush watch necklace whistle lantern backpack cookie cake "
    "apple egg nut carrot sandwich puzzle guitar violin trumpet camera radio torch bag purse "
    "ticket marble sled ribbon diamond trophy vase plate bowl bed boot belt coconut jar hammer"
)
_TOPICS = tuple(
    topic.replace("_", " ")
    for topic in words(
        "football chess pizza music numbers trains cars dinosaurs computers Paris summer dogs "
        "cats ice_cream books horses birds apples chocolate London cheese maths games tea rivers "
        "mountains the_stars old_maps balloons pancakes clouds robots hats shoes soup tennis "
        "swimming dancing the_jungle the_desert water fire love peace time colours bees bananas "
        "snowflakes castles bridges boats fishing painting poems science history inferno spring "
        "autumn Berlin mushrooms the_circus the_zoo holidays the_future hope happiness the_sun "
        "cowboys knights the_city the_family work_and_play the_world"
    )
)
_PLAIN_ADJECTIVES = words("red blue green yellow old little tiny big rusty heavy round lucky")
_IN_THE_PLOT = words("lost missing broken")  # what happens to a thing, not what it is like
_THING_PLOTS = tuple(plot for plot in PLOTS if plot.things)
_NAMED_BY_VERBS = "learning something new"  # its items are no things


@dataclass(frozen=True)
class Theme:
    """What a story is to be about, in the words of the request, and the plot that fits it.

    `item` is the thing that is asked for, if it is one.
    """

    about: str
    plot: Plot
    item: str = ""

    @property
    def as_known(self) -> str:
        """What it is called once it was mentioned: "the lost key" for "a lost key"."""
        article, _, noun = self.about.partition(" ")
        return f"the {noun}" if article in ("a", "an") else self.about


def theme(rng: random.Random, heroes: frozenset[str]) -> Theme | None:
    """A theme, or none; what could be a hero is no theme, as a request for it is for a hero."""
    chance = rng.random()
    if chance < 0.36:
        return None
    if chance < 0.48:
        return Theme(_topic(rng), rng.choice(TOPIC_PLOTS))
    if chance < 0.68:
        return _thing(rng, heroes)
    if chance < 0.9:
        plot = rng.choice(VIRTUES)
        return Theme(rng.choice((plot.topic, plot.topic, *plot.also)), plot)
    plot = rng.choice(PLOTS)
    names = [name for name in (plot.topic, *plot.also) if name.split()[-1] not in heroes]
    return Theme(rng.choice(names or [plot.topic]), plot)


def own_theme(plot: Plot, item: str) -> Theme:
    """What a story is about that was asked for by its hero alone."""
    is_named = plot.topic == _NAMED_BY_VERBS or plot in VIRTUES
    return Theme(plot.topic if is_named else with_article(item), plot)


def _topic(rng: random.Random) -> str:
    return rng.choice(_TOPICS) if rng.random() < 0.6 else f"the {nonsense(rng)}"


def _thing(rng: random.Random, heroes: frozenset[str]) -> Theme:
    """A thing, and a plot that its adjective asks for, or any that has room for things."""
    if rng.random() < 0.2:
        plot = rng.choice([plot for plot in PLOTS if plot.topic != _NAMED_BY_VERBS])
        item = expand(rng.choice(plot.items), rng, {})
        if item.split()[-1] not in heroes:
            return Theme(with_article(item), plot, item)
    plot = rng.choice(_THING_PLOTS)
    noun = rng.choice(THINGS) if rng.random() < 0.85 else nonsense(rng)
    adjective = rng.choice(("", *_PLAIN_ADJECTIVES)) if rng.random() < 0.3 else ""
    if not adjective and rng.random() < 0.8:
        adjective = rng.choice(plot.things.split())
    asked = f"{adjective} {noun}".strip()
    return Theme(with_article(asked), plot, noun if adjective in _IN_THE_PLOT else asked)
