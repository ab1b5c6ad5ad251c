"""Where real checkpoints, tokenizers and vectors lie; tests skip where one is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"


def data_path(*parts: str) -> Path:
    """The path of a file or folder of test data, or a skip that says what is missing."""
    path = Path(os.environ.get("INFERNO_TEST_DATA", _DEFAULT)).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"test data not found: {path} (set INFERNO_TEST_DATA)", allow_module_level=True)
    return path
