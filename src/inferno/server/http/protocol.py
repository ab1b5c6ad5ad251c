"""Bound a client's connection: in what it may send, and in the time it may take."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from inferno.server.http.chunk_writer import buffer_head, offer_chunk_writer
from inferno.server.http.context import App, Message, Receive, Scope, Send, request_id
from inferno.server.http.errors import ApiError

MAX_HEAD = 32 << 10
MAX_HEADERS = 100
MAX_URL = 8 << 10
_UPGRADE_HEADERS = (b"upgrade", b"connection", b"http2-settings")
_MAX_UNREAD = 16 << 10  # bytes of answers that wait here for a client; the kernel holds some more
_MIN_PROGRESS = 1024  # bytes that a client must read within the write deadline
_MAX_LINGER = 2.0
_MAX_LEFTOVER = 64 << 20
_HEAD_END = b"\r\n\r\n"
_MAX_CHUNK_LINE = 1024  # a chunk's size and its extensions, of which nobody makes use
_MOST_SPENT = 256 << 10  # on lines that take more than their data: each chunk costs its time
_MOST_DIGITS = 16  # of a size that the parser takes
_NO_SIZE = 2**63  # and what is no length of anything


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Deadlines in seconds; on_rejected gets the code of an error before a request is whole."""

    header_timeout: float
    body_timeout: float
    write_timeout: float
    max_body: int
    max_connections: int
    on_rejected: Callable[[str], None]


class Phase(Enum):
    """A connection's state, named after what the server waits for."""

    IDLE = auto()  # a request
    HEAD = auto()  # the rest of its head
    BODY = auto()  # the rest of its body
    ANSWER = auto()  # our own answer
    LINGER = auto()  # the end of what a client goes on sending after an error


