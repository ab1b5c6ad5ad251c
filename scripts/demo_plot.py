"""What a plot is: what happens in a story, in five steps, each in several wordings."""

from __future__ import annotations

from dataclasses import dataclass

COLOUR = "[red|blue|green|yellow|white|black|brown|orange|golden]"
LESSON = (
    '"Thank you, {friend}," said {hero}. "You are a [good|true|real|wonderful] friend."',
    '"We make a good team," said {friend}, and {hero} [laughed|nodded|smiled].',
    "{hero} learned that [everything is easier with a friend|good friends help each other].",
    "{hero} thanked {friend} and gave {friend_him} a big hug.",
)


@dataclass(frozen=True)
class Plot:
    """What a story is about: `topic` names it, `items` vary it, each step has several wordings.

    `cast` is who it happens to most of the time. `setup` follows "One day,"; the steps may use the
    slots of the two persons and of the item. `also` are other names for the topic, `asked` is what
    may follow the hero in a request, and any thing can be the item of a plot that has `things`:
    the adjectives that ask for this plot, as in "a lost key".
    """

    topic: str
    cast: str
    items: tuple[str, ...]
    setup: tuple[str, ...]
    problem: tuple[str, ...]
    attempt: tuple[str, ...]
    resolution: tuple[str, ...]
    lesson: tuple[str, ...] = LESSON
    also: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    things: str = ""

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """What happens, in order."""
        return self.setup, self.problem, self.attempt, self.resolution, self.lesson


def world_plot(
    topic: str, item: str, steps: tuple[str, ...], *, also: tuple[str, ...] = ()
) -> Plot:
    """A plot of a world, whose heroes are its cast; a step's wordings are separated by "//"."""
    setup, problem, attempt, resolution, lesson = (
        tuple(wording.strip() for wording in step.split("//")) for step in steps
    )
    items = tuple(item.split(";"))
    return Plot(topic, "", items, setup, problem, attempt, resolution, lesson, also)
