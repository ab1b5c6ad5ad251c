"""Draw docs/images/play.svg: what a terminal shows after a short talk with the embedded model.

    python scripts/make_play_picture.py [--out FILE]

It types into `inferno play demo` in a pseudo-terminal and keeps what the screen holds at the end.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 84, 32
MESSAGES = ("Hello!", "What is inferno?", "What is 7 + 8?", "Tell me a story about a fox.")
PROMPT = ">"  # begins the line that waits for a message
PATIENCE = 60.0  # seconds for one answer
_PAGE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace; }}
{styles}
</style>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#16181d"/>
<g transform="translate(9, 9)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
</svg>
"""


def main() -> None:
    """Talk, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parents[1] / "docs" / "images" / "play.svg"
    parser.add_argument("--out", type=Path, default=default)
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(draw(talk(MESSAGES)), encoding="utf-8")
    print(f"wrote {out}")


def talk(messages: tuple[str, ...]) -> pyte.Screen:
    """The terminal's screen after these messages were answered."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        command = [sys.executable, "-m", "inferno", "play", "demo", "--seed", "1"]
        os.execv(sys.executable, command)
    try:
        for message in messages:
            _show_until_it_waits(terminal, stream, screen)
            os.write(terminal, message.encode())
            time.sleep(0.2)
            os.write(terminal, b"\r")
        _show_until_it_waits(terminal, stream, screen)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return screen


def _show_until_it_waits(terminal: int, stream: pyte.ByteStream, screen: pyte.Screen) -> None:
    """Feed the screen until the program shows its prompt and then writes nothing for a while."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            output = os.read(terminal, 65536)
            stream.feed(output)
            if b"\x1b[6n" in output:  # it asks where the cursor is
                where = f"\x1b[{screen.cursor.y + 1};{screen.cursor.x + 1}R"
                os.write(terminal, where.encode())
        elif screen.display[screen.cursor.y].startswith(PROMPT):
            return
    raise TimeoutError("play did not come back to its prompt:\n" + "\n".join(screen.display))


def draw(screen: pyte.Screen) -> str:
    """The screen as an SVG that asks nobody for a font."""
    console = Console(record=True, width=screen.columns, file=open(os.devnull, "w"))  # noqa: SIM115
    last = max(row for row, line in enumerate(screen.display) if line.strip())
    for row in range(last + 1):
        console.print(_line(screen, row), no_wrap=True, crop=True)
    svg = console.export_svg(title="inferno play", code_format=_PAGE, unique_id="play")
    return re.sub(r"[ \t]+\n", "\n", svg)


def _line(screen: pyte.Screen, row: int) -> Text:
    text = Text()
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        style = [word for word in ("bold", "italics", "underscore") if getattr(cell, word)]
        words = {"italics": "italic", "underscore": "underline"}
        style = [words.get(word, word) for word in style]
        if cell.fg != "default":
            style.append(_colour(cell.fg))
        text.append(cell.data, " ".join(style))
    text.rstrip()
    return text


def _colour(name: str) -> str:
    """pyte's name of a colour as rich writes it."""
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    name = {"brown": "yellow"}.get(name, name)
    return f"bright_{name[6:]}" if name.startswith("bright") else name


if __name__ == "__main__":
    main()
