"""Markdown on the page: as another parser reads it, safe, and steady as it grows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page, expect

from tests.server.hosting import Host
from tests.server.page.conftest import Open
from tests.server.page.talk import saying, serving, thinking_text

ORACLE = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SHOW = """async (text) => {
    const { Markdown } = await import("/page/markdown.js");
    const root = document.createElement("div");
    new Markdown(root).show(text);
    return root.innerHTML;
}"""
GROW = """async (texts) => {
    const { Markdown } = await import("/page/markdown.js");
    const [grown, whole] = [0, 1].map(() => document.createElement("div"));
    return texts.filter(([text, ...cuts]) => {
        const growing = new Markdown(grown);
        for (const cut of cuts) growing.show(text.slice(0, cut), true);
        growing.show(text);
        new Markdown(whole).show(text);
        return !grown.isEqualNode(whole);
    });
}"""
TIME = """async (text) => {
    const { Markdown } = await import("/page/markdown.js");
    const started = performance.now();
    new Markdown(document.createElement("div")).show(text, true);
    return performance.now() - started;
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, echo: Host) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(f"{echo.http.base_url}/")
    yield page
    page.close()


class _Outline(HTMLParser):
    """HTML as a list of what it says, without what is a matter of style."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "figcaption":
            self._skipped += 1
        elif not self._is_style(tag):
            kept = {name: value for name, value in attrs if name in ("href", "start")}
            side = [value for name, value in attrs if value in ("right", "center")]
            side += [str(value)[11:] for name, value in attrs if name == "style"]
            self.events.append((tag, kept, [each for each in side if each != "left"]))

    def handle_endtag(self, tag: str) -> None:
        if tag == "figcaption":
            self._skipped -= 1
        elif not self._is_style(tag) and tag != "hr":
            self.events.append("/" + tag)

    def handle_data(self, data: str) -> None:
        if self._skipped or not data.strip():
            return
        if self.events and isinstance(self.events[-1], _Words):
            data = self.events.pop().text + data
        self.events.append(_Words(data))

    def _is_style(self, tag: str) -> bool:
        return self._skipped > 0 or tag in ("div", "figure", "p", "tbody", "span")


class _Words:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Words) and self.text.strip() == other.text.strip()

    def __repr__(self) -> str:
        return repr(self.text)


def _outline(html: str) -> list[Any]:
    outline = _Outline()
    outline.feed(html)
    return outline.events


def _expected(text: str) -> list[Any]:
    html = ORACLE.render(text)
    for level in range(6, 0, -1):
        html = html.replace(f"h{level}>", f"h{min(6, level + 3)}>")
    return _outline(html)


@pytest.mark.parametrize(
    "text",
    [
        "Plain words.\nA second line.\n\nAnother paragraph.",
        "# One\n## Two ##\n### Three\n#### Four\n#no heading",
        "*a* **b** ***c*** _d_ __e__ ~~f~~ `g` **a *b* c** *a **b** c*",
        "2 * 3 * 4 = 24, snake_case_name, a*b*c, __init__.py, 5 ** 2",
        "`` a`b `` and ` x ` and ```c``` and `unclosed",
        "\\*no\\* \\`no\\` \\[no\\](x) a \\ b \\d",
        "[a](https://a.example) [b *c*](http://b.example/x_y_z?q=1) [d](https://e.example/f_(g))",
        '[a](https://a.example "a title") [b](<https://b.example>) [c **d](https://c.example)',
        "<https://a.example/b> and [x] and [y] (z) and ![alt](x.png",
        "- a\n- b\n  - c\n    - d\n- e",
        "* a\n* b\n\n  more of b\n\n* c",
        "1. a\n2. b\n   1. c\n   2. d\n3. e",
        "7. seven\n8. eight",
        "words\n- a\n- b\n\nwords\n1. c",
        "in the year\n1984. It was",
        "- a\n\n  ```\n  x\n\n  y\n  ```\n- b",
        "```python\ndef f():\n    return **1**\n```\nafter",
        "~~~\n```\n~~~\n\n````\n```\n````",
        "```\nnot closed\n\n# still code",
        "1. first\n   ```sh\n   ls -l\n   ```\n2. second",
        "> a\n> b\n>\n> - c\n> > d\n\nafter",
        "a\n\n---\n\n***\n_ _ _\nb\n\n***",
        "| a | b |\n|---|:-:|\n| 1 | **2** |\n| `x` | y |\n\nafter",
        "a | b\n--|--:\n1 | 2\n| 3",
        "| a \\| b | c |\n|---|---|\n| d | e |",
        "**bold:** words\n\n* **term**: meaning\n* **other**: `code`",
        "a < b > c & d \"quotes\" 'here'",
        "*unclosed **marks _everywhere",
        "a **b\nc** d",
        "",
        "\n\n",
        "#",
        "-",
        "|",
        "|\n\n|",
        "# One\r\n\r\ntext\r\nmore\r\n\r\n---\r\n\r\n-\r\n- b\r\n\r\n"
        "```py\r\nx\r\n\r\ny\r\n```\r\n\r\n| a |\r\n|---|\r\n",
    ],
)
def test_it_reads_as_another_parser_reads_it(page: Page, text: str) -> None:
    assert _outline(page.evaluate(SHOW, text)) == _expected(text)


def test_lists_may_be_indented_as_models_do(page: Page) -> None:
    shown = page.evaluate(SHOW, "10. a\n  - b\n  - c\n\n11. d\n\nafter")
    inner = "<ul><li>b</li><li>c</li></ul>"
    assert shown == f'<ol start="10"><li>a{inner}</li><li>d</li></ol><p>after</p>'


PIECES = [
    *(
        "word ",
        "two words ",
        "\r\n",
        "\n",
        "\n\n",
        "**",
        "*",
        "_",
        "`",
        "```",
        "```py\n",
        "~~",
        "# ",
        "- ",
    ),
    *("  - ", "1. ", "   ", "> ", "| a | b |\n", "|---|---|\n", "---\n", "[x](https://a.example)"),
    *("https://b.example/c", "<b>", "\\", "é😀", "1984. "),
]


def test_a_text_that_grows_ends_as_if_it_had_come_whole(page: Page) -> None:
    chance = random.Random(1)
    texts: list[list[Any]] = []
    for _ in range(400):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 40)))
        cuts = sorted(chance.choices(range(len(text.encode("utf-16-le")) // 2 + 1), k=12))
        texts.append([text, *cuts])
    assert page.evaluate(GROW, texts) == []


def test_what_stands_is_not_drawn_again(page: Page) -> None:
    kept = page.evaluate(
        """async () => {
            const { Markdown } = await import("/page/markdown.js");
            const root = document.createElement("div");
            const growing = new Markdown(root);
            growing.show("# A\\n\\nB\\n\\n```\\none", true);
            const before = [...root.querySelectorAll("*")];
            growing.show("# A\\n\\nB\\n\\n```\\none\\ntwo", true);
            return before.every((node) => root.contains(node));
        }"""
    )
    assert kept


def test_unfinished_marks_are_not_shown(page: Page) -> None:
    shown = page.evaluate(
        """async (texts) => {
            const { Markdown } = await import("/page/markdown.js");
            return texts.map((text) => {
                const root = document.createElement("div");
                new Markdown(root).show(text, true);
                return root.innerHTML;
            });
        }""",
        ["a **b", "a *", "a `b", "a [b](https://c", "| a |"],
    )
    assert shown == [
        *("<p>a <strong>b</strong></p>", "<p>a </p>", "<p>a <code>b</code></p>", "<p>a b</p>"),
        "<p></p>",
    ]


@pytest.mark.parametrize(
    "piece",
    [
        *("*", "**a ", "*a _b ", "a* ", "_", "`", "` `` ", "[", "[a](", "![", "<", "\\", "~~a "),
        *("> ", "- ", "  ", "1. ", "# ", "|", "|-", "```", "a|b\n-|-\n", "- a\n", "https://", "(("),
        *("\n", "- a\n  ", "***", "https://a.)", "*a**b", "# #", "``` `", "* * "),
    ],
)
def test_no_text_takes_long(page: Page, piece: str) -> None:
    text = piece * (30_000 // len(piece))
    for end in ("", "x\n" + " " * 3000 + "`"):
        milliseconds = page.evaluate(TIME, text + end)
        if milliseconds > 1500:  # a slow machine: what is quadratic takes 64 times as long
            part = piece * (30_000 // 8 // len(piece)) + end[: len(end) // 8]
            assert milliseconds < 32 * page.evaluate(TIME, part)


EVIL = [
    "<script>window.evil = 1</script>",
    '<img src=x onerror="window.evil = 1">',
    "[click](javascript:window.evil=1)",
    "[click](JaVaScRiPt:window.evil=1)",
    "[click](java\tscript:window.evil=1)",
    "[click](data:text/html,<script>evil</script>)",
    "[click](//evil.example)",
    "<javascript:window.evil=1>",
    "![x](javascript:window.evil=1)",
    '[a](https://a.example/"onmouseover="window.evil=1)',
    "<https://a.example/\"onmouseover='window.evil=1'>",
    "```html\n<script>window.evil = 1</script>\n</code></pre><script>window.evil = 1</script>\n```",
    '```"><img/src=x/onerror=window.evil=1>\nx\n```',
    "`<script>window.evil = 1</script>`",
    "| <script>window.evil = 1</script> | b |\n|---|---|\n| <svg onload=window.evil=1> | d |",
    "- <iframe srcdoc='<script>parent.evil=1</script>'></iframe>",
    "# <style>body { display: none }</style>",
    "&lt;script&gt;window.evil = 1&lt;/script&gt;",
    "<form action=/evil><button>x</button></form>",
]


def test_nothing_a_model_says_becomes_markup(open_page: Open) -> None:
    words = "\n\n".join(EVIL)
    with serving(saying(words)) as host:
        talk = open_page(host)
        foreign: list[str] = []
        talk.page.on("request", lambda each: foreign.append(each.url))
        talk.ask(words)
        talk.page.reload()
        expect(talk.turns).to_have_count(1)
        for kind in ("script", "img", "iframe", "svg", "style", "form", "object", "input"):
            assert talk.answer.locator(kind).count() == 0, kind
        assert talk.last.evaluate(
            "(root) => [...root.querySelectorAll('*')].every((each) =>"
            " each.getAttributeNames().every((name) => !name.startsWith('on')))"
        )
        links = talk.answer.locator("a").evaluate_all("(all) => all.map((link) => link.href)")
        assert links
        assert all(link.startswith("https://a.example/") for link in links)
        shown = talk.answer.inner_text()
        assert "<script>window.evil = 1</script>" in shown
        assert "&lt;script&gt;" in shown
        for link in talk.answer.locator("a").all():
            assert "noopener" in str(link.get_attribute("rel"))
        assert talk.page.evaluate("window.evil") is None
        assert all(url.startswith(str(host.http.base_url)) for url in foreign)


def test_nothing_in_reasoning_or_in_a_problem_becomes_markup(
    open_page: Open, tmp_path: Any
) -> None:
    text = thinking_text(tmp_path)
    script = saying(f"<think>{EVIL[1]}</think>Yes.", folder=tmp_path)
    with serving(script, text) as host:
        talk = open_page(host)
        talk.ask("Go")
        assert talk.last.locator("img").count() == 0
        talk.page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(status=400, json={"error": {"message": EVIL[1]}}),
        )
        talk.ask("Go")
        expect(talk.problem).to_have_text(EVIL[1])
        assert talk.page.evaluate("window.evil") is None


@pytest.mark.parametrize(
    "act",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.head.append(Object.assign(document.createElement('script'), {text: 'evil = 1'}))",
        "setTimeout('evil = 1')",
    ],
)
def test_the_browser_would_refuse_markup_even_from_our_own_code(page: Page, act: str) -> None:
    refused = page.evaluate(f"() => {{ try {{ {act}; return false; }} catch {{ return true; }} }}")
    assert refused
    assert page.evaluate("window.evil") is None


def test_code_can_be_copied(open_page: Open) -> None:
    with serving(saying("Do:\n\n```sh\nls -l\necho hi\n```\n\nDone.")) as host:
        talk = open_page(host, permissions=["clipboard-read", "clipboard-write"])
        talk.ask("How?")
        talk.answer.get_by_role("button", name="Copy").click()
        expect(talk.answer.get_by_role("button", name="Copied")).to_be_visible()
        assert talk.page.evaluate("navigator.clipboard.readText()") == "ls -l\necho hi"
        talk.last.locator("[data-do=copy]").click()
        expect(talk.last.locator("[data-do=copy]")).to_have_text("Copied")
        assert "```sh" in talk.page.evaluate("navigator.clipboard.readText()")
