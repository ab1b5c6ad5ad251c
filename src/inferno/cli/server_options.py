"""The options that `inferno serve` and `inferno worker` share, beside those of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inferno.option_table import Group

ApiKeys = Annotated[
    list[str] | None,
    typer.Option(
        help="A key that requests need, KEY or SCOPE,SCOPE:KEY; may be repeated.",
        rich_help_panel=Group.SECURITY,
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with such a key on each line.",
        show_default="none",
        rich_help_panel=Group.SECURITY,
    ),
]
FakeModel = Annotated[
    Path | None, typer.Option(help="Play this script instead of a model.", hidden=True)
]


def model_name(model: str) -> str:
    """Return a model's name in answers: an id as it is, a folder by the last part of its path."""
    try:
        path = Path(model).expanduser()
        return path.resolve().name if path.is_dir() else model
    except (RuntimeError, OSError):  # no such home, too long: the search for it says so
        return model
