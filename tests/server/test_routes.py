"""The table of routes is the only place that knows them: all others follow it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute

import inferno.server
from inferno.client.scripted import ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.server import routes as table
from inferno.server.app import build_app
from inferno.server.http import Needs
from inferno.server.http.middleware import NO_ROUTE, RouteTable
from inferno.server.model_service import ModelService
from inferno.server.route import Route
from inferno.server.routes import ROUTES, WORKER_ROUTES
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText

SERVER = Path(inferno.server.__file__).parent
BOTH = pytest.mark.parametrize("routes", [ROUTES, WORKER_ROUTES], ids=["server", "worker"])
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
# What names no route in a text, however it stands there: a root, and what goes on behind it.
ROOT = {"/"}


def app_of(routes: tuple[Route, ...]) -> FastAPI:
    settings = ServerSettings(served_model_names=("demo",))
    service = ModelService(ScriptedClient(), ModelText(MODEL_FOLDERS["demo"]), settings)
    return build_app(service, routes)


def asked(routes: tuple[Route, ...]) -> Iterator[tuple[str, str]]:
    """Methods and paths: those of routes, and others that are nearly theirs."""
    for path in [route.path for route in routes]:
        filled = re.sub(r"\{.*?\}", "x", path)
        for each in (path, filled, filled + "\n", filled + "/", filled + "/y", filled.upper()):
            yield from ((method, each) for method in METHODS)


@BOTH
def test_the_application_has_the_routes_of_the_table_and_no_other(
    routes: tuple[Route, ...],
) -> None:
    registered = [
        (route.path, set(route.methods or ()))
        for route in app_of(routes).routes
        if isinstance(route, StarletteRoute)
    ]
    assert registered == [
        (route.path, set(route.methods)) for route in routes if route.endpoint is not None
    ]


@BOTH
def test_the_middleware_finds_the_route_that_the_router_finds(routes: tuple[Route, ...]) -> None:
    rows = RouteTable(routes)
    router = [route for route in app_of(routes).routes if isinstance(route, StarletteRoute)]
    for method, path in asked(routes):
        scope = {"type": "http", "method": method, "path": path, "headers": []}
        matches = {match: route for route in reversed(router) if (match := route.matches(scope)[0])}
        full, partial = matches.get(Match.FULL), matches.get(Match.PARTIAL)
        found = rows.find(method, path)
        if found.view is None:
            expected = NO_ROUTE.path if (one := full or partial) is None else one.path
            assert found.path == expected, (method, path)
            assert (method in found.methods) == (full is not None), (method, path)
        else:
            assert (full, partial) == (None, None), (method, path)


@BOTH
def test_something_answers_at_each_route(routes: tuple[Route, ...]) -> None:
    for route in routes:
        assert (route.endpoint is None) != (route.view is None), route.path
        assert route.summary.endswith("."), route.path
        assert route.needs is not Needs.ADMISSION or route.requests, route.path
    assert len({(route.methods[0], route.path) for route in routes}) == len(routes)
    assert len({route.name for route in routes}) == len(routes)


def test_no_other_file_of_the_server_names_a_path() -> None:
    """The chat page's scripts do, as browsers run them; they are no Python."""
    fixed = {route.path.partition("{")[0] for route in (*ROUTES, *WORKER_ROUTES)} - ROOT | {"/v1/"}
    named = re.compile("|".join(rf"{re.escape(path)}(?![\w-])" for path in sorted(fixed)))
    files = sorted(SERVER.rglob("*.py"))
    assert len(files) > 40
    found = [
        (path.relative_to(SERVER).as_posix(), node.value)
        for path in files
        if path != Path(table.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if named.search(node.value)
    ]
    assert not found
