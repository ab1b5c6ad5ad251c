"""The reference is no oracle if it computes with the code that it judges."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import inferno.verify

FOLDER = Path(inferno.verify.__file__).parent / "oracles"
JUDGED = {"models", "layers", "ops", "engine"}


@pytest.mark.parametrize(
    "file",
    [*sorted(FOLDER.glob("plain_*.py")), FOLDER / "reference.py"],
    ids=lambda f: f.name,
)
def test_it_imports_nothing_that_it_judges(file: Path) -> None:
    modules = [
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    ]
    rooms = {module.split(".")[1] for module in modules if module.startswith("inferno.")}
    assert rooms <= {"verify", "weights"}
    assert not rooms & JUDGED
