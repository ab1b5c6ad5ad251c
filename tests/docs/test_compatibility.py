"""docs/compatibility.md is what the tables of the tests say, and tests go through these tables."""

from __future__ import annotations

import inspect
import re
import runpy
from importlib import import_module
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT

MADE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "make_compatibility.py"))


def test_it_is_up_to_date() -> None:
    assert PAGES["docs/compatibility.md"] == MADE["make_page"](), (
        "run scripts/make_compatibility.py"
    )


@pytest.mark.parametrize("source", MADE["SOURCES"], ids=lambda one: f"{one.module}.{one.name}")
def test_a_test_goes_through_the_table(source: Any) -> None:
    assert source.load()
    program = inspect.getsource(import_module(source.user))
    assert re.search(rf'parametrize\("\w+", {source.name}\b', program), source
