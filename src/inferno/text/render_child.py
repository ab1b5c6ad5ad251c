"""The process that renders chat templates: a template is a stranger's program, so it runs apart.

It is run as a script, with three arguments and more: its niceness, the process that started it,
the seconds that compiling may take, and folders in which Jinja may lie. The first line that comes
in is a list of templates to compile. Then `{"ready"}` goes out, and from there on one JSON object
per line comes in, `{"template", "variables", "now", "cpu_seconds", "max_chars"}`, and one goes out:
`{"text"}`, `{"refused"}` with the words of the template's own raise_exception, or `{"error"}`.

A worker, which is forked from this process, renders. Too much time or memory ends it; that is told
as `{"died"}`, with its status, and the next worker is there at once, for Jinja and the templates
need not be loaded again. The end of the input ends both.

A worker has no environment variables, no file but its three pipes and, where Linux filters system
calls, no means to open another, to connect, to start a process, or to signal one.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path += sys.argv[4:]  # no environment variable says where modules are

# Python and Jinja import these four in the midst of work, when a worker can't open files any more.
import encodings.unicode_escape  # noqa: F401
import pprint  # noqa: F401
import textwrap  # noqa: F401
import unicodedata  # noqa: F401

import jinja2
import jinja2.constants
import jinja2.debug
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_MEMORY = 512 * 2**20
_NUM_FILES = 3  # standard input, output and error
_MAX_MESSAGE = 500
# U+FDD0 to U+FDEF are no characters: they mark text for the caller, who must find them again.
_NOT_ASCII = re.compile("[^\0-\x7f\ufdd0-\ufdef]")

# From linux/prctl.h, linux/seccomp.h, linux/audit.h and linux/bpf_common.h.
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_SECCOMP_ALLOW, _SECCOMP_EPERM, _SECCOMP_KILL = 0x7FFF0000, 0x00050001, 0x80000000
_BPF_LOAD, _BPF_JUMP_EQUAL, _BPF_RETURN = 0x20, 0x15, 0x06
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4  # in struct seccomp_data
# All that a worker needs of the kernel: its pipes, memory, clocks, signals of its own, the end.
# By machine: what the kernel calls it, and the numbers of read, write, brk, mmap, munmap, mremap,
# madvise, rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack, restart_syscall, setitimer,
# clock_gettime, gettimeofday, futex, sched_yield, getpid, getrandom, exit, exit_group; on x86-64
# time as well.
_SYSTEM_CALLS = {
    "x86_64": (
        0xC000003E,
        *(0, 1, 12, 9, 11, 25, 28, 13, 14, 15, 131, 219, 38, 228, 96, 202, 24, 39, 318, 60, 231),
        201,
    ),
    "aarch64": (
        0xC00000B7,
        *(63, 64, 214, 222, 215, 216, 233, 134, 135, 139, 132, 128, 103, 113, 169, 98, 124, 172),
        *(278, 93, 94),
    ),
}


class Refused(jinja2.TemplateError):
    """Raised when the template called raise_exception: it does not take these messages."""


def main() -> None:
    """Keep a worker going until there are no more requests."""
    niceness, parent, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    prctl = _load_prctl()
    _end_with(parent, prctl)
    os.nice(niceness)
    _limit(
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _NUM_FILES),
    )
    _compile_all(json.loads(sys.stdin.buffer.readline() or "[]"), seconds)
    _say({"ready": True})
    while (status := _run_worker(prctl)) != 0:
        _say({"died": status})


def _run_worker(prctl: Callable[..., int] | None) -> int:
    """Return how a worker ended: 0 where nothing more came in, a signal's number below 0."""
    mother = os.getpid()
    if worker := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    try:
        _end_with(mother, prctl)
        _limit((resource.RLIMIT_NPROC, 0))
        _filter_system_calls(prctl)
        _serve()
    except BaseException:  # MemoryError, as a rule
        os._exit(1)
    os._exit(0)


def _serve() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # SIGPROF ends the process, also where it is busy in C.
        signal.setitimer(signal.ITIMER_PROF, request["cpu_seconds"])
        answer = _answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(answer)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _limit(*limits: tuple[int, int]) -> None:
    for limit, value in limits:
        with suppress(OSError, ValueError):  # macOS knows no RLIMIT_AS
            resource.setrlimit(limit, (value, value))


def _load_prctl() -> Callable[..., int] | None:
    """Return Linux's prctl, or None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
        prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    except (OSError, AttributeError):
        return None
    return prctl


def _end_with(parent: int, prctl: Callable[..., int] | None) -> None:
    """End when that process does, in the midst of a rendering too."""
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we had asked for that
            os._exit(0)


def _filter_system_calls(prctl: Callable[..., int] | None) -> None:
    """Let the kernel refuse all but what rendering needs, where it can; for good."""
    known = _SYSTEM_CALLS.get(os.uname().machine)
    if prctl is None or known is None or sys.maxsize < 2**32:
        return
    architecture, *allowed = known
    steps = [
        (_BPF_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_BPF_JUMP_EQUAL, 1, 0, architecture),
        (_BPF_RETURN, 0, 0, _SECCOMP_KILL),
        (_BPF_LOAD, 0, 0, _NUMBER_OFFSET),
        *((_BPF_JUMP_EQUAL, len(allowed) - i, 0, number) for i, number in enumerate(allowed)),
        (_BPF_RETURN, 0, 0, _SECCOMP_EPERM),
        (_BPF_RETURN, 0, 0, _SECCOMP_ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0)


def _compile_all(templates: list[str], seconds: float) -> None:
    """Compile templates for all workers to come; errors are told to those who render them."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    for template in templates:
        with suppress(Exception):
            _compile(template)
    signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        template = _compile(request["template"])
        clock = {"strftime_now": datetime.fromisoformat(request["now"]).strftime}
        pieces = template.generate({**clock, **request["variables"]})
        return {"text": _join(pieces, request["max_chars"])}
    except Refused as problem:
        return {"refused": str(problem)[:_MAX_MESSAGE]}
    except MemoryError:
        raise
    except Exception as problem:  # a template can raise anything
        return {"error": f"{type(problem).__name__}: {problem}"[:_MAX_MESSAGE]}


def _join(pieces: Iterable[str], max_chars: int) -> str:
    joined: list[str] = []
    num_chars = 0
    for piece in pieces:
        num_chars += len(piece)
        if num_chars > max_chars:
            raise ValueError(f"the prompt is longer than {max_chars:,} characters")
        joined.append(piece)
    return "".join(joined)


@lru_cache(maxsize=8)
def _compile(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _environment() -> _Sandbox:
    # The functions and options that transformers gives to chat templates.
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    functions: dict[str, Callable[..., Any]] = {
        "raise_exception": _raise_exception,
        "namespace": _Namespace,
    }
    environment.globals.update(functions)
    environment.filters["tojson"] = _tojson
    return environment


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, where an attempt to leave is an error even if its result isn't used."""

    def unsafe_undefined(self, obj: object, attribute: str) -> NoReturn:
        raise jinja2.exceptions.SecurityError(
            f"access to attribute {attribute!r} of {type(obj).__name__!r} is unsafe"
        )


class _Generation(Extension):
    """The tag {% generation %}, which marks text for training; it renders as its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """A namespace without underscored names: a `__class__` of its own would fool the sandbox."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        for name in dict(*args[1:], **kwargs):
            _refuse_underscore(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace can't have the name {name!r}")


def _raise_exception(message: object) -> NoReturn:
    raise Refused(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML.
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text) if ensure_ascii else text


if __name__ == "__main__":
    main()
