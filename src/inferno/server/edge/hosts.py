"""The names and pages that the server answers to: Host, Origin and CORS."""

from __future__ import annotations

import re

from inferno.server.edge.asgi import Headers, Scope, header, header_values
from inferno.server.edge.refusal import Refusal
from inferno.server.settings import ServerSettings

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::(\d{1,5}))?")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9_, -]{1,1024}")
_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"x-request-id, retry-after, x-inferno-ignored"


class Hosts:
    """Says no to browsers that were led here under another name, or by a page of another origin."""

    def __init__(self, settings: ServerSettings) -> None:
        self._origins = frozenset(settings.cors_origins)
        self._names: frozenset[str] | None = None  # any
        names = frozenset(_bracketed(name) for name in settings.allowed_hosts)
        if settings.is_loopback:
            self._names = _LOOPBACK_NAMES | {_bracketed(settings.host)} | names
        elif names:
            self._names = names

    def check(self, scope: Scope) -> None:
        """Raise Refusal (400 or 403) for a Host or an Origin that we don't answer to."""
        host = _host(scope)
        if self._names is None:
            return
        if host is not None and _name(host) not in self._names:
            raise Refusal(
                403,
                "host_not_allowed",
                "This server does not answer to that Host; see --allowed-host.",
            )
        origins = header_values(scope, b"origin")
        if any(origin != _own(origin, host) and not self._allows(origin) for origin in origins):
            raise Refusal(
                403, "origin_not_allowed", "Pages of that origin may not call; see --cors-origin."
            )

    def response_headers(self, scope: Scope) -> Headers:
        """Return the CORS headers of an answer; they never allow a browser's credentials."""
        if not self._origins:
            return []
        origin = header(scope, b"origin")
        if origin is None or not self._allows(origin):
            return [(b"vary", b"origin")]
        return [
            (b"access-control-allow-origin", b"*" if "*" in self._origins else origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]

    def preflight(self, scope: Scope) -> Headers | None:
        """Return the headers for a CORS preflight request of an allowed origin; None for others."""
        asked = header(scope, b"access-control-request-method")
        origin = header(scope, b"origin")
        if scope["method"] != "OPTIONS" or asked is None or origin is None:
            return None
        if not self._allows(origin):
            return None
        names = header(scope, b"access-control-request-headers") or b""
        return [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", names if _HEADER_NAMES.fullmatch(names) else b""),
            (b"access-control-max-age", b"600"),
        ]

    def _allows(self, origin: bytes) -> bool:
        return "*" in self._origins or origin.decode("latin-1").lower() in self._origins


def _host(scope: Scope) -> bytes | None:
    """Return the one Host header, in lower case; HTTP/1.0 may have none."""
    hosts = header_values(scope, b"host")
    if not hosts and scope["http_version"] == "1.0":
        return None
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        raise Refusal(400, "bad_host", "A request needs one Host header, with a name and a port.")
    return hosts[0].lower()


def _name(host: bytes) -> str:
    match = _HOST.fullmatch(host)
    assert match is not None
    return match[1].decode("ascii")


def _own(origin: bytes, host: bytes | None) -> bytes | None:
    """Return the origin, if it is that of our own pages."""
    scheme, _, authority = origin.lower().partition(b"://")
    return origin if scheme in (b"http", b"https") and authority == host else None


def _bracketed(name: str) -> str:
    name = name.lower()
    return f"[{name}]" if ":" in name and not name.startswith("[") else name
