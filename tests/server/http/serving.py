"""A real server on a free port, in a thread: a scripted engine, and an app that is a page long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import uvloop

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.requests import Request, SamplingParams
from inferno.server.http import ApiError, admission_of, context_of
from inferno.server.http.context import App, Message, Receive, Scope, Send
from inferno.server.http.run import ShutdownRequests, run
from inferno.server.http.sockets import listening
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.patience import PATIENCE

ENDLESS = Script(answers=(Answer(token_ids=(7,), is_endless=True, delay=0.005),))
_numbers = count()


@dataclass
class RunningServer:
    """A server under test."""

    port: int
    engine: ScriptedClient
    shutdown: ShutdownRequests
    exit_code: list[int] = field(default_factory=list)
    problem: list[BaseException] = field(default_factory=list)
    thread: threading.Thread | None = None

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        """A connection; reading from it fails after some seconds."""
        client = socket.socket()
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", self.port))
        return client

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        *,
        host: str | None = "localhost",
    ) -> Answered:
        """One request on a connection of its own, and its whole answer."""
        raw = b"" if body is None else json.dumps(body).encode()
        given = {"Connection": "close", "Content-Length": str(len(raw)), **(headers or {})}
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        if host is not None:
            given["Host"] = host
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        return self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw)

    def send(self, raw: bytes) -> Answered:
        """These bytes, and what comes back until the server closes."""
        with self.connect() as client:
            with contextlib.suppress(OSError):
                client.sendall(raw)
            return Answered.read(client)

    def metric(self, line: str) -> float:
        """The value of one line of /metrics, 0 where it is not there."""
        for each in self.ask("GET", "/metrics").body.decode().splitlines():
            if each.startswith(line + " "):
                return float(each.rpartition(" ")[2])
        return 0.0

    def join(self) -> None:
        assert self.thread is not None
        self.thread.join(timeout=PATIENCE)
        assert not self.thread.is_alive(), "the server didn't stop"


@dataclass
class Answered:
    """A response, its chunks put together."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @classmethod
    def read(cls, client: socket.socket) -> Answered:
        raw = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(1 << 16):
                raw += part
        return cls.parse(bytes(raw))

    @classmethod
    def parse(cls, raw: bytes) -> Answered:
        if not raw:
            return cls(0, {}, b"")  # closed without a word
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        is_chunked = headers.get("transfer-encoding") == "chunked"
        return cls(int(first.split()[1]), headers, _joined(body) if is_chunked else body)


def _joined(chunked: bytes) -> bytes:
    body = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        body, chunked = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


@contextlib.contextmanager
def serving(
    script: Script = ENDLESS, *, app: App | None = None, until_ready: bool = True, **settings: Any
) -> Iterator[RunningServer]:
    """A server with these settings; it is stopped in the end, at once."""
    wanted = ServerSettings(port=0, **settings)
    with listening(wanted) as sockets:
        server = RunningServer(
            sockets[0].getsockname()[1], ScriptedClient(script), ShutdownRequests()
        )
        app = app or small_app

        def serve() -> None:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    code = runner.run(
                        run(app, ROUTES, wanted, server.engine, sockets, server.shutdown)
                    )
                server.exit_code.append(code)
            except BaseException as problem:
                server.problem.append(problem)

        server.thread = threading.Thread(target=serve)
        server.thread.start()
        try:
            if until_ready:
                wait_until(lambda: server.ask("GET", "/ready").status == 200)
            yield server
        finally:
            while len(server.shutdown.signals) < 2:
                server.shutdown.add()
            server.join()


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Fail unless the condition comes true in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)


async def small_app(scope: Scope, receive: Receive, send: Send) -> None:
    """POST /v1/completions streams; POST /echo tells the length of its body; all else is 404."""
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    if scope["path"] == "/echo":
        message = await receive()
        await _whole(send, 200, b"%d" % len(message["body"]))
    elif scope["path"] == "/broken":
        raise ValueError("secret prompt")
    elif scope["path"] == "/v1/completions" and scope["method"] == "POST":
        wish = json.loads((await receive())["body"])
        await _until_disconnect(receive, _stream(scope, send, wish))
    else:
        await _whole(send, 404, b"")


async def _stream(scope: Scope, send: Send, wish: dict[str, Any]) -> None:
    params = SamplingParams(max_tokens=wish.get("max_tokens"), n=wish.get("n", 1))
    request = Request(
        request_id=f"r{next(_numbers)}",
        prompt_token_ids=(1,) * wish.get("prompt", 1),
        params=params,
    )
    lease = admission_of(scope).acquire(
        len(request.prompt_token_ids), context=context_of(scope), timeout=wish.get("timeout")
    )
    padding = b"." * wish.get("padding", 0)
    has_begun = False
    try:
        async with lease, aclosing(lease.generate(request)) as events:
            async for event in events:
                if not has_begun:
                    await send({"type": "http.response.start", "status": 200, "headers": []})
                has_begun = True
                body = b"data: %d%s\n\n" % (len(event.token_ids), padding)
                await send({"type": "http.response.body", "body": body, "more_body": True})
    except ApiError as error:
        if not has_begun:
            raise
        last = b"data: " + error.body + b"\n\n"
        await send({"type": "http.response.body", "body": last, "more_body": True})
    await send({"type": "http.response.body", "body": b"" if has_begun else b"empty"})


async def _until_disconnect(receive: Receive, work: Any) -> None:
    async def listen() -> Message:
        while (message := await receive())["type"] != "http.disconnect":
            pass
        return message

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(listen())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait({working, leaving})


async def _whole(send: Send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})
