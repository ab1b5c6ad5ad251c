"""How a command ends when something goes wrong: one line, an exit code, no traceback."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

import typer

from inferno.errors import InfernoError

_OF_EXTRA_SERVE = (
    *("fastapi", "starlette", "uvicorn", "uvloop"),
    *("httptools", "msgspec", "prometheus_client"),
)


@contextlib.contextmanager
def one_line_errors(*, debug: bool) -> Iterator[None]:
    """Errors become one line on standard error and exit code 1; with `debug`, tracebacks stay."""
    if not debug:
        # Else the engine's log of a step that failed, a traceback, would go to standard error.
        logging.getLogger("inferno").addHandler(logging.NullHandler())
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        _leave("interrupted")
    except BrokenPipeError:
        _leave(None)  # whoever read our output has left, as `head` does
    except Exception as problem:
        if debug:
            raise
        say(f"error: {describe(problem)}" if _is_expected(problem) else _internal(problem))
        raise typer.Exit(1) from None


def describe(problem: Exception) -> str:
    """An error that a person can act on, in a line; the system's errors with their file."""
    if isinstance(problem, ModuleNotFoundError):
        return f"{problem.name} is not installed; pip install 'inferno-engine[serve]'"
    if isinstance(problem, OSError):
        return f"{problem.filename or 'standard output'}: {problem.strerror or problem}"
    return str(problem)


def _is_expected(problem: Exception) -> bool:
    is_extra = isinstance(problem, ModuleNotFoundError) and problem.name in _OF_EXTRA_SERVE
    return is_extra or isinstance(problem, InfernoError | OSError)


def _internal(problem: Exception) -> str:
    kind = type(problem).__name__
    return f"internal error: {kind}: {problem}. Please report it, with what --debug prints."


def say(line: str) -> None:
    """One line on standard error, in its encoding."""
    printable = "".join(c if c.isprintable() else " " for c in " ".join(line.split()))
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(printable.encode(encoding, errors="replace").decode(encoding) + "\n")
    sys.stderr.flush()


def _leave(line: str | None) -> NoReturn:
    """End at once: not after the step that is under way, nor with a word about a closed pipe."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if line is not None:
        sys.stderr.write("\n" if sys.stderr.isatty() else "")  # what was printed may not end a line
        say(line)
    os._exit(1)
