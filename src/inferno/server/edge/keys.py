"""The check of API keys: every route but health and readiness needs a key that opens it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from inferno.server.api_keys import ApiKey, KeyScope, find_key
from inferno.server.edge.asgi import Scope, header, header_values
from inferno.server.edge.record import Record
from inferno.server.edge.refusal import Refusal
from inferno.server.edge.routing import EdgeRoute

_PAGE_HEADER = b"x-inferno-page"


def check_key(scope: Scope, route: EdgeRoute, keys: Sequence[ApiKey], record: Record) -> None:
    """Note whose request this is; raise Refusal (401 or 403) where it may not go on."""
    needed = route.key_scope
    if needed is None or (not keys and needed is not KeyScope.ADMIN):
        return
    key = find_key(keys, _given(scope, is_page=route.is_page))
    if key is None:
        raise _unknown_key(is_page=route.is_page, has_keys=bool(keys))
    record.key_id = key.key_id
    if len(keys) > 1:
        record.cache_salt = key.key_id + "@"  # which no salt of a request contains
    if not key.opens(needed):
        raise Refusal(403, "key_lacks_scope", f"This API key does not have the scope '{needed}'.")


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


def _unknown_key(*, is_page: bool, has_keys: bool) -> Refusal:
    if not has_keys:
        message = "This route needs an API key with the scope 'admin'; the server has none."
        return Refusal(403, "no_admin_key", message)
    kind, message = b"Bearer", "send it as 'Authorization: Bearer KEY'"
    if is_page:  # a browser that opens it can give a key only so
        kind = b'Basic realm="inferno: any name, an API key as password"'
        message = "open the page again, with any name, and the key as password"
    return Refusal(
        401,
        "invalid_api_key",
        f"This server needs an API key: {message}.",
        headers=[(b"www-authenticate", kind)],
    )
