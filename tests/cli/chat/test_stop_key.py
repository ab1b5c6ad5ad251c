"""Ctrl+C while an answer is awaited, while it is drawn, and when there is none."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

from inferno.cli.chat.interactive import stop_key
from tests.patience import PATIENCE


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_it_ends_the_wait_for_a_piece_that_does_not_come() -> None:
    def slow() -> Iterator[str]:
        yield "one"
        time.sleep(PATIENCE)

    start = time.monotonic()
    with stop_key() as key:
        threading.Timer(0.2, interrupt).start()
        assert list(key.until_pressed(slow())) == ["one"]
    assert time.monotonic() - start < PATIENCE


def test_between_two_pieces_nothing_is_interrupted() -> None:
    seen = []
    with stop_key() as key:
        for piece in key.until_pressed(iter(["one", "two", "three"])):
            if piece == "two":
                interrupt()
            seen.append(piece)
    assert seen == ["one", "two"]


def test_at_other_times_it_does_nothing() -> None:
    with stop_key() as key:
        interrupt()
        assert list(key.until_pressed(iter(["one", "two"]))) == ["one", "two"]
        interrupt()


def test_afterwards_the_key_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_key():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
