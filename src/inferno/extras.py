"""Make the command that installs an optional part of inferno."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "inferno-engine"


def install_command(extra: str) -> str:
    """Return a shell command that adds an extra, such as "serve", to this installation.

    The command names this Python, so that it works outside an activated environment. If inferno was
    installed from a folder (PEP 610's direct_url.json says so), the command installs from there
    again.
    """
    words = [_python(), "-m", "pip", "install"]
    folder, is_editable = _origin()
    if folder is None:
        return shlex.join([*words, f"{DISTRIBUTION}[{extra}]"])
    return shlex.join([*words, *(["--editable"] if is_editable else []), f"{folder}[{extra}]"])


def _python() -> str:
    return sys.executable or "python"


def _origin() -> tuple[Path | None, bool]:
    """Return the folder of this installation, if there is one, and whether it runs from there."""
    source = Path(__file__).resolve().parents[2]
    if (source / "pyproject.toml").is_file() and (source / "src" / "inferno").is_dir():
        return source, True
    try:
        recorded = Distribution.from_name(DISTRIBUTION).read_text("direct_url.json")
        url = urlsplit(json.loads(recorded or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return None, False
    folder = Path(unquote(url.path))
    is_there = url.scheme == "file" and (folder / "pyproject.toml").is_file()
    return (folder, False) if is_there else (None, False)
