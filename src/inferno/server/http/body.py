"""Read the body of a request: JSON, whole, and within bounds, before it is parsed."""

from __future__ import annotations

import time
from functools import partial

from inferno.server.http.context import Message, Receive, Scope, context_of, header, header_values
from inferno.server.http.errors import ApiError, ClientDisconnected, Unavailable

_CHARSETS = (b"utf-8", b"utf8")
_MAX_BODIES = 16  # as many of the largest may come, or wait to be read and encoded, at once


class BodyReader:
    """A reader of bodies of at most `max_body` bytes, and of a bounded number of bytes in all."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._num_held = 0

    async def read(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body; return a `receive` that gives it whole, then later messages.

        Raises ApiError (413, 415 or 503), ClientDisconnected.
        """
        length = header(scope, b"content-length")
        has_body = length not in (None, b"0") or header(scope, b"transfer-encoding") is not None
        if not has_body and scope["method"] not in ("POST", "PUT", "PATCH"):
            return receive
        _check_type(scope)
        if length is not None and _is_over(length, self._max_body):
            raise self._too_large()
        body = await self._collect(receive)
        context = context_of(scope)
        context.received = time.perf_counter()
        context.on_admission(partial(self._release, len(body)))
        return _Replay(body, receive)

    async def _collect(self, receive: Receive) -> bytes:
        """Return the body, whose bytes are held until they are released."""
        body = bytearray()
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                self._add(body, message.get("body", b""))
                if not message.get("more_body", False):
                    return bytes(body)
        except BaseException:
            self._release(len(body))
            raise

    def _release(self, num_bytes: int) -> None:
        self._num_held -= num_bytes

    def _add(self, body: bytearray, part: bytes) -> None:
        if len(body) + len(part) > self._max_body:
            raise self._too_large()
        if self._num_held + len(part) > _MAX_BODIES * self._max_body:
            message = "Too many large requests arrive at once; try again later."
            raise Unavailable("bodies_full", message, retry_after=1)
        body += part
        self._num_held += len(part)

    def _too_large(self) -> ApiError:
        message = f"The request's body is larger than {self._max_body} bytes (see --max-body)."
        return ApiError(413, "body_too_large", message)


class _Replay:
    """A `receive` that gives the body once, then waits with the connection for what follows."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _is_over(length: bytes, most: int) -> bool:
    digits = length.lstrip(b"0")
    return len(digits) > 18 or int(digits or b"0") > most


def _check_type(scope: Scope) -> None:
    encodings = header_values(scope, b"content-encoding")
    framings = header_values(scope, b"transfer-encoding")
    is_encoded = any(encoding.strip().lower() != b"identity" for encoding in encodings)
    if is_encoded or any(framing.strip().lower() != b"chunked" for framing in framings):
        message = "Send the body as it is: no encoding is taken, and no transfer but 'chunked'."
        raise ApiError(415, "content_encoding", message)
    types = header_values(scope, b"content-type")
    if len(types) != 1 or not _is_json(types[0]):
        message = "The body must be JSON in UTF-8, with 'Content-Type: application/json'."
        raise ApiError(415, "content_type", message)


def _is_json(content_type: bytes) -> bool:
    """Return whether a type is application/json, with no parameter but a charset of UTF-8."""
    kind, *parameters = (part.strip() for part in content_type.lower().split(b";", 3))
    if parameters and not parameters[-1]:
        parameters.pop()  # of a semicolon at the end
    if kind != b"application/json" or len(parameters) > 1:
        return False
    return all(_is_utf8(parameter) for parameter in parameters)


def _is_utf8(parameter: bytes) -> bool:
    name, _, value = parameter.partition(b"=")
    return name.strip() == b"charset" and value.strip().strip(b'"') in _CHARSETS
