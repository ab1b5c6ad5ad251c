"""Facts of this process, from the operating system: memory, files, threads, children."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_SELF = Path("/proc/self")


def process_facts() -> dict[str, object]:
    """Return facts of this process for whoever debugs it; None where this system doesn't tell."""
    return {
        "pid": os.getpid(),
        "rss_bytes": rss_bytes(),
        "open_files": num_open_files(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "children": _or_none(_children),
    }


def rss_bytes() -> int | None:
    return _or_none(
        lambda: int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    )


def num_open_files() -> int | None:
    return _or_none(lambda: len(os.listdir("/dev/fd")) - 1)  # listing it opens one


def _children() -> list[int]:
    tasks = (_SELF / "task").iterdir()
    lists = [(task / "children").read_text().split() for task in tasks]
    return sorted(int(child) for children in lists for child in children)


def _or_none(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except OSError:
        return None
