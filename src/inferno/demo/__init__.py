"""The embedded models, which need no download: a tiny Llama, and the draft of its answers."""

from __future__ import annotations

from pathlib import Path

_FILES = Path(__file__).parent / "files"
MODEL_FOLDERS = {name: _FILES / name for name in ("demo", "demo-draft")}
