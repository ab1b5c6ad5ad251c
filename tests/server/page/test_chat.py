"""A chat on the page, in a browser: sent, streamed, stopped, tried again, reloaded."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from inferno.client.scripted import Answer, Script
from tests.server.hosting import Host
from tests.server.http.serving import wait_until
from tests.server.page.conftest import Open
from tests.server.page.talk import saying, serving, thinking_text

ENDLESS = Script(
    answers=(Answer(token_ids=(40, 41), is_endless=True, delay=0.01),),
    vocab_size=2048,
    max_model_len=4096,
)


def test_a_real_model_answers(demo: Host, open_page: Open) -> None:
    talk = open_page(demo)
    expect(talk.page.locator("#model")).to_have_text("demo")
    talk.pick(temperature="0")
    expected = demo.chat("Tell me a story about a fox.", temperature=0).json()
    assert (
        talk.ask("Tell me a story about a fox.")
        == expected["choices"][0]["message"]["content"].strip()
    )
    num_tokens = expected["usage"]["completion_tokens"]
    # A page that is held up may find all tokens there at once, which have no rate.
    pattern = rf"{num_tokens} tokens( · [\d,.]+ tokens/s)? · first token [\d.]+ m?s"
    assert re.fullmatch(pattern, talk.figures.inner_text())


def test_an_answer_is_shown_while_it_comes(open_page: Open) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    with serving(saying(words, delay=0.01)) as host:
        talk = open_page(host)
        talk.send("Go")
        seen = []
        while "done" not in (talk.last.get_attribute("class") or ""):
            seen.append(talk.answer.inner_text())
            time.sleep(0.02)
        assert talk.wait() == words
        assert len(set(seen)) > 3
        assert all(words.startswith(each) for each in seen)
        pattern = r"\d+ tokens · [\d,.]+ tokens/s · first token [\d.]+ m?s"
        assert re.fullmatch(pattern, talk.figures.inner_text())


def test_what_was_picked_and_said_is_sent(demo: Host, open_page: Open) -> None:
    talk = open_page(demo)
    talk.pick(system="Be brief.", temperature="0.5", max_tokens="3")
    first = talk.ask("Tell me a story.")
    assert "3 tokens" in talk.figures.inner_text()
    assert "cut at the token limit" in talk.figures.inner_text()
    sent = talk.request_of("Two\nlines")
    assert [message["role"] for message in sent["messages"]] == [
        *("system", "user", "assistant", "user")
    ]
    assert sent["messages"][0]["content"] == "Be brief."
    assert sent["messages"][2]["content"].strip() == first
    assert sent["messages"][3]["content"] == "Two\nlines"
    assert (sent["temperature"], sent["max_completion_tokens"]) == (0.5, 3)


def test_stop_keeps_what_came_and_ends_the_request(open_page: Open) -> None:
    with serving(ENDLESS) as host:
        talk = open_page(host)
        for button in ("Stop", None):
            talk.send("Go")
            expect(talk.answer).not_to_be_empty()
            if button:
                talk.press(button)
            else:
                talk.page.keyboard.press("Escape")
            assert talk.wait()
            expect(talk.figures).to_contain_text("stopped")
            wait_until(lambda: host.engine.stats().running == 0)
        expect(talk.page.get_by_role("button", name="Send")).to_be_visible()


def test_retry_replaces_the_last_answer(open_page: Open) -> None:
    with serving(saying("First.", "Second.", "Third.")) as host:
        talk = open_page(host)
        talk.ask("One")
        assert talk.ask("Two") == "Second."
        talk.press("Retry")
        expect(talk.answer).to_have_text("Third.")
        assert talk.page.locator(".asked").all_inner_texts() == ["One", "Two"]


def test_the_last_message_can_be_edited(open_page: Open) -> None:
    with serving(saying("First.", "Second.", "Third.")) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.ask("Tow")
        talk.press("Edit")
        expect(talk.page.locator("#question")).to_have_value("Tow")
        talk.press("Cancel")
        expect(talk.page.locator("#question")).to_have_value("")
        talk.press("Edit")
        talk.send("Two")
        expect(talk.answer).to_have_text("Third.")
        assert talk.page.locator(".asked").all_inner_texts() == ["One", "Two"]


def test_a_reload_changes_nothing(open_page: Open) -> None:
    with serving(saying("**First**.", "Second.")) as host:
        talk = open_page(host)
        talk.pick(temperature="0.3")
        talk.ask("One")
        talk.ask("Two")
        before = talk.page.locator("#turns").inner_html()
        talk.page.reload()
        expect(talk.turns).to_have_count(2)
        assert talk.page.locator("#turns").inner_html() == before
        expect(talk.page.locator("#settings [name=temperature]")).to_have_value("0.3")
        assert talk.ask("Three") == "Second."


def test_a_reload_while_an_answer_comes_keeps_what_came(open_page: Open) -> None:
    with serving(ENDLESS) as host:
        talk = open_page(host)
        talk.send("Go")
        expect(talk.answer).not_to_be_empty()
        talk.page.reload()
        assert talk.wait()
        expect(talk.figures).to_contain_text("stopped")
        wait_until(lambda: host.engine.stats().running == 0)


@pytest.mark.slow
def test_a_conversation_too_large_to_keep_loses_its_oldest_turns(open_page: Open) -> None:
    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        for number, letter in enumerate("abc", 1):
            talk.page.evaluate(
                """(text) => {
                    document.getElementById("question").value = text;
                    document.getElementById("composer").requestSubmit();
                }""",
                letter * 400_000,
            )
            expect(talk.page.locator(".turn.done")).to_have_count(number)
        talk.page.reload()
        expect(talk.turns).to_have_count(2)
        assert talk.page.locator(".asked").first.inner_text()[0] == "b"


def test_a_new_chat_forgets_the_old_one(open_page: Open) -> None:
    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.press("New chat")
        expect(talk.turns).to_have_count(0)
        expect(talk.page.locator("#question")).to_be_focused()
        talk.page.reload()
        expect(talk.page.get_by_role("button", name="Undo")).to_be_hidden()
        expect(talk.page.get_by_text("What is on your mind?")).to_be_visible()
        assert len(talk.request_of("Two")["messages"]) == 1


def test_a_new_chat_ends_the_answer_that_comes(open_page: Open) -> None:
    with serving(ENDLESS) as host:
        talk = open_page(host)
        talk.send("Go")
        expect(talk.answer).not_to_be_empty()
        talk.press("New chat")
        wait_until(lambda: host.engine.stats().running == 0)
        expect(talk.turns).to_have_count(0)
        expect(talk.status).to_have_text("New chat.")
        talk.press("Undo")
        expect(talk.answer).not_to_be_empty()
        expect(talk.figures).to_contain_text("stopped")


def test_a_new_chat_can_be_taken_back_until_its_first_message(open_page: Open) -> None:
    with serving(saying("First.", "Second.", "Third.", "Fourth.")) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.ask("Two")
        talk.press("New chat")
        talk.press("Undo")
        expect(talk.turns).to_have_count(2)
        assert talk.page.locator(".asked").all_inner_texts() == ["One", "Two"]
        sent = talk.request_of("Three")
        assert [message["content"] for message in sent["messages"]][:4] == [
            *("One", "First.", "Two", "Second.")
        ]
        talk.press("New chat")
        talk.ask("Other")
        expect(talk.page.get_by_role("button", name="Undo")).to_be_hidden()


def test_enter_sends_and_shift_enter_does_not(open_page: Open) -> None:
    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        field = talk.page.locator("#question")
        field.press_sequentially("One")
        height = field.bounding_box()
        field.press("Shift+Enter")
        field.press_sequentially("Two")
        grown = field.bounding_box()
        assert height is not None
        assert grown is not None
        assert grown["height"] > height["height"]
        empty = height
        expect(talk.turns).to_have_count(0)
        field.press("Enter")
        talk.wait()
        assert talk.page.locator(".asked").inner_text() == "One\nTwo"
        assert field.bounding_box()["height"] == empty["height"]  # type: ignore[index]


def test_reasoning_is_set_apart_and_folds_away(open_page: Open, tmp_path: Path) -> None:
    text = thinking_text(tmp_path)
    script = saying("<think>Well, **hm**.</think>Yes.", folder=tmp_path, delay=0.1)
    with serving(script, text) as host:
        talk = open_page(host)
        talk.send("Is it so?")
        reasoning = talk.last.locator(".reasoning")
        expect(reasoning.get_by_text("Thinking")).to_be_visible()
        expect(reasoning.get_by_text("Well")).to_be_visible()
        assert talk.wait() == "Yes."
        expect(reasoning.get_by_text("Well")).to_be_hidden()
        reasoning.get_by_text("Reasoning").click()
        expect(reasoning.get_by_text("Well, **hm**.")).to_be_visible()


def test_settings_that_can_not_be_are_not_sent(demo: Host, open_page: Open) -> None:
    talk = open_page(demo)
    expect(talk.page.locator("#model")).to_have_text("demo")
    talk.press("Settings")
    talk.page.get_by_label("Temperature").fill("-1")
    talk.page.get_by_label("Most tokens in an answer").fill("1e9")
    talk.press("Done")
    expect(talk.page.get_by_role("dialog")).to_be_visible()  # the browser says what is wrong
    talk.page.keyboard.press("Escape")
    assert talk.request_of("Hello").keys() == {"messages", "stream", "stream_options"}
    talk.press("Settings")
    talk.press("Back to defaults")
    expect(talk.page.get_by_label("Temperature")).to_have_value("")
    talk.press("Done")
    expect(talk.page.get_by_role("dialog")).to_be_hidden()
