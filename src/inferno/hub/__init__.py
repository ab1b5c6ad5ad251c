"""Find and fetch models."""

from __future__ import annotations

from pathlib import Path


def fetch_model(name: str, revision: str | None) -> Path:
    """Return a model's folder by `fetch.fetch_model`, whose slow libraries come only now."""
    from inferno.hub import fetch  # noqa: PLC0415

    return fetch.fetch_model(name, revision)
