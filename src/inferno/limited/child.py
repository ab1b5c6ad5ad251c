"""The inside of a child process that works under limits; `process.py` starts it.

Such a child is a script with three arguments and more: its niceness, the process that started it,
the seconds that its preparation may take, and folders in which its modules may lie. The first line
that comes in is what to prepare. Then `{"ready"}` goes out, and from there on one JSON object per
line comes in, with `cpu_seconds` and what the script itself asks for, and one goes out; before it
may go `{"so_far"}`, what is known of the answer already.

A worker, which is forked from this process, does the work. Too much time or memory ends it; that is
told as `{"died"}`, with its status, and the next worker is there at once, for what was imported and
prepared need not be again. The end of the input ends both.

A worker has no environment variables, no file but its three pipes and, where Linux filters system
calls, no means to open another, to connect, to start a process, or to signal one.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

MAX_MEMORY = 512 * 2**20
_NUM_FILES = 3  # standard input, output and error

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

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def work(prepare: Callable[[Any], None], answer: Answer) -> None:
    """Keep a worker going until there are no more requests.

    prepare     is called once, before there is a worker, with what the first line says.
    answer      makes a request's answer, in the worker. MemoryError ends it.
    """
    niceness, parent, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    prctl = load_prctl()
    _end_with(parent, prctl)
    os.nice(niceness)
    _limit(
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _NUM_FILES),
    )
    first = json.loads(sys.stdin.buffer.readline() or "null")
    limit_time(seconds)
    prepare(first)
    limit_time(0)
    _say({"ready": True})
    while (status := _run_worker(answer, prctl)) != 0:
        _say({"died": status})


def limit_time(seconds: float) -> None:
    """Have SIGPROF end this process after so much processor time, also where it is busy in C.

    0 ends the limit.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)


def load_prctl() -> Callable[..., int] | None:
    """Return Linux's prctl, or None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
        prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    except (OSError, AttributeError):
        return None
    return prctl


def filter_system_calls(prctl: Callable[..., int] | None) -> None:
    """Let the kernel refuse all but what a worker needs, where it can; for good."""
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


def _run_worker(answer: Answer, prctl: Callable[..., int] | None) -> int:
    """Return how a worker ended: 0 where nothing more came in, a signal's number below 0."""
    mother = os.getpid()
    if worker := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    try:
        _end_with(mother, prctl)
        _limit((resource.RLIMIT_NPROC, 0))
        filter_system_calls(prctl)
        _serve(answer)
    except BaseException:  # MemoryError, as a rule
        os._exit(1)
    os._exit(0)


def _serve(answer: Answer) -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin.buffer:
        request = json.loads(line)
        limit_time(request["cpu_seconds"])
        answered = answer(request)
        limit_time(0)
        _say(answered)


def say_so_far(part: dict[str, Any]) -> None:
    """Tell who asked what is known of the answer already; a worker's time stands still meanwhile.

    A line must not be cut off by the limit.
    """
    left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
    _say({"so_far": part})
    if left:
        limit_time(left)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _limit(*limits: tuple[int, int]) -> None:
    for limit, value in limits:
        with suppress(OSError, ValueError):  # macOS knows no RLIMIT_AS
            resource.setrlimit(limit, (value, value))


def _end_with(parent: int, prctl: Callable[..., int] | None) -> None:
    """End when that process does, in the midst of its work too."""
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before we had asked for that
            os._exit(0)
