"""Import what is used of huggingface_hub, and refuse by name what the environment says wrongly."""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from inferno.errors import InvalidRequest
from inferno.untrusted_json import quoted

# What huggingface_hub reads as it is imported, and fails if it can't.
_ENDPOINT = "HF_ENDPOINT"
_TIMES = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
_MAX_SECONDS = 1_000_000


def _take_unreadable() -> dict[str, str]:
    """Take the variables out of the environment with which huggingface_hub can't be imported."""
    readers: dict[str, Callable[[str], object]] = dict.fromkeys(_TIMES, int)
    readers[_ENDPOINT] = lambda text: urlsplit(text).hostname
    found = {}
    for name, read in readers.items():
        try:
            read(os.environ.get(name, "0"))
        except ValueError:
            found[name] = os.environ.pop(name)
    return found


# What is local takes no such variable. `check_times` and a hub's client refuse it by name.
_UNREADABLE = _take_unreadable()

from huggingface_hub import constants, scan_cache_dir  # noqa: E402
from huggingface_hub.errors import CacheNotFound  # noqa: E402

os.environ.update(_UNREADABLE)
# Or a model would be asked for at another hub than the user's.
constants.ENDPOINT = _UNREADABLE.get(_ENDPOINT, constants.ENDPOINT).rstrip("/")

__all__ = ["CacheNotFound", "check_times", "constants", "download_timeout", "scan_cache_dir"]


def download_timeout() -> float:
    """Return the seconds without a byte after which a hub is given up. Raises InvalidRequest."""
    check_times()
    seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
    if not 0 < seconds <= _MAX_SECONDS:  # it may have more digits than a float
        raise _no_time(_TIMES[0], str(seconds))
    return float(seconds)


def check_times() -> None:
    """Raise InvalidRequest where a variable of the environment is no time to wait for a hub."""
    for name in _TIMES:
        given = os.environ.get(name, "").strip()
        try:
            is_time = not given or 0 <= int(given) <= _MAX_SECONDS
        except ValueError:
            is_time = False
        if not is_time:
            raise _no_time(name, given)


def _no_time(name: str, given: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} must be a whole number of seconds, from 1 to {_MAX_SECONDS:,}, not "
        f"{quoted(given, 40)}"
    )
