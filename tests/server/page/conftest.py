"""A real browser without a window; where there is none, these tests skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
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

ColorScheme = Literal["dark", "light"]
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


class Tab:
    """A page that tests use in turn: a new one costs more than what most of them do there."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None
        self._origins: set[str] = set()

    def take(self, origin: str, color_scheme: ColorScheme = "light") -> Page:
        """Return the page, which keeps nothing that it had from there."""
        if self._page is None:
            self._page = self._browser.new_context(viewport=WIDE).new_page()
            self._origins.clear()
        elif origin in self._origins:
            self._page.goto(f"{origin}/health")
            self._page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self._origins.add(origin)
        self._page.emulate_media(color_scheme=color_scheme)
        return self._page

    def leave(self) -> None:
        """Make it as it was for the next test."""
        if self._page is not None:
            self._page.unroute_all()
            self._page.context.set_offline(False)
            self._page.goto("about:blank")

    def close(self) -> None:
        """Have the next test take a new one."""
        if self._page is not None:
            self._page.context.close()
            self._page = None


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Iterator[Tab]:
    tab = Tab(browser)
    yield tab
    tab.close()


@pytest.fixture
def open_page(browser: Browser, tab: Tab, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the chat page of a server; fails in the end if the page or its policy complained."""
    contexts: list[BrowserContext] = []
    opened: list[Page] = []
    complaints: list[str] = []
    num_failed = request.session.testsfailed

    def note_error(error: Error) -> None:
        complaints.append(str(error))

    def note_message(message: ConsoleMessage) -> None:
        if _is_bad(message):
            complaints.append(message.text)

    def open_page(host: Host, *, is_phone: bool = False, **options: Any) -> Talk:
        origin = str(host.http.base_url).rstrip("/")
        if opened or is_phone or not options.keys() <= {"color_scheme"}:
            context = browser.new_context(viewport=PHONE if is_phone else WIDE, **options)
            contexts.append(context)
            page = context.new_page()
        else:
            page = tab.take(origin, **options)
        opened.append(page)
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", note_error)
        page.on("console", note_message)
        page.goto(f"{origin}/")
        return Talk(page)

    yield open_page
    for context in contexts:
        context.close()
    if request.session.testsfailed > num_failed:
        tab.close()
    else:
        tab.leave()
    for page in opened:
        page.remove_listener("pageerror", note_error)
        page.remove_listener("console", note_message)
    assert not complaints


def _is_bad(message: ConsoleMessage) -> bool:
    """Whether it is more than the status of an answer, which the page tells a person."""
    return message.type in ("error", "warning") and "Failed to load resource" not in message.text
