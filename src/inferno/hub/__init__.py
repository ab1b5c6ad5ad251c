"""Find and fetch models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferno.hub.manifest import Entry


def find_here(name: str, revision: str | None) -> Entry | None:
    """Return a model that is on this machine, by `fetch.local_entry`, without asking a hub."""
    from inferno.hub import fetch, store  # noqa: PLC0415

    return fetch.local_entry(store.Store.of_user(), name, revision)


def fetch_model(name: str, revision: str | None) -> Path:
    """Return a model's path by `fetch.fetch_model`, whose slow libraries are imported only now."""
    from inferno.hub import fetch  # noqa: PLC0415

    return fetch.fetch_model(name, revision)
