"""The line editor: history, messages of many lines, and what the keys do."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from inferno.cli.terminal import terminal_size

_FENCE = '"""'


class Editor:
    """The line editor: Enter sends; Alt+Enter, or Enter after a backslash, begins a new line.

    A message that begins with three quotes goes on until the next three.
    words   are what Tab completes.
    """

    def __init__(self, history: History, words: Sequence[str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            [("bold", "> ")],
            history=history,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_keys(),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            output=_output(),
        )

    def read(self) -> str:
        """Return the next message; KeyboardInterrupt on Ctrl+C, EOFError on Ctrl+D without text."""
        return _without_fences(self._session.prompt())

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was typed when the last message was given up."""
        return not self._session.default_buffer.text


@contextmanager
def silent_keyboard() -> Iterator[None]:
    """Turn off echo in the block: what is typed between prompts appears at the next one."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    silent = termios.tcgetattr(keyboard)
    silent[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(keyboard, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _output() -> Vt100_Output:
    """Return an output that minds NO_COLOR and never asks for the cursor's place."""

    def size() -> Size:
        columns, rows = terminal_size()
        return Size(rows=rows, columns=columns)

    return Vt100_Output(
        sys.stdout,
        size,
        term=os.environ.get("TERM"),
        default_color_depth=ColorDepth.from_env(),
        enable_cpr=False,
    )


def _keys() -> KeyBindings:
    keys = KeyBindings()
    in_message = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=in_message)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        elif _is_fence_open(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=in_message)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def _is_fence_open(text: str) -> bool:
    text = text.strip()
    return text.startswith(_FENCE) and not (text.endswith(_FENCE) and len(text) > len(_FENCE) + 2)


def _without_fences(text: str) -> str:
    stripped = text.strip()
    if not stripped.startswith(_FENCE) or _is_fence_open(stripped):
        return text
    return stripped.removeprefix(_FENCE).removesuffix(_FENCE).strip("\n")
