"""A conversation on a terminal, where Ctrl+C stops an answer and not the program."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

from prompt_toolkit.history import InMemoryHistory

from inferno.cli.chat.answer_view import AnswerView
from inferno.cli.chat.commands import Commands
from inferno.cli.chat.editor import Editor, FileHistory, history_path, silent_keyboard
from inferno.cli.chat.session import Session
from inferno.cli.chat.stats import notice, summary, trim_notice
from inferno.cli.chat.tools import RESULT_HINT, result_of
from inferno.cli.errors import describe
from inferno.cli.terminal import print_text, terminal_size
from inferno.cli.word_wrap import printable
from inferno.errors import EngineDied, InfernoError, InvalidRequest
from inferno.text.completion import Chunk
from inferno.text.parsers.answer import ToolCall

_HINTS = "/help lists the commands, Ctrl+C stops an answer, Ctrl+D leaves."
_KEYS = (
    "Enter sends; Alt+Enter, or Enter after \\, begins a new line; Up brings earlier messages.\n"
    'A message between """ and """ may have many lines.'
)

T = TypeVar("T")


def converse(session: Session, banner: str) -> None:
    """Read messages and print answers until the person leaves."""
    commands = Commands(session, _KEYS)
    editor = Editor(FileHistory(history_path()), commands.names)
    results = Editor(InMemoryHistory(), (), prompt="result> ")
    with stop_key() as key, silent_keyboard():
        _say(f"{banner}\n{_HINTS}", is_dim=True)
        for line in _lines(editor):
            try:
                outcome = commands.run(line)
            except (InfernoError, OSError) as problem:
                _say(f"error: {describe(problem)}")
                continue
            if outcome.is_over:
                return
            if outcome.text:
                _say(outcome.text, is_dim=True)
            if outcome.question is not None:
                _answer(session, outcome.question, key, results)


def _lines(editor: Editor) -> Iterator[str]:
    while True:
        try:
            yield editor.read()
        except EOFError:
            return
        except KeyboardInterrupt:
            if editor.is_empty:
                _say("Ctrl+D or /exit leaves.", is_dim=True)


def _answer(session: Session, question: str, key: StopKey, editor: Editor) -> None:
    """Show the answer to a question; the person is asked for the results of calls in it."""
    chunks = session.ask(question)
    while True:
        try:
            _stream(chunks, key)
        except EngineDied:
            raise
        except InfernoError as problem:
            _say(f"error: {describe(problem)}")
            return
        if session.has_unanswered:
            _say("stopped before the answer began; /retry asks again", is_dim=True)
            return
        turn = session.turns[-1]
        _print_lines(summary(session, turn), is_dim=True)
        for words in (trim_notice(session), notice(session, turn)):
            if words is not None:
                _print_lines(words)
        print_text("\n")
        if not turn.calls:
            return
        results = _results(turn.calls, editor)
        if results is None:
            session.take_back()
            _say("the message is taken back, with its calls; /retry asks again", is_dim=True)
            return
        chunks = session.go_on(results)


def _results(calls: Sequence[ToolCall], editor: Editor) -> list[str] | None:
    """Ask for the result of each call; None where the person gives up."""
    results: list[str] = []
    while len(results) < len(calls):
        number = f", {len(results) + 1} of {len(calls)}" if len(calls) > 1 else ""
        question = f"What is the result of {calls[len(results)].name}{number}?"
        _print_lines(question if results else f"{question} {RESULT_HINT}", is_dim=True)
        try:
            results.append(result_of(editor.read()))
        except (EOFError, KeyboardInterrupt):
            return None
        except InvalidRequest as problem:
            _print_lines(f"error: {describe(problem)}")
        print_text("\n")
    return results


def _stream(chunks: Generator[Chunk, None, None], key: StopKey) -> None:
    view = AnswerView(print_text, terminal_size)
    try:
        with closing(chunks):
            for chunk in key.until_pressed(chunks):
                for piece in chunk.pieces:
                    view.feed(piece)
    finally:
        view.finish()


def _say(text: str, *, is_dim: bool = False) -> None:
    """Print lines and an empty one; dim where they are no news."""
    _print_lines(text, is_dim=is_dim)
    print_text("\n")


def _print_lines(text: str, *, is_dim: bool = False) -> None:
    """Print lines, wrapped between words."""
    width = max(8, terminal_size().columns - 1)
    for line in printable(text).split("\n"):
        parts = textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
        for part in parts or [""]:
            print_text(f"\x1b[2m{part}\x1b[0m\n" if is_dim else part + "\n")


class StopKey:
    """The key that ends the wait for an answer's next piece, and does nothing at other times."""

    def __init__(self) -> None:
        self._is_waiting = False
        self._was_pressed = False

    def until_pressed(self, pieces: Iterator[T]) -> Iterator[T]:
        """Yield the pieces as they come, until the key is pressed."""
        self._was_pressed = False
        while not self._was_pressed:
            self._is_waiting = True
            try:
                piece = next(pieces, None)
            except KeyboardInterrupt:
                return
            finally:
                self._is_waiting = False
            if piece is None:
                return
            yield piece

    def press(self, *_: object) -> None:
        """Take the key; only a wait may be interrupted, or the screen would be left half drawn."""
        self._was_pressed = True
        if self._is_waiting:
            raise KeyboardInterrupt


@contextmanager
def stop_key() -> Iterator[StopKey]:
    """Make Ctrl+C a StopKey within the block."""
    key = StopKey()
    before = signal.signal(signal.SIGINT, key.press)
    try:
        yield key
    finally:
        signal.signal(signal.SIGINT, before)
