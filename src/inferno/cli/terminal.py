"""Write the output of commands on a terminal: a loading bar, tables, text that can be encoded."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    Task,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from inferno.cli.word_wrap import printable
from inferno.errors import InvalidRequest
from inferno.text.completion import Completion

_PIPED_WIDTH = 100
_USUAL_SIZE = os.terminal_size((80, 24))


class _Bytes(DownloadColumn):
    """The column of how many bytes are done, empty for work that isn't counted in bytes."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


class _Speed(TransferSpeedColumn):
    """The column of the speed, empty for work that isn't counted in bytes."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


class LoadingBar:
    """A bar on standard error; called with (done, total) bytes, it shows how far something is."""

    def __init__(self, bar: Progress, what: str) -> None:
        self._bar = bar
        self._what = what
        self._task = bar.add_task(what, total=None, visible=False)

    def __call__(self, done: int, total: int) -> None:
        """Show how many bytes are done."""
        self._bar.update(
            self._task, description=self._what, completed=done, total=total, visible=True
        )

    def tell(self, what: str) -> None:
        """Show in words work that is not counted in bytes."""
        # A new line in place of the old one: rich takes no total back.
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=None)

    def note_capture(self, done: int, total: int) -> None:
        """Show how many of the steps are recorded that come before any request."""
        self.tell(f"recording step {min(done + 1, total)} of {total}")


@contextlib.contextmanager
def loading_bar(what: str = "loading") -> Iterator[LoadingBar]:
    """Show a bar on standard error until the block ends.

    what  is being done.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _Bytes(binary_units=False),
        _Speed(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not can_redraw(console)
    ) as bar:
        yield LoadingBar(bar, what)


@contextlib.contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Show on standard error what is being done, until the block ends; nothing when piped."""
    console = Console(stderr=True)
    if not can_redraw(console):
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda what: status.update(Text(printable(what)))


def can_redraw(console: Console) -> bool:
    """Return whether an output is a terminal that can move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal


def safe_text(text: str, encoding: str | None) -> str:
    """Replace what the terminal's encoding lacks, so that printing the text can't fail."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding)


def as_text(given: str) -> str:
    """Return typed text or an argument, with U+FFFD for bytes that the locale can't read."""
    return given.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def visible_text(text: str) -> str:
    """Return a text with control characters, which would steer a terminal, spelled out."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1]
        for character in text
    )


def terminal_size() -> os.terminal_size:
    """Return the columns and rows that the terminal of standard output has now."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return _USUAL_SIZE
    return size if size.columns and size.lines else _USUAL_SIZE


def is_terminal() -> bool:
    """Return whether a person reads standard output."""
    return sys.stdout is not None and sys.stdout.isatty()


def has_colours() -> bool:
    """Return whether the terminal of standard output has styles, and they aren't switched off."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


def print_text(text: str) -> None:
    """Write to standard output at once, whatever its encoding."""
    if sys.stdout is None:
        raise InvalidRequest("standard output is closed; there is nowhere to print to")
    sys.stdout.write(safe_text(text, sys.stdout.encoding))
    sys.stdout.flush()


def print_of_others(text: str) -> None:
    """Write a text of others, such as a model's; a terminal gets control characters spelled out."""
    print_text(printable(text) if is_terminal() else text)


def summary_table(completions: Sequence[Completion]) -> str:
    """Return tokens, time to first token and speed of each completion as a table."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("#", "prompt tokens", "new tokens", "finished", "first token", "tokens/s"):
        table.add_column(heading, justify="left" if heading == "finished" else "right")
    for done in sorted(completions, key=lambda one: (one.prompt_index, one.sequence_index)):
        first, rate = done.timings.time_to_first_token, done.timings.tokens_per_second
        table.add_row(
            str(done.prompt_index + 1),
            str(done.usage.prompt_tokens),
            str(done.usage.completion_tokens),
            str(done.finish_reason),
            "-" if first is None else f"{first * 1000:.0f} ms",
            "-" if rate is None else f"{rate:.1f}",
        )
    output = io.StringIO()
    width = terminal_size().columns if is_terminal() else _PIPED_WIDTH
    Console(file=output, width=width, force_terminal=is_terminal()).print(table)
    return output.getvalue()
