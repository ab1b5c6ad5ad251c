"""End a command that fails: with one line and an exit code, without a traceback."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NoReturn, TypeGuard

import typer

from inferno.errors import InfernoError, InvalidRequest, NeverFits, NotEnoughMemory
from inferno.extras import install_command
from inferno.out_of_memory import (
    RESERVE_BYTES,
    check_address_space,
    is_out_of_memory,
    out_of_memory,
)

_OF_EXTRA_SERVE = (
    *("fastapi", "starlette", "uvicorn", "uvloop"),
    *("httptools", "msgspec", "prometheus_client"),
)


# Whose code prints: an error that is raised there and names no file is standard output's.
_PRINTING = ("inferno.cli", "click", "typer", "rich")
_FLAG = re.compile(r"(?<!\S)--[a-z][a-z-]*")
# The options of the command that runs, so that no message proposes others; None: no command's.
FLAGS: ContextVar[frozenset[str] | None] = ContextVar("flags", default=None)
# Variables that huggingface_hub reads as it is imported, and fails if one can't be read.
_HUB_VARIABLES = ("HF_ENDPOINT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")


@contextlib.contextmanager
def one_line_errors(*, debug: bool, loads_model: bool = True) -> Iterator[None]:
    """Turn errors into one line on standard error; with `debug`, tracebacks stay.

    The exit code is 2 where the value of an option is refused, else 1.

    loads_model     whether there must be memory for a model.
    """
    reserve = [bytearray(RESERVE_BYTES)]  # to say something with, once all else is taken
    if not debug:
        logging.getLogger("inferno").addHandler(_WARNINGS)
    try:
        _import_hub()
        if loads_model:
            check_address_space()
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
        if is_out_of_memory(problem) and not isinstance(problem, InfernoError):
            reserve.clear()
            problem = out_of_memory(problem)
        if _is_wrong_option(problem):
            say(f"error: {_with_option(problem)}")
            raise typer.Exit(2) from None
        if isinstance(problem, NotEnoughMemory):  # with the plan's table
            _say_lines("\n".join([f"error: {problem.message}", *_own_cures(problem)]))
            raise typer.Exit(1) from None
        say(f"error: {describe(problem)}" if _is_expected(problem) else _internal(problem))
        raise typer.Exit(1) from None


class _Warnings(logging.Handler):
    """A handler that says each warning in a line; errors are said where they are met.

    Without it the engine's log of a step that failed, a traceback, would go to standard error.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING and not logging.getLogger().handlers:
            say(f"warning: {record.getMessage()}")


_WARNINGS = _Warnings(logging.WARNING)


def describe(problem: Exception) -> str:
    """Return an error as a line that a person can act on; the system's errors name their file."""
    if isinstance(problem, ModuleNotFoundError):
        return f"{problem.name} is not installed: {install_command('serve')}"
    if isinstance(problem, OSError):
        return _describe_os_error(problem)
    return str(problem)


def _describe_os_error(problem: OSError) -> str:
    reason = str(problem.strerror or problem)
    if problem.filename is not None:
        return f"{problem.filename}: {reason}"
    at = problem.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    name = at.tb_frame.f_globals.get("__name__", "") if at is not None else ""
    if name.startswith(_PRINTING):
        return f"standard output: {reason}"
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: {reason}; free some of it, or set INFERNO_HOME to a larger one"
    if problem.errno == errno.EFBIG:
        return f"a file can't be written: {reason}; look at `ulimit -f`"
    return reason


def _import_hub() -> None:
    """Import huggingface_hub by the module that bears what the environment says wrongly."""
    if any(name in os.environ for name in _HUB_VARIABLES):
        from inferno.hub import environment  # noqa: F401, PLC0415 - only where it may fail


def _own_cures(problem: NotEnoughMemory) -> list[str]:
    """Return the lines of what would fit whose options the command has."""
    own = FLAGS.get()
    cures = [cure for cure in problem.cures if own is None or own.issuperset(_FLAG.findall(cure))]
    if cures or not problem.cures:
        return cures
    from inferno.plan.report import NO_CURE  # noqa: PLC0415 - only where something doesn't fit

    return [NO_CURE]


def _is_wrong_option(problem: Exception) -> TypeGuard[InvalidRequest]:
    """Return whether an option is to be mended; a prompt too long for a model is none."""
    if not isinstance(problem, InvalidRequest) or isinstance(problem, NeverFits):
        return False
    return problem.param is not None


def _with_option(problem: InvalidRequest) -> str:
    """Return the message with the parameter at its start spelled as on a command line."""
    name, message = problem.param or "", str(problem)
    if not message.startswith(
        tuple(f"{name}{after}" for after in ("=", " must be ", " goes with "))
    ):
        return message
    return f"--{name.replace('_', '-')}{message[len(name) :]}"


def _is_expected(problem: Exception) -> bool:
    is_extra = isinstance(problem, ModuleNotFoundError) and problem.name in _OF_EXTRA_SERVE
    return is_extra or isinstance(problem, InfernoError | OSError)


def _internal(problem: Exception) -> str:
    kind = type(problem).__name__
    return f"internal error: {kind}: {problem}. Please report it, with what --debug prints."


def _say_lines(text: str) -> None:
    """Print lines on standard error as they are, but for what no terminal should get."""
    for line in text.splitlines():
        sys.stderr.write("".join(c if c.isprintable() and c.isascii() else "?" for c in line))
        sys.stderr.write("\n")
    sys.stderr.flush()


def say(line: str) -> None:
    """Print one line on standard error, in its encoding; a terminal breaks it between words."""
    printable = "".join(c if c.isprintable() else " " for c in " ".join(line.split()))
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns - 1
        printable = "\n".join(
            textwrap.wrap(
                printable, max(8, columns), break_long_words=False, break_on_hyphens=False
            )
        )
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
