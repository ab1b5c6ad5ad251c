"""The route that a request is for, found once, and what the edge must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.routing import compile_path

from inferno.server.api_keys import KeyScope
from inferno.server.edge.admission import Needs
from inferno.server.edge.views import View


class EdgeRoute(Protocol):
    """A row of the table of routes, as far as the edge reads it."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods that the route takes."""

    @property
    def path(self) -> str:
        """Return the path, in which `{name}` stands for any text without a slash."""

    @property
    def key_scope(self) -> KeyScope | None:
        """Return what a key must open; None needs no key."""

    @property
    def needs(self) -> Needs:
        """Return what must be there before the request's body is read."""

    @property
    def view(self) -> View | None:
        """Return what answers, where the edge does so by itself."""

    @property
    def is_page(self) -> bool:
        """Return whether a browser opens it, which can send a key as a password only."""


@dataclass(frozen=True, slots=True)
class _Nowhere:
    """The route of a request that has none, of which only callers with a key learn."""

    methods: tuple[str, ...] = ()
    path: str = "none"  # so the log and the metrics call it
    key_scope: KeyScope | None = KeyScope.INFERENCE
    needs: Needs = Needs.NOTHING
    view: View | None = None
    is_page: bool = False


NOWHERE: EdgeRoute = _Nowhere()


class RouteTable:
    """The routes of one application, found by method and path as its router finds them."""

    def __init__(self, routes: Sequence[EdgeRoute]) -> None:
        self._patterns = [(compile_path(route.path)[0], route) for route in routes]
        self._by_path = {route.path: self._matching(route.path) for route in routes}

    def find(self, method: str, path: str) -> EdgeRoute:
        """Return the first route of this path and method, else of this path alone, or NOWHERE."""
        routes = self._by_path.get(path) or self._matching(path)
        for route in routes:
            if method in route.methods:
                return route
        return routes[0] if routes else NOWHERE

    def _matching(self, path: str) -> list[EdgeRoute]:
        return [route for pattern, route in self._patterns if pattern.match(path)]