class Connection(HttpToolsProtocol):
    """A connection of uvicorn's protocol, with bounds and deadlines; call `watch` regularly."""

    def __init__(self, *, limits: ConnectionLimits, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._limits = limits
        self._phase = Phase.IDLE
        self._since = time.monotonic()
        self._has_asked = False
        self._num_received = 0  # bytes in this phase
        self._num_headers = 0
        self._head_size = 0
        self._head_end = b""  # the last bytes of a head that is not whole
        self._framing: ChunkFraming | None = None
        self._active: RequestResponseCycle | None = None
        self._unread: tuple[float, int] | None = None  # since when so many bytes wait

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_MAX_UNREAD)
        if len(self.connections) > self._limits.max_connections:
            self._limits.on_rejected("connections_full")
            _longest_idle(self.connections, self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_request()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        self._num_received += len(data)
        if self._phase is Phase.LINGER:
            if self._num_received > _MAX_LEFTOVER:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        if self._phase is Phase.HEAD and (rest := self._after_head(data)):
            self._feed(data[: -len(rest)], rest)
        else:
            self._feed(data)

    def _after_head(self, data: bytes) -> bytes:
        """Return the bytes after the blank line that ends a head; empty where it has no end yet."""
        end = (self._head_end + data).find(_HEAD_END)
        num_before = len(self._head_end)
        self._head_end = (self._head_end + data[-3:])[-3:] if end < 0 else b""
        return b"" if end < 0 else data[end + len(_HEAD_END) - num_before :]

    def _feed(self, data: bytes, rest: bytes = b"") -> None:
        """Let the parser read these bytes, and what is received after them."""
        if self._framing is not None and (error := self._framing.check(data)) is not None:
            self._reject(error)
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse_without_upgrade(data[upgrade.args[0] :] + rest)
        except httptools.HttpParserError as error:
            self._reject(_reason(error))
        else:
            self._check_size()
            if rest and not self.transport.is_closing() and self._phase is not Phase.LINGER:
                self.data_received(rest)

    def on_message_begin(self) -> None:
        if self._active is not None and not self._active.response_complete:
            raise _ParserError(ApiError(400, "pipelining", "One request at a time, please."))
        super().on_message_begin()
        self._num_headers = self._head_size = 0
        self._framing = None

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL:
            raise _ParserError(ApiError(414, "url_too_long", f"The URL exceeds {MAX_URL} bytes."))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not Phase.HEAD:
            raise _ParserError(ApiError(400, "trailers", "Headers after the body are not taken."))
        self._num_headers += 1
        self._head_size += len(name) + len(value)
        if self._num_headers > MAX_HEADERS or self._head_size > MAX_HEAD:
            raise _ParserError(_large_head())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # Not a whole URL, whose host nobody would check.
        if not self.url.startswith(b"/") or self.parser.get_method() == b"CONNECT":
            raise _ParserError(ApiError(400, "bad_request", "The request's target must be a path."))
        if self.parser.should_upgrade():
            return  # the parser would skip the body: see _parse_without_upgrade
        self._has_asked = True
        self._enter(Phase.BODY)
        if any(name == b"transfer-encoding" for name, _ in self.headers):
            self._framing = ChunkFraming(self._limits.max_body)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        buffer_head(cycle)
        if cycle.scope["http_version"] == "1.0":
            app = without_chunks(app, cycle)
        else:
            offer_chunk_writer(cycle)
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._framing = None
            self._enter(Phase.ANSWER)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._phase is Phase.BODY and not self.transport.is_closing():
            self._linger()  # answered before the request was whole
        else:
            self._enter(Phase.IDLE)

    def watch(self, now: float) -> None:
        """End the connection or its request if its phase has taken too long."""
        limits, waited = self._limits, now - self._since
        if self._phase is Phase.HEAD and waited > limits.header_timeout:
            self._reject(_slow("head", limits.header_timeout))
        elif self._phase is Phase.BODY and waited > limits.body_timeout:
            self._reject(_slow("body", limits.body_timeout))
        elif self._phase is Phase.IDLE and not self._has_asked:
            self._abort_if(waited > limits.header_timeout)
        elif self._phase is Phase.LINGER:
            self._abort_if(waited > _MAX_LINGER)
        if self._is_stalled(now):
            self._limits.on_rejected("client_does_not_read")
            self.transport.abort()  # which wakes whoever waits to write, and ends its request

    @property
    def idle_since(self) -> float | None:
        """Return when the phase began, in monotonic seconds; None while a request is served."""
        is_idle = self._phase in (Phase.IDLE, Phase.HEAD, Phase.LINGER)
        return self._since if is_idle else None

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Read a request as if it had not asked for a protocol that we don't speak.

        Java's client asks every server for HTTP/2 so, whatever the request.
        """
        headers = [each for each in self.headers if each[0] not in _UPGRADE_HEADERS]
        lines = [
            b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url),
            *(name + b": " + value for name, value in headers),
        ]
        self._enter(Phase.IDLE)
        self._head_end = b""
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _abort_if(self, is_late: bool) -> None:
        if is_late:
            self.transport.abort()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = time.monotonic()
        self._num_received = 0

    def _check_size(self) -> None:
        if self._phase is Phase.HEAD and self._num_received > MAX_HEAD:
            self._reject(_large_head())
        # A body in chunks is larger here than in the hands of those who check its size.
        if self._phase is Phase.BODY and self._num_received > 2 * self._limits.max_body + MAX_HEAD:
            self._reject(ApiError(413, "body_too_large", "The body, or its framing, is too large."))

    def _is_stalled(self, now: float) -> bool:
        """Return whether the client has read too little for longer than the write deadline."""
        size = num_unread(self.transport)
        if not size or not (self.flow.write_paused or self._phase is not Phase.ANSWER):
            self._unread = None
        elif self._unread is None or size <= self._unread[1] - _MIN_PROGRESS:
            self._unread = now, size
        return self._unread is not None and now - self._unread[0] > self._limits.write_timeout

    def _reject(self, error: ApiError) -> None:
        """Answer what isn't a request that an application could see, and hear no more of it."""
        if self.transport.is_closing():
            return
        self._limits.on_rejected(error.code)
        if self._active is not None and not self._active.response_complete:
            if self._active.response_started:
                self.transport.close()  # an answer within an answer would help nobody
                return
            self._leave_request()
        name = request_id({"headers": self.headers or ()})  # of as much as has come
        self.transport.write(_whole_answer(error, name))
        self._linger()

    def _leave_request(self) -> None:
        """Disconnect the request from its client, as uvicorn does for the newest one only."""
        if self._active is not None and not self._active.response_complete:
            self._active.disconnected = True
            self._active.message_event.set()

    def _linger(self) -> None:
        """Read on for a while: closing at once would make the client's system drop our answer."""
        self._unset_keepalive_if_required()
        self._enter(Phase.LINGER)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


def num_unread(transport: asyncio.Transport) -> int:
    """Return how many bytes the client hasn't taken yet, in our buffer and in the kernel's."""
    size = transport.get_write_buffer_size()
    if not size:
        return 0
    kernel = bytearray(4)
    with contextlib.suppress(OSError):  # what is no TCP socket of Linux doesn't tell
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, kernel)
    return size + int.from_bytes(kernel, sys.byteorder)


