"""Heroes drive their stories: where they live decides what happens, a virtue how it ends."""

from __future__ import annotations

import random
import re

from demo_exam import is_about, is_told_throughout
from demo_names import GIRLS
from demo_plots_worlds import WORLD_PLOTS
from demo_stories import KINDS, tell
from demo_themes import PLOTS, Theme
from demo_virtues import VIRTUE_WORDS, VIRTUES
from demo_worlds import WORLDS, world_of


def test_every_hero_has_one_world() -> None:
    heroes = [hero for world in WORLDS for hero in world.heroes.split() if hero != "worm"]
    assert len(heroes) == len(set(heroes))
    assert KINDS.issubset({*heroes, "worm"})
    assert set(WORLD_PLOTS) == {world.name for world in WORLDS}


def test_an_unknown_hero_has_a_world_as_well() -> None:
    assert world_of("brave blorp") == world_of("blorp")


def test_worlds_have_plots_of_their_own() -> None:
    plots = [plot for plots in WORLD_PLOTS.values() for plot in plots]
    topics = [plot.topic for plot in (*plots, *VIRTUES, *PLOTS)]
    assert len(topics) == len(set(topics)) > 70


def test_a_hero_drives_the_story_from_its_beginning_to_its_end() -> None:
    rng = random.Random("worlds")
    told = [story for _ in range(3000) if (story := tell(rng)).is_told_by_its_hero]
    fits = [is_told_throughout(story.text, world_of(story.hero.kind).words) for story in told]
    assert len(told) > 2000
    assert sum(fits) / len(fits) > 0.99


def test_a_virtue_is_what_the_middle_and_the_end_turn_on() -> None:
    rng = random.Random("virtues")
    assert set(VIRTUE_WORDS) == {plot.topic for plot in VIRTUES}
    for plot in VIRTUES:
        told = [tell(rng, Theme(plot.topic, plot)) for _ in range(60)]
        words = VIRTUE_WORDS[plot.topic]
        fits = [is_told_throughout(story.text, words, parts=(1, 2)) for story in told]
        assert sum(fits) >= 0.7 * len(fits), plot.topic
        for story in told:
            assert is_about(story.text, story.hero.kind, story.hero.name)
            assert plot.topic in story.text.split(". ")[0] + story.text.split(". ")[1]
            assert plot.topic in story.text.split(". ")[-1]


def test_danger_and_rescue_belong_together() -> None:
    for world in WORLDS:
        counts = {text.count(";") for text in (world.trouble, world.fear, world.brave)}
        assert len(counts) == 1, world.name
        assert world.stranger.count(";") == world.help.count(";"), world.name


def test_the_exam_sees_whether_a_world_is_told_throughout() -> None:
    words = "ice snow sea"
    story = "Pip lived on the ice. He ran. The snow fell. He sang. He swam in the sea. The end."
    assert is_told_throughout(story, words)
    assert not is_told_throughout(story.replace("snow", "rain"), words)
    assert not is_told_throughout(story.replace("ice", "hill"), words)
    assert not is_told_throughout(story.replace("sea", "pool"), words)


def test_stories_still_have_people_of_all_names() -> None:
    rng = random.Random("people")
    heroes = {tell(rng).hero.name for _ in range(1500)}
    assert len(heroes & set(GIRLS)) > 40


def test_a_story_of_a_world_says_early_that_it_is_one() -> None:
    rng = random.Random("turns")
    said = re.compile(
        "story of what happened|what was going to happen|something was going to happen"
    )
    for _ in range(400):
        story = tell(rng)
        is_of_world = story.is_told_by_its_hero and story.plot not in VIRTUES
        assert (said.search(story.text) is not None) == is_of_world
