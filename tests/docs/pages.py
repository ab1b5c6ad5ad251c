"""The pages of documentation, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in that language."""
    return [content for found, content in _BLOCK.findall(PAGES[page]) if found == language]


def languages(page: str) -> set[str]:
    """The languages of a page's fenced blocks."""
    return {found for found, _ in _BLOCK.findall(PAGES[page])}


def commands(page: str) -> list[str]:
    """The lines of a page's console blocks that a reader types."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line.partition("  #")[0].rstrip() for line in typed]


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next of its rank or above."""
    rank = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(rank)}}} |\Z)", PAGES[page], re.M | re.S
    )
    assert found, f"{page} has no heading {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, headings and rules left out."""
    table_lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in table_lines
        if not line.startswith("|---")
    ]
