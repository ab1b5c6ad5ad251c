"""Answers by a JSON Schema on the chat page: it is checked and sent, and answers are laid out."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from playwright.sync_api import expect

from tests.server.hosting import Host
from tests.server.page.conftest import Open
from tests.server.page.talk import Talk, saying, serving

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"enum": ["Rome", "Oslo"]},
        "sunny": {"type": "boolean"},
        "days": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 3},
            "maxItems": 2,
        },
    },
    "required": ["place", "sunny", "days"],
    "additionalProperties": False,
}


def pick_schema(talk: Talk, text: str) -> None:
    talk.press("Settings")
    if not talk.page.locator("#shape").evaluate("each => each.open"):
        talk.page.get_by_text("Answers in JSON").click()
    talk.page.get_by_label("JSON Schema").fill(text)


def test_an_answer_keeps_to_the_schema_and_is_laid_out(demo: Host, open_page: Open) -> None:
    talk = open_page(demo)
    talk.press("Settings")
    expect(talk.page.get_by_label("JSON Schema")).to_be_hidden()
    talk.press("Done")
    pick_schema(talk, json.dumps(SCHEMA))
    talk.press("Done")
    sent = talk.request_of("How is the weather?")
    format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    assert sent["response_format"] == format
    shown = talk.answer.locator("code").inner_text()
    jsonschema.validate(json.loads(shown), SCHEMA)
    assert shown.rstrip() == json.dumps(json.loads(shown), indent=2)
    talk.page.reload()
    assert talk.answer.locator("code").inner_text() == shown
    talk.press("Settings")
    expect(talk.page.get_by_label("JSON Schema")).to_be_visible()
    talk.press("Back to defaults")
    talk.press("Done")
    assert "response_format" not in talk.request_of("Hello")
    expect(talk.answer.locator("code")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"type": ', "The schema is not JSON: "), ("[1]", "must be a JSON object")],
)
def test_what_is_no_schema_is_said_at_once_and_not_sent(
    demo: Host, open_page: Open, text: str, problem: str
) -> None:
    talk = open_page(demo)
    pick_schema(talk, text)
    told = talk.page.locator("#schema-problem")
    expect(told).to_contain_text(problem)
    talk.press("Done")
    talk.ask("Hello")
    expect(talk.problem).to_contain_text(problem)
    expect(talk.problem).to_contain_text("Mend it in the settings")
    pick_schema(talk, "")
    expect(told).to_be_hidden()
    talk.press("Done")
    talk.press("Retry")
    talk.wait()
    expect(talk.problem).to_be_hidden()


def test_a_schema_that_the_server_refuses_is_told_in_place(demo: Host, open_page: Open) -> None:
    talk = open_page(demo)
    pick_schema(talk, '{"type": "array", "uniqueItems": true}')
    talk.press("Done")
    talk.ask("Hello")
    expect(talk.problem).to_contain_text("#/uniqueItems can't be kept to")


ODD = (
    '{"n":12345678901234567890.10,"s":"a, {b}: \\"[c]\\" ``` <b>",'
    '"e":{},"l":[ ],"d":[1,[true,null]]}'
)


def test_numbers_and_texts_stay_as_the_model_wrote_them(open_page: Open) -> None:
    with serving(saying(ODD, "no JSON: {")) as host:
        talk = open_page(host)
        pick_schema(talk, "{}")
        talk.press("Done")
        talk.ask("Go")
        shown = talk.answer.locator("code").inner_text()
        assert "12345678901234567890.10" in shown
        assert json.loads(shown) == json.loads(ODD)
        expected = json.dumps(json.loads(ODD.replace(".10", "")), indent=2)
        assert shown.rstrip().replace(".10", "") == expected
        talk.ask("Go on")
        assert talk.answer.locator("code").inner_text().rstrip() == "no JSON: {"


def test_a_schema_is_sent_as_it_was_written(open_page: Open) -> None:
    schema = (
        '{ "const": 12345678901234567890,\n"minimum": 1.0, "$comment": "$& \\"schema\\":\\"\\"" }'
    )
    with serving(saying("12345678901234567890")) as host:
        talk = open_page(host)
        pick_schema(talk, schema)
        talk.press("Done")
        with talk.page.expect_request("**/v1/chat/completions") as asked:
            talk.ask('"schema":""')
        sent = asked.value.post_data or ""
        assert f'"schema":{schema}' in sent
        assert json.loads(sent)["messages"][-1]["content"] == '"schema":""'
