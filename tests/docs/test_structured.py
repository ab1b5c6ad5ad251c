"""The page on answers with a shape: its table of keywords is what the compiler does."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from tests.data import data_path

ROOT = Path(__file__).resolve().parents[2]
MADE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "make_schema_reference.py"))


def test_the_table_of_keywords_is_up_to_date() -> None:
    text = (ROOT / "docs" / "structured.md").read_text()
    table = text.split(MADE["BEGIN"])[1].split(MADE["END"])[0].strip()
    assert table == MADE["table"](data_path("json-schema", "draft2020-12")), (
        "run scripts/make_schema_reference.py"
    )
