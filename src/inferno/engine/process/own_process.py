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
    """Have the kernel kill this process when its parent ends, however that happens; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def ignore_signals() -> None:
    """Ignore Ctrl+C and a request to end: the parent gets both, and ends this process in order."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)


def give_way() -> None:
    """Give this thread, and threads that it starts, a lower priority than other processes.

    Else a server's short answers, a refusal or whether it is alive, would wait hundreds of
    milliseconds for a core. On an idle machine this costs nothing.
    """
    os.nice(_STEPS_DOWN)


def share_one_heap() -> None:
    """Have all threads allocate from one heap; call this before other threads start.

    By default glibc gives each thread a heap. Here one thread reads from the socket and another
    frees, so the heaps would fill with holes, and grow by megabytes in thousands of requests.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # a C library that has no such thing
            ctypes.CDLL(None).mallopt(_MOST_HEAPS, 1)


def rss_bytes() -> int:
    """Return the resident memory of this process; its peak where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def num_threads() -> int:
    """Count this process's threads; those that Python knows where there is no /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()
