"""A conversation without a terminal that can be drawn on: a line of input is a message."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing

from inferno.cli.chat.commands import Commands
from inferno.cli.chat.session import Session
from inferno.cli.chat.stats import notice, summary, trim_notice
from inferno.cli.chat.tools import call_line, result_of
from inferno.cli.errors import describe, say
from inferno.cli.terminal import print_of_others, print_text
from inferno.errors import EngineDied, InfernoError, InvalidRequest
from inferno.text.parsers.answer import ToolCall

_MAX_LINE_BYTES = 2**24
_HINTS = "A line is a message, /help lists the commands, Ctrl+D leaves, Ctrl+C does so at once."


def converse(session: Session) -> bool:
    """Answer line by line, False if one was refused; standard error says which, and why."""
    commands = Commands(session)
    lines = Lines()
    while (line := lines.read()) is not None:
        try:
            outcome = commands.run(_decode(line))
        except (InfernoError, OSError) as problem:
            lines.refuse(lines.number, problem)
            continue
        if outcome.is_over:
            break
        if outcome.text:
            print_of_others(outcome.text + "\n")
        if outcome.question is not None:
            _answer(session, outcome.question, lines)
    return lines.num_refused == 0


class Lines:
    """The lines of standard input, and what is said of them on standard error.

    is_typed    whether a person types them.
    number      of the last line, from 1 on.
    num_refused how many were refused.
    """

    def __init__(self) -> None:
        if sys.stdin is None:
            raise InvalidRequest("standard input is closed; give messages there, one a line")
        self.is_typed = sys.stdin.isatty()
        self.number = 0
        self.num_refused = 0
        if self.is_typed:
            say(_HINTS)

    def read(self, prompt: str = "> ") -> bytes | None:
        """Return the next line, or None at the end; whoever types is shown the prompt."""
        line = _read_line(prompt if self.is_typed else "")
        if not line:
            if self.is_typed:
                say("")  # Ctrl+D leaves the cursor behind the prompt
            return None
        self.number += 1
        return line.removesuffix(b"\n").removesuffix(b"\r")

    def refuse(self, number: int, problem: InfernoError | OSError) -> None:
        """Say why a line can't be answered, and count it."""
        self.num_refused += 1
        say(f"error: line {number}: {describe(problem)}")


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


def _answer(session: Session, question: str, lines: Lines) -> None:
    """Print the answer to a question, and its calls, whose results are the next lines."""
    number = lines.number
    answering = session.ask(question)
    while True:
        last = ""
        try:
            with closing(answering) as chunks:
                for chunk in chunks:
                    print_of_others(chunk.text)  # the answer; reasoning is for people who watch
                    last = chunk.text or last
        except EngineDied:
            raise
        except InfernoError as problem:
            lines.refuse(number, problem)
            return
        turn = session.turns[-1]
        if not last.endswith("\n") and (last or not turn.calls):
            print_text("\n")
        if lines.is_typed:
            say(summary(session, turn))
        for words in (trim_notice(session), notice(session, turn)):
            if words is not None:
                say(f"note: line {number}: {words}")
        if not turn.calls:
            return
        for call in turn.calls:
            print_of_others(call_line(call) + "\n")
        results = _results(turn.calls, lines)
        if results is None:
            session.take_back()
            lines.refuse(number, InvalidRequest("the input ends before the results of its calls"))
            return
        answering = session.go_on(results)


def _results(calls: Sequence[ToolCall], lines: Lines) -> list[str] | None:
    """Read a line for the result of each call; None where there are too few."""
    results: list[str] = []
    while len(results) < len(calls):
        line = lines.read(f"result of {calls[len(results)].name}> ")
        if line is None:
            return None
        try:
            results.append(result_of(_decode(line)))
        except InvalidRequest as problem:
            lines.refuse(lines.number, problem)  # the next line is this call's
    return results
