"""The routes that the documentation names are those of the server's table."""

from __future__ import annotations

import re

import pytest

from inferno.server.api_keys import KeyScope
from inferno.server.route import Route
from inferno.server.routes import ROUTES, WORKER_ROUTES
from tests.docs.pages import PAGES, rows, section

NAMED = re.compile(r"`((?:GET|HEAD|POST|PUT|DELETE) /\S*)`")


def names_of(routes: tuple[Route, ...]) -> set[str]:
    return {f"{route.methods[0]} {route.template}" for route in routes}


@pytest.mark.parametrize(
    ("page", "routes"), [("docs/server.md", ROUTES), ("docs/worker.md", WORKER_ROUTES)]
)
def test_every_route_is_named(page: str, routes: tuple[Route, ...]) -> None:
    named = {name for row in rows(section(page, "## Start")) for name in NAMED.findall(row[0])}
    assert named == names_of(routes)


@pytest.mark.parametrize("page", PAGES)
def test_no_other_route_is_named(page: str) -> None:
    assert set(NAMED.findall(PAGES[page])) <= names_of(ROUTES) | names_of(WORKER_ROUTES)


def test_every_scope_says_what_it_opens() -> None:
    told = {row[0].strip("`"): row[1] for row in rows(section("docs/server.md", "## Keys"))[1:]}
    assert told.keys() == set(KeyScope)
    for scope in (KeyScope.METRICS, KeyScope.ADMIN):
        opened = {route.path for route in ROUTES if route.key_scope is scope}
        assert set(re.findall(r"`(/\S+)`", told[scope])) == opened
