"""A real browser without a window; where there is none, these tests skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.patience import PATIENCE
from tests.server.hosting import Host
from tests.server.page.talk import Talk

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = ViewportSize(width=360, height=700)
WIDE = ViewportSize(width=1100, height=800)

Open = Callable[..., Talk]


# Not for the session: Playwright's loop keeps asyncio.run from working in the tests of others.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=1000 * PATIENCE)
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser here: install one of {', '.join(NAMES)}")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens the chat page of a server; fails in the end if the page or its policy complained."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def note_error(error: Error) -> None:
        complaints.append(str(error))

    def note_message(message: ConsoleMessage) -> None:
        if _is_bad(message):
            complaints.append(message.text)

    def open_page(host: Host, *, is_phone: bool = False, **options: Any) -> Talk:
        context = browser.new_context(viewport=PHONE if is_phone else WIDE, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", note_error)
        page.on("console", note_message)
        page.goto(str(host.http.base_url))
        return Talk(page)

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def _is_bad(message: ConsoleMessage) -> bool:
    """Whether it is more than the status of an answer, which the page tells a person."""
    return message.type in ("error", "warning") and "Failed to load resource" not in message.text
