"""The embedded model: a tiny Llama that needs no download."""

from __future__ import annotations

from pathlib import Path

MODEL_FOLDER = Path(__file__).parent / "files"
