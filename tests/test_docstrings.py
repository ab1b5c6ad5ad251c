"""The house's English: docstrings are full sentences that can be read alone, in a hover box."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from import_graph import SOURCE, package_files

# A caption begins so, and means nothing away from the line above it.
CAPTIONS = frozenset(
    {
        *("what", "who", "whose", "whom", "it", "its", "of", "those", "as", "that", "they"),
        *("how", "which", "whether", "where", "when", "why"),
        *("for", "until", "something", "everything", "whoever"),
    }
)
# Neither does a pronoun that stands for a word of another docstring: "Return whether it ended".
PRONOUNS = frozenset({"it", "them", "they"})
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield where each docstring of a file stands, and its first paragraph."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            name = getattr(node, "name", "the file")
            line = getattr(node, "lineno", 1)
            yield f"{path.relative_to(SOURCE)}:{line} {name}", text.partition("\n\n")[0]


@pytest.mark.parametrize("name", package_files())
def test_docstrings_are_sentences(name: str) -> None:
    wrong = []
    for place, text in docstrings(package_files()[name]):
        first = text.split()[0].strip(",.:;").lower()
        begins = {word.strip(",.:;") for word in text.lower().split()[:4]}
        if first in CAPTIONS or begins & PRONOUNS or not text.endswith((".", "!", "?", ":", ")")):
            wrong.append(f"{place}: {text!r}")
    assert not wrong, "\n".join(wrong)
