"""The folder where inferno keeps what it downloads and makes: models, packed weights."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path:
    """Return INFERNO_HOME, or inferno in the user's cache.

    Raises RuntimeError where the user has no home.
    """
    if home := os.environ.get("INFERNO_HOME"):
        return Path(home)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "inferno"
