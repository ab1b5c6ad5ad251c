"""Tiny real models to be mutated: folders of safetensors, and GGUF files of each kind.

They are written in a process of its own: `transformers`, which makes them, takes long to import and
starts threads, and what has threads can't be forked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seed:
    """An honest model: the bytes of its files by name, and which of them is opened, "" for all."""

    name: str
    files: Mapping[str, bytes]
    opened: str


def made_seeds(folder: Path) -> list[Seed]:
    """Have the seeds written into a folder, and return them."""
    writing = [sys.executable, "-m", "tests.fuzz.write_seeds", str(folder)]
    subprocess.run(writing, check=True, capture_output=True)
    return read_seeds(folder)


def read_seeds(folder: Path) -> list[Seed]:
    """Return the seeds that were written into a folder."""
    found = []
    for model in sorted(folder.iterdir()):
        files = {path.name: path.read_bytes() for path in sorted(model.iterdir())}
        opened = next((name for name in files if name.endswith(".gguf")), "")
        found.append(Seed(model.name, files, opened))
    return found