class _ParserError(Exception):
    """Raised through the parser, which wraps it."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def _reason(error: httptools.HttpParserError) -> ApiError:
    cause = error.__context__
    if isinstance(cause, _ParserError):
        return cause.error
    return ApiError(400, "bad_request", "This is not a valid HTTP/1.1 request.")


def _longest_idle(connections: Any, newest: Connection) -> Connection:
    """Return the connection that makes room: the newest itself if all others are at work."""
    others = [each for each in connections if each is not newest and each.idle_since is not None]
    idle = [each for each in others if not each.transport.is_closing()]  # several come in a turn
    return min(idle, key=lambda each: each.idle_since, default=newest)


def _large_head() -> ApiError:
    message = f"The request's head exceeds {MAX_HEAD} bytes or {MAX_HEADERS} headers."
    return ApiError(431, "head_too_large", message)


def _slow(part: str, seconds: float) -> ApiError:
    message = f"The request's {part} was not whole within {seconds:g} seconds."
    return ApiError(408, f"slow_{part}", message)


def _whole_answer(error: ApiError, name: str) -> bytes:
    phrase = HTTPStatus(error.status).phrase.encode("ascii")
    body = error.body
    lines = [
        b"HTTP/1.1 %d %s" % (error.status, phrase),
        *(key + b": " + value for key, value in error.all_headers),
        b"content-length: %d" % len(body),
        b"x-request-id: " + name.encode("ascii"),
        b"connection: close",
    ]
    return b"\r\n".join([*lines, b"", body])


class ChunkFraming:
    """A check of each chunk's first line before its data come, which the parser would wait for."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._num_left = 0  # bytes of this chunk, and of the line's end behind them
        self._line = b""
        self._num_spent = 0  # bytes of lines, beyond those of data
        self._is_over = False

    def check(self, data: bytes) -> ApiError | None:
        """Return the error of the body's next bytes, if any; bad syntax is left to the parser."""
        at = 0
        while at < len(data) and not self._is_over:
            if self._num_left:
                num_skipped = min(self._num_left, len(data) - at)
                self._num_left -= num_skipped
                at += num_skipped
                continue
            end = data.find(b"\n", at, at + _MAX_CHUNK_LINE)
            line = self._line + data[at : end + 1 if end >= 0 else at + _MAX_CHUNK_LINE]
            at = end + 1 if end >= 0 else len(data)
            self._line = line if end < 0 else b""
            if len(line) >= _MAX_CHUNK_LINE:
                return ApiError(413, "body_too_large", "The body, or its framing, is too large.")
            if end >= 0 and (error := self._begin(line)) is not None:
                return error
        return None

    def _begin(self, line: bytes) -> ApiError | None:
        digits = line.partition(b";")[0].strip()
        try:
            size = int(digits, 16) if len(digits) <= _MOST_DIGITS else _NO_SIZE
        except ValueError:
            size = 0
        self._is_over = not size  # or what follows makes no sense any more
        self._num_left = size + len(b"\r\n")
        if size >= _NO_SIZE:
            return ApiError(400, "bad_request", "A chunk of the body has a size that can't be.")
        self._num_spent += len(line) + len(b"\r\n") - size
        if size > self._max_body or self._num_spent > _MOST_SPENT:
            return ApiError(413, "body_too_large", "The body, or its framing, is too large.")
        return None


def without_chunks(app: App, cycle: RequestResponseCycle) -> App:
    """Wrap an application for clients of HTTP/1.0, whose answers end with the connection."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_plain(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                if b"content-length" not in names:
                    cycle.chunked_encoding = False
            elif cycle.chunked_encoding is False and not cycle.expected_content_length:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plain)

    return answer
