"""What goes wrong is told on the page, with what a person can do."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Route, expect

from inferno.client.scripted import Answer, Script
from tests.server.http.serving import wait_until
from tests.server.page.conftest import Open
from tests.server.page.talk import Talk, saying, serving

LEAVE_OUT = "Leave out the oldest turns"


def _script(*answers: Answer, **fields: Any) -> Script:
    return Script(answers=answers, vocab_size=2048, max_model_len=512, **fields)


def _model(talk: Talk) -> None:
    expect(talk.page.locator("#model")).to_have_text("demo")


def test_an_answer_that_breaks_off_is_kept_and_can_be_tried_again(open_page: Open) -> None:
    broken = Answer(token_ids=(40, 41, 42, 43), error_after=3, delay=0.05)
    with serving(_script(broken, *saying("Whole.").answers)) as host:
        talk = open_page(host)
        assert talk.ask("Go")
        expect(talk.problem).to_be_visible()
        talk.press("Retry")
        expect(talk.answer).to_have_text("Whole.")
        expect(talk.problem).to_be_hidden()


@pytest.mark.slow
def test_a_dead_engine_is_waited_for(open_page: Open) -> None:
    dying = Answer(token_ids=(40, 41, 42, 43), dies_after=2, delay=0.05)
    with serving(_script(dying, *saying("Whole.").answers, restart_seconds=2.5)) as host:
        talk = open_page(host)
        talk.ask("Go")
        expect(talk.problem).to_contain_text("try again")
        talk.page.reload()
        expect(talk.status).to_contain_text("Loading the model")
        talk.press("Retry")
        expect(talk.problem).to_contain_text("being restarted")
        expect(talk.problem).to_contain_text("Retry after 5 s")
        _model(talk)
        expect(talk.status).to_have_text("")
        talk.press("Retry")
        expect(talk.answer).to_have_text("Whole.")


def test_how_much_of_a_model_is_loaded_is_told(open_page: Open) -> None:
    def loading(route: Route) -> None:
        body = {"status": "loading", "progress": 0.42, "error": {"code": "loading", "message": ""}}
        route.fulfill(status=503, json=body)

    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        _model(talk)
        talk.page.route("**/ready", loading)
        talk.page.reload()
        expect(talk.status).to_contain_text("42 %")
        talk.page.unroute("**/ready")
        _model(talk)


def test_a_full_server_says_when_to_come_again(open_page: Open) -> None:
    endless = Answer(token_ids=(40,), is_endless=True, delay=0.02)
    with serving(_script(endless, *saying("Now.").answers, max_num_seqs=1), max_queue=0) as host:
        first, second = open_page(host), open_page(host)
        _model(second)
        first.send("Go")
        wait_until(lambda: host.engine.stats().running == 1)
        second.ask("Go")
        expect(second.problem).to_contain_text("Retry after")
        first.press("Stop")
        wait_until(lambda: host.engine.stats().running == 0)
        second.press("Retry")
        expect(second.answer).to_have_text("Now.")


def test_a_message_that_is_too_long_says_what_to_do(open_page: Open) -> None:
    with serving(_script(*saying("Yes.").answers)) as host:
        talk = open_page(host)
        talk.ask("word " * 2000)
        expect(talk.problem).to_contain_text("Shorten your message")
        expect(talk.page.get_by_role("button", name=LEAVE_OUT)).to_be_hidden()
        talk.ask("Short")  # the question that was refused is not sent again
        expect(talk.answer).to_have_text("Yes.")


def test_where_the_context_is_full_the_oldest_turns_can_be_left_out(open_page: Open) -> None:
    with serving(_script(*saying("Yes.").answers)) as host:
        talk = open_page(host)
        words = "a cat and a dog " * 28  # each some 150 tokens of 512
        for letter in "ABC":
            talk.ask(letter + words)
        talk.ask("D" + words)
        expect(talk.problem).to_contain_text("Leave out the oldest turns")
        with talk.page.expect_request("**/v1/chat/completions"):
            talk.press(LEAVE_OUT)
        talk.wait()
        expect(talk.answer).to_have_text("Yes.")
        expect(talk.status).to_contain_text("no longer sent")
        notes = talk.page.locator(".note:visible")
        num_left_out = notes.count()
        assert num_left_out >= 1
        # From now on by themselves; and what was left out stays so, also over a reload.
        talk.page.reload()
        expect(notes).to_have_count(num_left_out)
        for letter in "EF":
            sent = talk.request_of(letter + words)["messages"]
            expect(talk.answer).to_have_text("Yes.")
            assert all(message["content"][0] != "A" for message in sent)
        assert notes.count() > num_left_out
        expect(talk.problem).to_be_hidden()


NEVER_FITS = "too many tokens for the cache"


@pytest.mark.parametrize("max_tokens", ["", "400"])
def test_what_fits_not_even_alone_has_no_turn_left_out(open_page: Open, max_tokens: str) -> None:
    refused = Answer(refusal=NEVER_FITS, param="max_tokens", never_fits=True)
    yes = saying("Yes.").answers[0]
    num_tries = 1 if max_tokens else 3  # with both turns, with one, with none
    with serving(_script(yes, yes, *[refused] * num_tries, yes)) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.ask("Two")
        talk.press("Settings")
        talk.page.get_by_label(LEAVE_OUT).check()
        talk.press("Done")
        talk.pick(max_tokens=max_tokens)
        talk.ask("Three")
        expect(talk.problem).to_contain_text(NEVER_FITS)
        if max_tokens:
            expect(talk.problem).not_to_contain_text("oldest turns")
        else:
            expect(talk.problem).to_contain_text("Shorten your message")
        expect(talk.page.get_by_role("button", name=LEAVE_OUT)).to_be_hidden()
        expect(talk.page.locator(".note:visible")).to_have_count(0)
        assert len(talk.request_of("Four")["messages"]) == 5


def test_another_model_since_is_named(open_page: Open) -> None:
    def former(route: Route) -> None:
        route.fulfill(json={"data": [{"id": "former", "max_model_len": 16}]})

    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        _model(talk)
        talk.page.route("**/v1/models", former)
        talk.page.reload()
        expect(talk.page.locator("#model")).to_have_text("former")
        talk.page.unroute("**/v1/models")
        talk.ask("Go")
        _model(talk)
        expect(talk.page.locator("#context")).to_contain_text("4,096")


def test_an_answer_that_the_context_cuts_off_says_so(open_page: Open) -> None:
    digits = (21, 22)  # each a token by itself, whatever stands beside it
    endless = Answer(token_ids=digits, is_endless=True)
    with serving(_script(endless)) as host:
        talk = open_page(host)
        talk.ask("Go")
        expect(talk.figures).to_contain_text("cut where the context is full")
        talk.pick(max_tokens="5")
        talk.ask("Go")
        expect(talk.problem).to_be_visible()  # it is full
        talk.press("New chat")
        talk.ask("Go")
        expect(talk.figures).to_contain_text("cut at the token limit")


@pytest.mark.parametrize("act", ["Retry", "Edit"])
def test_what_came_is_kept_where_a_new_answer_can_not_come(open_page: Open, act: str) -> None:
    with serving(saying("First.", "Second.")) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.page.context.set_offline(True)
        talk.press(act)
        if act == "Edit":
            talk.send("Changed")
        expect(talk.problem).to_contain_text("can’t be reached")
        expect(talk.answer).to_have_text("First.")
        assert talk.page.locator(".asked").all_inner_texts() == ["One"]
        talk.page.context.set_offline(False)
        talk.page.reload()
        expect(talk.answer).to_have_text("First.")
        talk.press("Retry")
        expect(talk.answer).to_have_text("Second.")
        expect(talk.problem).to_be_hidden()


def test_an_edited_message_that_can_not_be_sent_is_still_there_to_send(open_page: Open) -> None:
    with serving(saying("First.", "Second.")) as host:
        talk = open_page(host)
        talk.ask("One")
        talk.page.context.set_offline(True)
        talk.press("Edit")
        talk.send("Changed")
        expect(talk.page.locator("#question")).to_have_value("Changed")
        talk.page.context.set_offline(False)
        talk.page.press("#question", "Enter")
        expect(talk.answer).to_have_text("Second.")
        assert talk.page.locator(".asked").all_inner_texts() == ["Changed"]


def test_a_server_that_is_gone_is_no_mystery(open_page: Open) -> None:
    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        _model(talk)
        talk.page.context.set_offline(True)
        talk.ask("Go")
        expect(talk.problem).to_contain_text("can’t be reached")
        talk.page.context.set_offline(False)
        talk.press("Retry")
        expect(talk.answer).to_have_text("Yes.")


def test_a_stream_that_breaks_off_is_no_whole_answer(open_page: Open) -> None:
    body = 'data: {"choices":[{"index":0,"delta":{"content":"Half"},"finish_reason":null}]}\n\n'
    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        talk.page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(content_type="text/event-stream", body=body),
        )
        assert talk.ask("Go") == "Half"
        expect(talk.problem).to_contain_text("before the answer was whole")
