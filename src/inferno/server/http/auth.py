"""Check who may ask: API keys, Host, Origin and CORS."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from inferno.server.api_keys import ApiKey, KeyScope, find_key
from inferno.server.http.context import Headers, RequestContext, Scope, header, header_values
from inferno.server.http.errors import ApiError
from inferno.server.settings import ServerSettings

_PAGE_HEADER = b"x-inferno-page"
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::(\d{1,5}))?")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9_, -]{1,1024}")
_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"x-request-id, retry-after, x-inferno-ignored"


def check_key(
    scope: Scope,
    needed: KeyScope | None,
    keys: Sequence[ApiKey],
    context: RequestContext,
    *,
    is_page: bool,
) -> None:
    """Note which key a request has; raise ApiError (401 or 403) where the key doesn't allow it.

    needed      the scope that the route needs; None: no key is needed.
    is_page     a browser opens the route, and can send a key as a password only.
    """
    if needed is None or (not keys and needed is not KeyScope.ADMIN):
        return
    key = find_key(keys, _given(scope, is_page=is_page))
    if key is None:
        raise _unknown_key(is_page=is_page, has_keys=bool(keys))
    context.key_id = key.key_id
    if len(keys) > 1:
        context.cache_salt = key.key_id + "@"  # which no salt of a request contains
    if not key.opens(needed):
        raise ApiError(403, "key_lacks_scope", f"This API key does not have the scope '{needed}'.")


def _given(scope: Scope, *, is_page: bool) -> bytes:
    """Return the key that the request brings; empty, as no key is, where it brings none or two."""
    authorization = header_values(scope, b"authorization")
    if not authorization:
        return header(scope, b"x-api-key") or b""
    kind, _, credentials = authorization[0].strip().partition(b" ")
    if len(authorization) > 1:
        return b""
    if kind.lower() == b"basic" and (is_page or _is_from_page(scope)):
        return _password(credentials.strip())
    return credentials.strip() if kind.lower() == b"bearer" else b""


def _is_from_page(scope: Scope) -> bool:
    """Return whether our own page asks: no other may send this header and a browser's password."""
    return header(scope, _PAGE_HEADER) is not None


def _password(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _unknown_key(*, is_page: bool, has_keys: bool) -> ApiError:
    if not has_keys:
        message = "This route needs an API key with the scope 'admin'; the server has none."
        return ApiError(403, "no_admin_key", message)
    kind, message = b"Bearer", "send it as 'Authorization: Bearer KEY'"
    if is_page:  # a browser that opens it can give a key only so
        kind = b'Basic realm="inferno: any name, an API key as password"'
        message = "open the page again, with any name, and the key as password"
    return ApiError(
        401,
        "invalid_api_key",
        f"This server needs an API key: {message}.",
        headers=[(b"www-authenticate", kind)],
    )


class HostPolicy:
    """The policy against browsers that use another host name or come from another origin."""

    def __init__(self, settings: ServerSettings) -> None:
        self._origins = frozenset(settings.cors_origins)
        self._names: frozenset[str] | None = None  # any
        names = frozenset(_bracketed(name) for name in settings.allowed_hosts)
        if settings.is_loopback:
            self._names = _LOOPBACK_NAMES | {_bracketed(settings.host)} | names
        elif names:
            self._names = names

    def check(self, scope: Scope) -> None:
        """Raise ApiError (400 or 403) for a Host or an Origin that isn't allowed."""
        host = _host(scope)
        if self._names is None:
            return
        if host is not None and _name(host) not in self._names:
            raise ApiError(
                403,
                "host_not_allowed",
                "This server does not answer to that Host; see --allowed-host.",
            )
        origins = header_values(scope, b"origin")
        if any(origin != _own(origin, host) and not self._allows(origin) for origin in origins):
            raise ApiError(
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
        raise ApiError(400, "bad_host", "A request needs one Host header, with a name and a port.")
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
