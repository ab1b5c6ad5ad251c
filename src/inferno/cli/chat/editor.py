"""The line editor: what the keys do, messages of many lines, and the history of messages."""

from __future__ import annotations

import json
import os
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

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

from inferno.cli.terminal import as_text, terminal_size

_FENCE = '"""'
_MOST_BYTES = 2**20
_MOST_ENTRIES = 1000
_LONGEST = 50_000  # characters


class Editor:
    """The line editor: Enter sends; Alt+Enter, or Enter after a backslash, begins a new line.

    A message that begins with three quotes goes on until the next three.
    words   are what Tab completes.
    """

    def __init__(self, history: History, words: Sequence[str], prompt: str = "> ") -> None:
        self._session: PromptSession[str] = PromptSession(
            [("bold", prompt)],
            history=history,
            multiline=True,
            prompt_continuation=" " * len(prompt),
            key_bindings=_keys(),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            output=_output(),
        )

    def read(self) -> str:
        """Return the next message; KeyboardInterrupt on Ctrl+C, EOFError on Ctrl+D without text."""
        return _without_fences(as_text(self._session.prompt()))

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


def history_path() -> Path | None:
    """Return the history's path, in INFERNO_HOME or the user's state folder; None without home."""
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:  # no home
        state = None
    home = os.environ.get("INFERNO_HOME") or (state and Path(state) / "inferno")
    return Path(home) / "history" if home else None


class FileHistory(History):
    """One JSON text per line, the oldest first; where the file can't be used, memory alone."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the messages, the newest first, as prompt_toolkit wants them."""
        entries, is_long = self._read()
        if is_long:
            self._write("w", entries)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Add a message, if it is not so long that it would drive out all the others."""
        if len(string) <= _LONGEST:
            self._write("a", [string])

    def _read(self) -> tuple[list[str], bool]:
        """Return the last entries, oldest first, and whether the file holds more than it should."""
        if self._path is None:
            return [], False
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MOST_BYTES))
                lines = file.read(_MOST_BYTES).split(b"\n")
        except OSError:
            return [], False
        entries = [entry for line in lines if (entry := _parse(line))]
        return entries[-_MOST_ENTRIES:], size > _MOST_BYTES or len(entries) > _MOST_ENTRIES

    def _write(self, mode: str, entries: Iterable[str]) -> None:
        if self._path is None:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, mode, opener=_open_private) as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _parse(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, str) else None
