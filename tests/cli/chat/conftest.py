"""The tiny model, loaded as `inferno play` does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferno import LLM


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(folder, threads=1, max_num_seqs=1) as llm:
        yield llm
