"""How the page looks and is operated: themes, narrow windows, contrast, names, keys."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from inferno.client.scripted import Answer, Script
from tests.server.hosting import Host
from tests.server.http.serving import wait_until
from tests.server.page.conftest import Open
from tests.server.page.talk import Talk, saying, serving

RICH = """# A heading

Words with `code`, a [link](https://a.example) and **weight**.

- a list

> a quote

| a | b |
|---|---|
| 1 | 2 |

```python
x = 1
```
"""
LONG = """AWordWithoutAnyPlaceToBreakItThatIsMuchLongerThanTheWindowOfAnyPhoneCouldEverHold

https://a.example/a/very/long/address/without/any/space/that/goes/on/and/on/and/on/and/on

`a_long_piece_of_inline_code_without_any_place_to_break_it_at_all_whatsoever_in_it`

```
a long line of code that does not fit at all, so that its own frame has to scroll sideways
```

| a wide table | with many columns | and long words in it | AWordWithoutAnyPlaceToBreak |
|---|---|---|---|
| aaaaaaaaaaaaaaaaaaaaa | bbbbbbbbbbbbbbbbbbbbbbb | cccccccccccccccccccccc | ddddddddd |

1. a
   - b
     - c
       - AWordWithoutAnyPlaceToBreakItThatIsMuchLongerThanTheWindowOfAnyPhone
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# The contrast of every piece of text with what is behind it, as WCAG defines it: the worst ones.
LOW_CONTRAST = """() => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const parts = numbers(colour).slice(0, 3).map((each) => each / 255)
            .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const behind = (node) => {
        for (let each = node; each; each = each.parentElement) {
            const colour = getComputedStyle(each).backgroundColor;
            if (numbers(colour)[3] !== 0) return colour;
        }
    };
    const low = [];
    for (const node of document.querySelectorAll("body *")) {
        const texts = [...node.childNodes].filter((each) => each.nodeType === 3);
        if (!texts.some((each) => each.data.trim()) || !node.checkVisibility()) continue;
        const pair = [light(getComputedStyle(node).color), light(behind(node))];
        const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        if (ratio < 4.5) low.push([node.outerHTML.slice(0, 80), ratio]);
    }
    return low;
}"""


def _background(talk: Talk) -> str:
    return str(talk.page.evaluate(BACKGROUND))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_system_s_theme_is_taken_until_another_is_chosen(
    echo: Host, open_page: Open, scheme: str
) -> None:
    talk = open_page(echo, color_scheme=scheme)
    button = talk.page.get_by_role("button", name="Dark theme")
    expect(button).to_have_attribute("aria-pressed", str(scheme == "dark").lower())
    first = _background(talk)
    button.click()
    second = _background(talk)
    assert (sum(_rgb(first)) < 200) == (scheme == "dark")
    assert (sum(_rgb(second)) < 200) == (scheme == "light")
    talk.page.reload()
    assert _background(talk) == second
    other = open_page(echo, color_scheme=scheme)
    other.page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    wait_until(lambda: _background(other) == second)


def _rgb(colour: str) -> list[int]:
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_stands_out_from_what_is_behind_it(open_page: Open, scheme: str) -> None:
    with serving(saying(RICH, RICH, "x")) as host:
        talk = open_page(host, color_scheme=scheme)
        assert talk.page.evaluate(LOW_CONTRAST) == []
        talk.ask("Go")
        talk.page.context.set_offline(True)
        talk.ask("Go")
        expect(talk.problem).to_be_visible()
        assert talk.page.evaluate(LOW_CONTRAST) == []
        talk.press("Settings")
        assert talk.page.evaluate(LOW_CONTRAST) == []


def test_nothing_is_wider_than_a_phone(open_page: Open) -> None:
    with serving(saying(LONG)) as host:
        talk = open_page(host, is_phone=True, has_touch=True, is_mobile=True)
        talk.page.fill("#question", LONG)
        talk.page.locator("#send").tap()
        talk.last.wait_for()
        talk.wait()
        talk.press("Settings")
        dialog = talk.page.get_by_role("dialog").bounding_box()
        assert dialog is not None
        assert dialog["x"] >= 0
        assert dialog["x"] + dialog["width"] <= 360
        talk.press("Done")
        for width in (360, 320):
            talk.page.set_viewport_size({"width": width, "height": 700})
            wide = talk.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width
        for kind in ("pre", ".table"):  # which scroll within
            assert talk.answer.locator(kind).evaluate(
                "(each) => each.scrollWidth > each.clientWidth"
                " && getComputedStyle(each).overflowX === 'auto'"
            )
        for name in ("Send", "New chat", "Settings", "Dark theme"):
            box = talk.page.get_by_role("button", name=name).bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 320
            assert min(box["width"], box["height"]) >= 38  # a finger's width


def test_everything_has_a_name(echo: Host, open_page: Open) -> None:
    talk = open_page(echo)
    nameless = talk.page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea")].filter((each) =>
            !(each.ariaLabel || each.textContent.trim() || each.labels?.length))
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert talk.page.get_by_role("log", name="Conversation").count() == 1
    expect(talk.page).to_have_title("demo · inferno")  # once the model is known


def test_who_listens_is_told_of_an_answer_when_it_is_whole(open_page: Open) -> None:
    with serving(saying("one two three four five six", delay=0.1)) as host:
        talk = open_page(host)
        talk.send("Go")
        expect(talk.status).to_have_text("Answering …")
        expect(talk.last.locator(".answer")).to_have_attribute("aria-busy", "true")
        talk.wait()
        expect(talk.last.locator(".answer")).to_have_attribute("aria-busy", "false")
        expect(talk.status).to_have_text("")


def test_keys_reach_everything_in_the_order_it_is_seen(open_page: Open) -> None:
    with serving(saying("Yes.")) as host:
        talk = open_page(host)
        expect(talk.page.locator("#question")).to_be_focused()
        talk.ask("Go")
        expect(talk.page.locator("#question")).to_be_focused()
        talk.page.locator("#new").focus()
        seen = ["New chat"]
        for _ in range(7):
            talk.page.keyboard.press("Tab")
            seen.append(
                talk.page.evaluate(
                    "document.activeElement.ariaLabel || document.activeElement.textContent"
                    " || document.activeElement.id"
                )
            )
        assert seen == [
            *("New chat", "Settings", "Dark theme", "Edit", "Copy", "Retry", "question", "Send")
        ]


def test_the_view_follows_the_answer_unless_the_reader_goes_up(open_page: Open) -> None:
    lines = Answer(token_ids=(40, 201), is_endless=True, delay=0.002)
    with serving(Script(answers=(lines,), vocab_size=2048, max_model_len=4096)) as host:
        talk = open_page(host, is_phone=True)
        talk.send("Go\n" * 60)
        distance = "document.documentElement.scrollHeight - innerHeight - scrollY"
        wait_until(lambda: talk.page.evaluate("scrollY") > 500)
        assert talk.page.evaluate(distance) < 80
        talk.page.mouse.move(100, 300)
        talk.page.mouse.wheel(0, -600)
        way_down = talk.page.get_by_role("button", name="Go to the latest text")
        expect(way_down).to_be_visible()
        before = talk.page.evaluate("scrollY")
        talk.page.wait_for_timeout(300)
        assert talk.page.evaluate("scrollY") == before
        way_down.click()
        wait_until(lambda: talk.page.evaluate(distance) < 80)
        talk.press("Stop")
