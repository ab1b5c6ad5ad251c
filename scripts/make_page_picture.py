"""Draw docs/images/chat-page.png: the chat page after a short talk with the embedded model.

    python scripts/make_page_picture.py [--browser PATH] [--out FILE]

It serves demo, talks to it in a browser without a window, once wide and light, once as on a phone
and dark, and puts both pictures side by side.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

MESSAGES = {
    "light": ("Hello!", "What is inferno?", "Tell me a story about a fox."),
    "dark": ("Hello!", "What is 7 + 8?", "What is inferno?"),
}
WIDE = ViewportSize(width=900, height=640)
PHONE = ViewportSize(width=360, height=640)
_GAP = 24
_BOTH = """<body style="margin: 0; display: flex; gap: {gap}px; background: #fff">
<img src="data:image/png;base64,{0}" width="{wide}" style="border: 1px solid #ddd8d0">
<img src="data:image/png;base64,{1}" width="{narrow}">"""


def main() -> None:
    """Serve, talk, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parents[1] / "docs" / "images" / "chat-page.png"
    parser.add_argument("--browser", default=shutil.which("chromium"))
    parser.add_argument("--out", type=Path, default=default)
    given = parser.parse_args()
    if given.browser is None:
        sys.exit("no chromium here: install it, or name a browser with --browser")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with serving() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=flags)
        shots = [talk(browser, url, WIDE, "light"), talk(browser, url, PHONE, "dark")]
        beside(browser, shots, given.out)
        browser.close()
    print(f"wrote {given.out}")


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server of demo, which is ready."""
    command = [sys.executable, "-m", "inferno", "serve", "demo", "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    url = ""
    try:
        for line in server.stderr:
            event = json.loads(line)
            url = event.get("at", [url])[0]
            if event["message"] == "ready":
                break
        yield url
    finally:
        server.terminate()
        server.communicate(timeout=30)


def talk(browser: Browser, url: str, size: ViewportSize, scheme: Literal["light", "dark"]) -> bytes:
    """What the window shows after this theme's messages were answered."""
    page = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=2)
    page.goto(url)
    page.click("#open-settings")
    page.fill("#settings [name=temperature]", "0")
    page.keyboard.press("Escape")
    for number, message in enumerate(MESSAGES[scheme], 1):
        page.fill("#question", message)
        page.press("#question", "Enter")
        page.wait_for_selector(f".turn.done:nth-child({number})", timeout=60_000)
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 300)
    page.wait_for_timeout(300)
    return page.screenshot()


def beside(browser: Browser, shots: list[bytes], out: Path) -> None:
    """Both pictures in one."""
    size = ViewportSize(width=WIDE["width"] + _GAP + PHONE["width"] + 2, height=WIDE["height"] + 2)
    page = browser.new_page(viewport=size)
    texts = [base64.b64encode(shot).decode() for shot in shots]
    html = _BOTH.format(*texts, gap=_GAP, wide=WIDE["width"], narrow=PHONE["width"])
    page.set_content(html)
    out.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=out)


if __name__ == "__main__":
    main()
