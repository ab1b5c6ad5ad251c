"""Where models come from."""

from __future__ import annotations

from pathlib import Path


def fetch_model(name: str, revision: str | None) -> Path:
    """As `fetch.fetch_model`, imported when first used: its library takes a tenth of a second."""
    from inferno.hub import fetch  # noqa: PLC0415

    return fetch.fetch_model(name, revision)
