"""A tiny OpenAI-compatible server whose every pause is known, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Answering = Callable[["Reply", int], Awaitable[None]]  # what to say, and the request's number


@dataclass
class Reply:
    """One answer, written bit by bit."""

    request: dict[str, Any]
    writer: asyncio.StreamWriter

    def begin(self, status: int = 200) -> None:
        head = f"HTTP/1.1 {status} So\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.writer.write(head.encode())

    def chunk(self, raw: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def event(self, data: object) -> None:
        raw = data if isinstance(data, str) else json.dumps(data)
        self.chunk(f"data: {raw}\n\n".encode())

    def text(self, text: str) -> None:
        self.event({"choices": [{"index": 0, "text": text}]})

    def usage(self, prompt: int, completion: int) -> None:
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        self.event({"choices": [], "usage": usage})

    def end(self) -> None:
        self.event("[DONE]")
        self.writer.write(b"0\r\n\r\n")


@dataclass
class Server:
    """What was asked of it, and how many requests were open at most."""

    port: int = 0
    paths: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    num_open: int = 0
    most_open: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(answer: Answering) -> Iterator[Server]:
    """The server, on a free port."""
    server, loop = Server(), asyncio.new_event_loop()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].split("\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        server.heads.append(head)
        server.paths.append(head.split()[1])
        server.requests.append(request)
        server.times.append(loop.time())
        server.num_open += 1
        server.most_open = max(server.most_open, server.num_open)
        with contextlib.suppress(ConnectionError):
            await answer(Reply(request, writer), len(server.requests))
            await writer.drain()
        server.num_open -= 1
        writer.close()

    async def listen() -> None:
        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        server.port = listener.sockets[0].getsockname()[1]

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(listen())
        ready.set()
        loop.run_forever()

    ready = threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
