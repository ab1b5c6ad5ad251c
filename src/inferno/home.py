"""Find the folder where inferno keeps models and packed weights."""

from __future__ import annotations

import os
from pathlib import Path

UNFINISHED_PACKING = ".packed-"  # how the names begin of packed weights that are being written


def home_folder() -> Path:
    """Return the folder INFERNO_HOME, or else the folder inferno in the user's cache.

    A ~ at the beginning of INFERNO_HOME is the user's home: no shell expands it within quotes, in
    an `env` file or in a unit of systemd.

    Raises RuntimeError where the user has no home.
    """
    if home := os.environ.get("INFERNO_HOME"):
        return Path(home).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "inferno"
