"""Serve the chat page: files read once, and a policy that lets a browser load no others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

_FOLDER = Path(__file__).parent
_INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# An answer that carries markup finds nothing here that would run it; trusted-types has the browser
# refuse even our own code any way from text to markup.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "cache-control": "private, no-cache",  # kept, but asked for again: most often a 304
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


async def get_page(http: HttpRequest) -> Response:
    """Return the chat page itself."""
    return _answer(http, _INDEX)


async def get_page_file(http: HttpRequest) -> Response:
    """Return a file that the chat page loads, by its name."""
    return _answer(http, http.path_params["name"])


def _answer(http: HttpRequest, name: str) -> Response:
    """Return a file of the page; 304 where the browser has it."""
    file = _files().get(name)
    if file is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "etag": file.etag}
    if file.etag in http.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


@cache
def _files() -> Mapping[str, _File]:
    return {path.name: _read(path) for path in _FOLDER.iterdir() if path.suffix in _TYPES}


def _read(path: Path) -> _File:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return _File(content, _TYPES[path.suffix], etag)
