"""A worker in a thread, on a free port; and receivers of its ready message, sound and faulty."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvloop

from inferno.client import ServedEngine
from inferno.demo import MODEL_FOLDERS
from inferno.http_post import parse_target
from inferno.server.http.run import ShutdownRequests, run
from inferno.server.http.sockets import listening
from inferno.server.model_service import ModelService
from inferno.server.routes import WORKER_ROUTES
from inferno.server.settings import ServerSettings
from inferno.server.worker.messages import DeviceKind
from inferno.server.worker.settings import Callback, WorkerSettings
from inferno.server.worker.start import create_worker_app
from inferno.server.worker.worker import Worker
from inferno.text.model_text import ModelText
from tests.patience import PATIENCE
from tests.server.http.serving import wait_until

NOWHERE = "http://127.0.0.1:9/ready"  # discard: nobody listens


@dataclass(frozen=True)
class Host:
    """A worker under test."""

    engine: ServedEngine
    text: ModelText
    http: httpx.Client
    shutdown: ShutdownRequests

    def execute(self, **fields: Any) -> list[tuple[str, Any]]:
        """The events of a job: names and data."""
        answer = self.http.post("/execute", json=fields)
        assert answer.status_code == 200, answer.text
        return events_of(answer.text)


def events_of(text: str) -> list[tuple[str, Any]]:
    """Named events, comments left out."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [event_of(block) for block in blocks]


def event_of(block: str) -> tuple[str, Any]:
    name, data = block.split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@contextlib.contextmanager
def working(
    make_engine: Callable[[], ServedEngine],
    callback: Callback | None = None,
    /,
    *,
    uri: str | None = None,
    text: ModelText | None = None,
    **settings: Any,
) -> Iterator[Host]:
    """A worker, ready; it is stopped in the end, at once."""
    wanted = ServerSettings(port=0, served_model_names=("demo",), **settings)
    callback = callback or Callback(target=parse_target(NOWHERE, option="--x"), num_attempts=1)
    about = WorkerSettings(
        worker_id="w-1", device=DeviceKind.CPU, device_index=None, callback=callback, uri=uri
    )
    text = text or ModelText(MODEL_FOLDERS["demo"])
    shutdown = ShutdownRequests()
    engines: list[ServedEngine] = []

    with listening(wanted) as sockets:
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"

        async def serve() -> None:
            engines.append(make_engine())
            service = ModelService(engines[0], text, wanted)
            worker = Worker(service, about, [route.path for route in WORKER_ROUTES])
            app = create_worker_app(service, worker)
            await run(
                app, WORKER_ROUTES, wanted, engines[0], sockets, shutdown, on_ready=worker.on_ready
            )

        def in_thread() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())

        thread = threading.Thread(target=in_thread)
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=PATIENCE) as http:
                wait_until(lambda: http.get("/ready").status_code == 200)
                yield Host(engines[0], text, http, shutdown)
        finally:
            while len(shutdown.signals) < 2:
                shutdown.add()
            thread.join(20)
            assert not thread.is_alive(), "the worker didn't stop"


@dataclass
class Receiver:
    """Takes connections one after another, each of which `behave` answers; keeps what it read."""

    port: int
    posts: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    num_connections: int = 0

    def url(self, path: str = "/ready") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


Behaviour = Callable[[socket.socket, int], None]  # a connection, and the number of it


@contextlib.contextmanager
def receiving(behave: Behaviour | None) -> Iterator[Receiver]:
    """A receiver on a free port; without a behaviour nobody accepts."""
    backlog = 64 if behave is not None else 0
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as listener:
        receiver = Receiver(listener.getsockname()[1])
        with contextlib.ExitStack() as queue:
            if behave is None:
                for _ in range(2):  # the kernel accepts no more than these
                    queue.enter_context(_begun(receiver.port))
            else:
                args = (listener, receiver, behave)
                threading.Thread(target=_accept, args=args, daemon=True).start()
            yield receiver


def _begun(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def _accept(listener: socket.socket, receiver: Receiver, behave: Behaviour) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        receiver.num_connections += 1
        answering = threading.Thread(
            target=_answer, args=(connection, receiver, behave, receiver.num_connections)
        )
        answering.daemon = True
        answering.start()


def _answer(connection: socket.socket, receiver: Receiver, behave: Behaviour, number: int) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(PATIENCE)
        head, body = _read(connection)
        receiver.heads.append(head)
        receiver.posts.append(json.loads(body))
        behave(connection, number)


def _read(connection: socket.socket) -> tuple[str, bytes]:
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += connection.recv(65536)
    head, _, body = raw.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head.decode(), body


def answers(status: int, extra: str = "", body: bytes = b"") -> Behaviour:
    """Answers with that status, and is done."""

    def behave(connection: socket.socket, _: int) -> None:
        head = f"HTTP/1.1 {status} So\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        connection.sendall(head.encode() + body)

    return behave


class Lines(logging.Handler):
    """Keeps what a worker logs: messages with their fields."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), getattr(record, "fields", {})))

    def of(self, message: str) -> list[dict[str, Any]]:
        return [fields for said, fields in list(self.lines) if said == message]
