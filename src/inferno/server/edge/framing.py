"""Where a body ends: chunks that come in, and answers that go without them."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from inferno.server.edge.asgi import App, Message, Receive, Scope, Send
from inferno.server.edge.refusal import Refusal

MAX_CHUNK_LINE = 1024  # a chunk's size and its extensions, of which nobody makes use
_MOST_SPENT = 256 << 10  # on lines that take more than their data: each chunk costs its time
_MOST_DIGITS = 16  # of a size that the parser takes
_NO_SIZE = 2**63  # and what is no length of anything


class ChunkFraming:
    """Looks at each chunk's first line before its data come, which the parser would wait for."""

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._num_left = 0  # bytes of the chunk under way, and of the line's end behind them
        self._line = b""
        self._num_spent = 0  # bytes of lines, beyond those of data
        self._is_over = False

    def check(self, data: bytes) -> Refusal | None:
        """Why the body's next bytes are refused, if so; bad syntax is the parser's to find."""
        at = 0
        while at < len(data) and not self._is_over:
            if self._num_left:
                num_skipped = min(self._num_left, len(data) - at)
                self._num_left -= num_skipped
                at += num_skipped
                continue
            end = data.find(b"\n", at, at + MAX_CHUNK_LINE)
            line = self._line + data[at : end + 1 if end >= 0 else at + MAX_CHUNK_LINE]
            at = end + 1 if end >= 0 else len(data)
            self._line = line if end < 0 else b""
            if len(line) >= MAX_CHUNK_LINE:
                return Refusal(413, "body_too_large", "The body, or its framing, is too large.")
            if end >= 0 and (refusal := self._begin(line)) is not None:
                return refusal
        return None

    def _begin(self, line: bytes) -> Refusal | None:
        digits = line.partition(b";")[0].strip()
        try:
            size = int(digits, 16) if len(digits) <= _MOST_DIGITS else _NO_SIZE
        except ValueError:
            size = 0
        self._is_over = not size  # or what follows makes no sense any more
        self._num_left = size + len(b"\r\n")
        if size >= _NO_SIZE:
            return Refusal(400, "bad_request", "A chunk of the body has a size that can't be.")
        self._num_spent += len(line) + len(b"\r\n") - size
        if size > self._max_body or self._num_spent > _MOST_SPENT:
            return Refusal(413, "body_too_large", "The body, or its framing, is too large.")
        return None


def without_chunks(app: App, cycle: RequestResponseCycle) -> App:
    """The application for a client of HTTP/1.0, for whom the connection's end ends an answer."""

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
