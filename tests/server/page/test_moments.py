"""Moments at which two things happen on the chat page: nothing gets lost or mixed up."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from inferno.client.scripted import Answer, Script
from inferno.server.api_keys import read_keys
from tests.server.http.serving import wait_until
from tests.server.page.conftest import Open
from tests.server.page.talk import Talk, saying, serving, thinking_text

LATE = Answer(token_ids=(40,), first_delay=3600)


def first_then(*later: Answer) -> Script:
    """A script whose first answer is `First.`"""
    said = saying("First.")
    return Script(answers=(*said.answers, *later), vocab_size=said.vocab_size, max_model_len=4096)


def pairs(talk: Talk) -> list[tuple[str, str]]:
    """Each question with its answer."""
    asked = talk.page.locator(".asked").all_inner_texts()
    return list(zip(asked, talk.page.locator(".text").all_inner_texts(), strict=True))


@pytest.mark.parametrize("act", ["reload", "new chat"])
def test_an_edited_message_never_stands_above_the_answer_to_the_old_one(
    open_page: Open, act: str
) -> None:
    with serving(first_then(LATE)) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.press("Edit")
        talk.send("Changed")
        wait_until(lambda: host.engine.stats().running == 1)
        if act == "reload":
            talk.page.reload()
        else:
            talk.press("New chat")
            wait_until(lambda: host.engine.stats().running == 0)
            talk.press("Undo")
        expect(talk.turns).to_have_count(1)
        assert pairs(talk) == [("One", "First.")]


def test_an_answer_that_still_stands_can_be_copied(open_page: Open) -> None:
    with serving(first_then(LATE)) as host:
        talk = open_page(host, permissions=["clipboard-read", "clipboard-write"])
        talk.ask("One")
        talk.press("Retry")
        wait_until(lambda: host.engine.stats().running == 1)
        talk.press("Copy")
        expect(talk.last.get_by_text("Copied")).to_be_visible()
        assert talk.page.evaluate("navigator.clipboard.readText()") == "First."


def test_an_answer_can_be_copied_where_a_page_has_no_clipboard(open_page: Open) -> None:
    with serving(saying("First.")) as host:
        talk = open_page(host)
        talk.ask("One")
        expect(talk.last.get_by_text("First.")).to_be_visible()
        # As over plain HTTP from another machine.
        talk.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        talk.press("Copy")
        expect(talk.last.get_by_text("Copied")).to_be_visible()
        talk.page.locator("#question").press("Control+V")
        expect(talk.page.locator("#question")).to_have_value("First.")


@pytest.mark.parametrize("has_touch", [False, True])
def test_enter_begins_a_new_line_on_a_touch_screen(open_page: Open, has_touch: bool) -> None:
    with serving(saying("First.")) as host:
        talk = open_page(host, has_touch=has_touch, is_mobile=has_touch)
        question = talk.page.locator("#question")
        question.type("One")
        question.press("Enter")
        expect(question).to_have_value("One\n" if has_touch else "")
        expect(talk.turns).to_have_count(0 if has_touch else 1)


def test_an_edited_message_is_the_one_that_is_sent_once_a_key_is_given(open_page: Open) -> None:
    script = saying("First.", "Second.")
    with serving(script, api_keys=read_keys(["secret"], None, {})) as host:
        talk = open_page(host, http_credentials={"username": "x", "password": "secret"})
        talk.ask("One")
        talk.page.evaluate("sessionStorage.setItem('inferno.key', 'old')")
        talk.press("Edit")
        talk.send("Changed")
        dialog = talk.page.get_by_role("dialog", name="API key")
        dialog.get_by_label("Key").fill("secret")
        talk.press("Go on")
        expect(talk.answer).to_have_text("Second.")
        assert pairs(talk) == [("Changed", "Second.")]
        expect(talk.page.locator("#question")).to_have_value("")


def test_a_browser_that_keeps_nothing_can_chat(open_page: Open) -> None:
    with serving(saying("First.", "Second.")) as host:
        talk = open_page(host)
        talk.page.add_init_script(
            """for (const name of ["sessionStorage", "localStorage"]) {
                Object.defineProperty(window, name, {
                    get() { throw new DOMException("denied", "SecurityError"); },
                });
            }"""
        )
        talk.page.reload()
        expect(talk.page.locator("#model")).to_have_text("demo")
        assert talk.ask("One") == "First."
        assert talk.ask("Two") == "Second."
        talk.press("Dark theme")
        theme = talk.page.locator("html")
        expect(theme).to_have_attribute("data-theme", "dark")
        for scheme in ("dark", "light"):
            talk.page.emulate_media(color_scheme=scheme)
        expect(theme).to_have_attribute("data-theme", "dark")


def test_a_key_of_another_scope_can_be_replaced(open_page: Open) -> None:
    keys = read_keys(["secret", "metrics:other"], None, {})
    with serving(saying("Yes."), api_keys=keys) as host:
        talk = open_page(host, http_credentials={"username": "x", "password": "secret"})
        expect(talk.page.locator("#model")).to_have_text("demo")
        talk.page.evaluate("sessionStorage.setItem('inferno.key', 'old')")
        talk.send("Is it so?")
        dialog = talk.page.get_by_role("dialog", name="API key")
        dialog.get_by_label("Key").fill("other")
        talk.press("Go on")
        expect(dialog).to_contain_text("does not take that key")
        dialog.get_by_label("Key").fill("secret")
        talk.press("Go on")
        expect(talk.answer).to_have_text("Yes.")


def test_the_model_is_met_though_its_key_is_given_for_a_message(open_page: Open) -> None:
    with serving(saying("Yes."), api_keys=read_keys(["secret"], None, {})) as host:
        talk = open_page(host, http_credentials={"username": "x", "password": "secret"})
        expect(talk.page.locator("#model")).to_have_text("demo")
        talk.page.evaluate("sessionStorage.setItem('inferno.key', 'old')")
        talk.page.reload()
        dialog = talk.page.get_by_role("dialog", name="API key")
        expect(dialog).to_be_visible()
        talk.page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        talk.send("Is it so?")
        dialog.get_by_label("Key").fill("secret")
        talk.press("Go on")
        expect(talk.answer).to_have_text("Yes.")
        expect(talk.page.locator("#model")).to_have_text("demo")


def test_room_is_made_for_the_message_as_it_was_edited(open_page: Open) -> None:
    said = saying("Yes.", "Yes.", "Third.", "Fourth.")
    script = Script(answers=said.answers, vocab_size=said.vocab_size, max_model_len=512)
    with serving(script) as host:
        talk = open_page(host)
        words = "a cat and a dog " * 28  # some 150 tokens
        for letter in "AB":
            talk.ask(letter + words)
        talk.ask("C")
        talk.press("Edit")
        talk.send("D" + words + words)
        expect(talk.problem).to_contain_text("Leave out the oldest turns")
        talk.press("Leave out the oldest turns")
        expect(talk.answer).to_have_text("Fourth.")
        assert talk.last.locator(".asked").inner_text()[0] == "D"


def test_an_answer_that_the_model_s_own_limit_ends_says_so(open_page: Open, tmp_path: Path) -> None:
    text = thinking_text(tmp_path)
    text.defaults = {"max_tokens": 5}
    endless = Answer(token_ids=(21, 22), is_endless=True)
    with serving(Script(answers=(endless,), vocab_size=2050, max_model_len=512), text) as host:
        talk = open_page(host)
        talk.ask("Go")
        expect(talk.figures).to_contain_text("5 tokens")
        expect(talk.figures).not_to_contain_text("context is full")
        expect(talk.figures).to_contain_text("cut at the server’s own limit")


def test_the_last_problem_is_gone_when_it_is_tried_again(open_page: Open) -> None:
    with serving(Script(answers=(LATE,), vocab_size=2048)) as host:
        talk = open_page(host)
        expect(talk.page.locator("#model")).to_have_text("demo")
        talk.page.context.set_offline(True)
        talk.ask("Go")
        expect(talk.problem).to_contain_text("can’t be reached")
        talk.page.context.set_offline(False)
        talk.press("Retry")
        wait_until(lambda: host.engine.stats().running == 1)
        expect(talk.problem).to_be_hidden()


def test_what_is_being_written_comes_back_when_editing_ends(open_page: Open) -> None:
    with serving(saying("First.", "Second.")) as host:
        talk = open_page(host)
        talk.ask("One")
        field = talk.page.locator("#question")
        field.fill("A long thought")
        talk.press("Edit")
        talk.press("Cancel")
        expect(field).to_have_value("A long thought")
        talk.press("Edit")
        talk.send("Changed")
        expect(talk.answer).to_have_text("Second.")
        expect(field).to_have_value("A long thought")


def test_enter_that_ends_the_spelling_of_a_word_does_not_send(open_page: Open) -> None:
    with serving(saying("First.")) as host:
        talk = open_page(host)
        talk.page.fill("#question", "にほん")
        talk.page.locator("#question").evaluate(
            """(field) => field.dispatchEvent(new KeyboardEvent("keydown",
                { key: "Enter", keyCode: 229, bubbles: true, cancelable: true }))"""
        )
        expect(talk.page.locator("#question")).to_have_value("にほん")
        expect(talk.turns).to_have_count(0)


def test_a_double_click_sends_and_does_not_stop(open_page: Open) -> None:
    with serving(saying("First.", first_delay=0.5)) as host:
        talk = open_page(host)
        talk.page.fill("#question", "One")
        talk.page.locator("#send").dblclick()
        assert talk.wait() == "First."
