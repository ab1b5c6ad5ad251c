"""What the engine holds in memory, logged after each job; growth is a warning."""

from __future__ import annotations

import logging

from inferno.client import EngineStats

_SLACK_BYTES = 64 << 20  # what libraries keep for themselves once they have worked

_log = logging.getLogger("inferno.worker")


class Residency:
    """Knows the level of each use of memory: what it was at load, or when growth was last told.

    The process may grow by the KV cache, which an operating system hands out as it fills.
    """

    def __init__(self, stats: EngineStats) -> None:
        uses = _uses(stats)
        room = stats.device_bytes.get("kv_cache", 0)
        self._levels = {use: num_bytes for use, num_bytes in uses.items() if use != "process"}
        self._levels["process"] = uses["process"] + room
        _log.info("residency at load", extra={"fields": _fields(uses)})

    def note(self, stats: EngineStats, **facts: object) -> None:
        """Log it beside these facts of a job, and what grew."""
        uses = _uses(stats)
        _log.info("job over", extra={"fields": facts | _fields(uses)})
        for use, num_bytes in uses.items():
            level = self._levels.setdefault(use, num_bytes)
            if num_bytes > level + _SLACK_BYTES:
                self._levels[use] = num_bytes
                grown = {"use": use, "bytes": num_bytes, "expected_bytes": level}
                _log.warning("memory grew", extra={"fields": facts | grown})


def _uses(stats: EngineStats) -> dict[str, int]:
    return {**stats.device_bytes, "process": stats.rss_bytes}


def _fields(uses: dict[str, int]) -> dict[str, object]:
    return {f"{use}_bytes": num_bytes for use, num_bytes in uses.items()}
