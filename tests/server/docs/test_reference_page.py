"""GET /docs: the whole description, readable without a script or anything from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser

from inferno.server.docs.field_table import field_rows
from inferno.server.routes import ROUTES
from tests.server.hosting import Host

LOADING = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"}


class Page(HTMLParser):
    """The tags of a page, its anchors, its links, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.words: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attributes)
        assert not any(name.startswith("on") for name in given)
        self.anchors.add(given.get("id") or "")
        self.links.add(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.words.add(data.strip())


def test_it_loads_nothing(echo: Host) -> None:
    answer = echo.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = Page(answer.text)
    assert not page.tags & LOADING
    assert "url(" not in answer.text
    assert "@import" not in answer.text
    inner = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inner <= page.anchors
    assert page.links - {"#" + anchor for anchor in inner} == {"", "openapi.json"}
    assert echo.http.head("/docs").status_code == 200


def test_it_has_every_route_field_and_type(echo: Host) -> None:
    page = Page(echo.http.get("/docs").text)
    described = echo.http.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        assert path in page.anchors
        assert {f"{method.upper()} {path}" for method in methods} <= page.words
    for kind in [kind for route in ROUTES for kind in route.requests]:
        assert {row.name for row in field_rows(kind)} <= page.words
        assert {row.note for row in field_rows(kind) if row.note} <= page.words
    for name, schema in described["components"]["schemas"].items():
        assert name in page.anchors or name.endswith("Request")
        assert set(schema["properties"]) <= page.words
