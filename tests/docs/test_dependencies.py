"""docs/dependencies.md has a reason for each package that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib

from inferno.cli.doctor_facts import REQUIRED
from tests.docs.pages import ROOT, rows, section

PAGE = "docs/dependencies.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", one)[0] for one in requirements}


def reasons(heading: str) -> set[str]:
    cells = [row[0] for row in rows(section(PAGE, heading)) if row[1]]
    return {name for cell in cells for name in cell.split(", ")}


def test_each_has_a_reason() -> None:
    assert names(PROJECT["dependencies"]) <= reasons("## Installed with inferno")
    for extra, packages in PROJECT["optional-dependencies"].items():
        found = re.search(rf"^## .*\[{extra}\].*$", (ROOT / PAGE).read_text(), re.M)
        assert found, f"{PAGE} has nothing on [{extra}]"
        assert names(packages) - {PROJECT["name"]} <= reasons(found[0])


def test_doctor_looks_for_each() -> None:
    assert names(PROJECT["dependencies"]) <= set(REQUIRED)
