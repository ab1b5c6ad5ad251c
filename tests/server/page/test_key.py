"""The chat page of a server that has API keys: the key is given once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Error, Route, expect

from inferno.server.api_keys import read_keys
from tests.server.hosting import Host
from tests.server.page.conftest import Open
from tests.server.page.talk import saying, serving

KNOWN = {"username": "anyone", "password": "secret"}


@contextmanager
def _guarded() -> Iterator[Host]:
    with serving(saying("Yes."), api_keys=read_keys(["secret"], None, {})) as host:
        yield host


def test_the_key_that_opened_the_page_is_enough(open_page: Open) -> None:
    with _guarded() as host:
        talk = open_page(host, http_credentials=KNOWN)
        expect(talk.page.locator("#model")).to_have_text("demo")
        assert talk.ask("Is it so?") == "Yes."
        talk.page.reload()
        expect(talk.turns).to_have_count(1)
        kept = talk.page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")
        assert "secret" not in kept


def test_without_a_key_nothing_is_shown(open_page: Open) -> None:
    # A person would be asked at this point.
    with _guarded() as host, pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
        open_page(host)


def test_an_address_may_bring_the_key(open_page: Open) -> None:
    with _guarded() as host:
        talk = open_page(host, http_credentials=KNOWN)
        bare = talk.page.url.removeprefix("http://")
        talk.page.goto(f"http://anyone:secret@{bare}")
        assert talk.ask("Is it so?") == "Yes."


def test_the_page_asks_for_a_key_where_the_browser_has_none(open_page: Open) -> None:
    def forget(route: Route) -> None:
        headers = {**route.request.headers}
        del headers["x-inferno-page"]  # so that what the browser knows doesn't count
        route.continue_(headers=headers)

    with _guarded() as host:
        talk = open_page(host, http_credentials=KNOWN)
        expect(talk.page.locator("#model")).to_have_text("demo")
        talk.page.context.route("**/v1/**", forget)
        talk.page.reload()
        dialog = talk.page.get_by_role("dialog", name="API key")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Key").fill("wrong")
        talk.press("Go on")
        expect(dialog).to_contain_text("does not take that key")
        dialog.get_by_label("Key").fill("secret")
        dialog.get_by_label("Key").press("Enter")
        expect(talk.page.locator("#model")).to_have_text("demo")
        assert talk.ask("Is it so?") == "Yes."
        talk.page.reload()
        assert talk.ask("And now?") == "Yes."
        assert "secret" not in talk.page.evaluate("JSON.stringify(localStorage)")


def test_a_key_that_is_taken_back_is_asked_for_and_the_answer_comes_then(open_page: Open) -> None:
    with _guarded() as host:
        talk = open_page(host, http_credentials=KNOWN)
        expect(talk.page.locator("#model")).to_have_text("demo")
        talk.page.evaluate("sessionStorage.setItem('inferno.key', 'old')")
        talk.send("Is it so?")
        dialog = talk.page.get_by_role("dialog", name="API key")
        dialog.get_by_label("Key").fill("secret")
        talk.press("Go on")
        expect(talk.answer).to_have_text("Yes.")
        expect(talk.turns).to_have_count(1)
