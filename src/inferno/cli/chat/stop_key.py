"""Ctrl+C stops an answer and not the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class StopKey:
    """The key that ends the wait for an answer's next piece, and does nothing at other times."""

    def __init__(self) -> None:
        self._is_waiting = False
        self._was_pressed = False

    def until_pressed(self, pieces: Iterator[T]) -> Iterator[T]:
        """Yield the pieces as they come."""
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
