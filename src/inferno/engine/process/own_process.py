"""Ask the operating system about this process, and have it end the process with its parent."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_MOST_HEAPS = -8  # M_ARENA_MAX of mallopt(3)
_STEPS_DOWN = 5  # in niceness: with a third of the weight, the others still get most of a core


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def ignore_signals() -> None:
    """Leave Ctrl+C and a polite end to the parent, who sees to requests under way."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)


def give_way() -> None:
    """Let others go first where this thread, and those it starts, would take all cores.

    A server answers what it refuses, and whether it is alive, within milliseconds of its own; it
    would wait for hundreds until a core is free. Where all is idle it costs nothing.
    """
    os.nice(_STEPS_DOWN)


def share_one_heap() -> None:
    """Have all threads allocate from one heap; call it before there are others.

    By itself glibc gives each thread a heap. What one of them reads from the socket another one
    frees, here, and the heaps fill with holes: they grow by megabytes in thousands of requests.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # a C library that has no such thing
            ctypes.CDLL(None).mallopt(_MOST_HEAPS, 1)


def rss_bytes() -> int:
    """Return the resident memory of this process; where there is no /proc, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def num_threads() -> int:
    """Count this process's threads; where there is no /proc, those that Python knows."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()
