"""docs/compatibility.md is what the tables of the tests say, and tests go through these tables."""

from __future__ import annotations

import inspect
import re
import runpy
from importlib import import_module
from typing import Any

import pytest

from inferno import ops
from inferno.ops import reference
from tests.docs.pages import PAGES, ROOT, rows, section

pytest.importorskip("triton")  # whose kernels' tests have tables too

MADE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "make_compatibility.py"))


def test_it_is_up_to_date() -> None:
    assert PAGES["docs/compatibility.md"] == MADE["make_page"](), (
        "run scripts/make_compatibility.py"
    )


@pytest.mark.parametrize("source", MADE["SOURCES"], ids=lambda one: f"{one.module}.{one.name}")
def test_a_test_goes_through_the_table(source: Any) -> None:
    assert source.load()
    program = inspect.getsource(import_module(source.user))
    through = rf'parametrize\("\w+", {source.name}\b|fixture\(params={source.name}\b'
    assert re.search(through, program), source


def test_a_device_has_the_kernels_of_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {row[0]: row[1:] for row in rows(section("docs/compatibility.md", "## Devices"))}
    assert written["`linear`"] == ["kernel", "kernel", "PyTorch"]
    monkeypatch.setitem(ops.BACKENDS, "cuda", reference)
    assert "| `linear` | kernel | PyTorch | PyTorch |" in MADE["_devices"]()
