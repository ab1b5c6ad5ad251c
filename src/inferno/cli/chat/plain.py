"""A conversation without a terminal that can be drawn on: a line of input is a message."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

from inferno.cli.chat.commands import Commands
from inferno.cli.chat.session import Session
from inferno.cli.chat.stats import notice, trim_notice
from inferno.cli.errors import describe, say
from inferno.cli.terminal import print_text
from inferno.errors import EngineDied, InfernoError, InvalidRequest

_MAX_LINE_BYTES = 2**24
_HINTS = "A line is a message, /help lists the commands, Ctrl+D leaves, Ctrl+C does so at once."


def converse(session: Session) -> bool:
    """Answer line by line, False if one was refused; standard error says which, and why."""
    commands = Commands(session)
    num_refused = 0
    for number, line in enumerate(_lines(), start=1):
        try:
            outcome = commands.run(_decode(line))
        except (InfernoError, OSError) as problem:
            num_refused += 1
            _refuse(number, problem)
            continue
        if outcome.is_over:
            break
        if outcome.text:
            print_text(outcome.text + "\n")
        if outcome.question is not None and not _answer(session, outcome.question, number):
            num_refused += 1
    return num_refused == 0


def _lines() -> Iterator[bytes]:
    if sys.stdin is None:
        raise InvalidRequest("standard input is closed; give messages there, one a line")
    is_typed = sys.stdin.isatty()
    if is_typed:
        say(_HINTS)
    while line := _read_line("> " if is_typed else ""):
        yield line.removesuffix(b"\n").removesuffix(b"\r")
    if is_typed:
        say("")  # Ctrl+D leaves the cursor behind the prompt


def _read_line(prompt: str) -> bytes:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.buffer.readline(_MAX_LINE_BYTES + 1)
    if len(line) > _MAX_LINE_BYTES:
        raise InvalidRequest(f"a line of standard input has more than {_MAX_LINE_BYTES} bytes")
    return line


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"it is not UTF-8 text ({problem})") from None


def _answer(session: Session, question: str, number: int) -> bool:
    last = ""
    try:
        with closing(session.ask(question)) as chunks:
            for chunk in chunks:
                print_text(chunk.text)  # the answer; reasoning is for people who watch
                last = chunk.text or last
    except EngineDied:
        raise
    except InfernoError as problem:
        _refuse(number, problem)
        return False
    if not last.endswith("\n"):
        print_text("\n")
    for words in (trim_notice(session), notice(session, session.turns[-1])):
        if words is not None:
            say(f"note: line {number}: {words}")
    return True


def _refuse(number: int, problem: InfernoError | OSError) -> None:
    say(f"error: line {number}: {describe(problem)}")
