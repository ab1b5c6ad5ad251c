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
    return blocks_in(PAGES[page], language)


def blocks_in(text: str, language: str) -> list[str]:
    """The fenced blocks of a part of a page."""
    return [content for found, content in _BLOCK.findall(text) if found == language]


def languages(page: str) -> set[str]:
    """The languages of a page's fenced blocks."""
    return {found for found, _ in _BLOCK.findall(PAGES[page])}


def commands(page: str) -> list[str]:
    """What a reader types, by a page's console blocks."""
    return [typed for typed, _ in dialogues(PAGES[page])]


def dialogues(text: str) -> list[tuple[str, str]]:
    """Each command of the text's console blocks, on one line, and what is shown under it."""
    entries = re.split(r"^\$ ", "".join(blocks_in(text, "console")), flags=re.M)[1:]
    split = [re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", entry, re.S) for entry in entries]
    return [(_one_line(found[1]), found[2]) for found in split if found]


def _one_line(typed: str) -> str:
    return re.sub(r"\s*\\\n\s*", " ", typed).partition("  #")[0].rstrip()


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next of its rank or above."""
    rank = heading.partition(" ")[0]
    prose = _BLOCK.sub(lambda block: block[0].replace("#", "-"), PAGES[page])
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(rank)}}} |\Z)", prose, re.M | re.S
    )
    assert found, f"{page} has no heading {heading!r}"
    return PAGES[page][found.start(1) : found.end(1)]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, headings and rules left out."""
    table_lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in table_lines
        if not line.startswith("|---")
    ]
