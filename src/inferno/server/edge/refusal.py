"""The reason why a request is not served, as an exception and as OpenAI's error object."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from inferno.server.edge.asgi import Headers, Send


class Refusal(Exception):
    """Raised to refuse or end a request; endpoints pass it on, or write it as a stream's end.

    status          of the answer, where none has begun.
    code            a short constant for programs and metrics; never what a client sent.
    retry_after     seconds after which a client may try again.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.headers = tuple(headers)

    @property
    def body(self) -> bytes:
        """OpenAI's error object, in JSON."""
        return error_body(self.status, self.code, self.message, self.param)

    @property
    def all_headers(self) -> Headers:
        """Return the headers of the answer, but for content-length and x-request-id."""
        retry = [] if self.retry_after is None else [(b"retry-after", b"%d" % self.retry_after)]
        return [(b"content-type", b"application/json"), *retry, *self.headers]


class DeadlineExceeded(Refusal):
    """Raised when a request has taken longer than it may."""

    def __init__(self, seconds: float) -> None:
        message = f"The request was not done within {seconds:g} seconds and was ended."
        super().__init__(504, "deadline_exceeded", message)


class Unavailable(Refusal):
    """Raised when the server can't take a request now; the same one may succeed later."""

    def __init__(self, code: str, message: str, *, retry_after: int) -> None:
        super().__init__(503, code, message, retry_after=retry_after)


def method_not_allowed(method: str, headers: Headers) -> Refusal:
    """Return the refusal of a method that a route doesn't take; `headers` say which it takes."""
    message = f"{method[:20]} is not what this route takes."
    return Refusal(405, "method_not_allowed", message, headers=headers)


def error_body(status: int, code: str | None, message: str, param: str | None = None) -> bytes:
    """OpenAI's error object, in JSON."""
    error = {"message": message, "type": error_type(status), "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def error_type(status: int) -> str:
    """Return OpenAI's name for the kind of error that has this status."""
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


async def send_refusal(send: Send, refusal: Refusal) -> None:
    """Answer a request with a refusal, whole."""
    await send_whole(send, refusal.status, refusal.all_headers, refusal.body)


async def send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Answer a request in one piece."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
