"""Starting and stopping: signals, the drain, a port in use, Unix sockets and TLS."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from inferno.client.scripted import Script
from inferno.errors import InvalidRequest
from inferno.server.http.sockets import listening, max_connections
from inferno.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.http.serving import Answered, RunningServer, serving, wait_until

PROGRAM = """
import json, resource, sys
from pathlib import Path
from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.errors import InfernoError
from inferno.server.http import serve
from inferno.server.routes import ROUTES
from inferno.server.settings import ServerSettings
from tests.server.http.serving import small_app
wish = json.loads(sys.argv[1])
if max_files := wish.pop("max_files", 0):
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
answer = Answer(token_ids=(7,), is_endless=True, delay=0.01)
engine = ScriptedClient(Script(answers=(answer,), **wish.pop("script", {})))
try:
    if "ssl_certfile" in wish:
        wish["ssl_certfile"] = Path(wish["ssl_certfile"])
    sys.exit(serve(small_app, ROUTES, ServerSettings(**wish), engine))
except InfernoError as problem:
    sys.exit(f"error: {problem}")
"""


class Process:
    """A server of its own process, and the lines it logs."""

    def __init__(self, **wish: Any) -> None:
        command = [sys.executable, "-c", PROGRAM, json.dumps({"port": 0, **wish})]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.log: list[dict[str, Any]] = []

    def wait_for(self, message: str) -> dict[str, Any]:
        """The next line that says so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if self.log[-1]["message"] == message:
                return self.log[-1]
        raise AssertionError(f"it never said {message}: {self.log}")

    def listening(self) -> RunningServer:
        address = self.wait_for("listening")["at"][0]
        return RunningServer(int(address.rpartition(":")[2]), None, None)  # type: ignore[arg-type]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@contextmanager
def process(**wish: Any) -> Iterator[Process]:
    started = Process(**wish)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def _streams(server: RunningServer, num: int, max_tokens: int | None) -> list[socket.socket]:
    body = json.dumps({"max_tokens": max_tokens}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    clients = [server.connect() for _ in range(num)]
    for client in clients:
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    for client in clients:
        assert client.recv(1, socket.MSG_PEEK)  # it has begun
    return clients


def _rest(clients: list[socket.socket]) -> list[bytes]:
    return [Answered.read(client).body for client in clients]


def test_sigterm_lets_streams_finish_and_takes_nothing_new() -> None:
    with process() as child:
        server = child.listening()
        child.wait_for("ready")
        clients = _streams(server, 10, max_tokens=80)
        kept = server.connect()
        child.signal(signal.SIGTERM)
        assert child.wait_for("draining")["open_requests"] == 10
        ready = server.ask("GET", "/ready")
        assert (ready.status, ready.code) == (503, "draining")
        assert server.ask("GET", "/health").status == 200
        refused = server.ask("POST", "/v1/completions", {})
        assert (refused.status, refused.code) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        kept.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        last = Answered.read(kept)
        assert (last.status, last.headers["connection"]) == (503, "close")
        assert [body.count(b"data: 1") for body in _rest(clients)] == [80] * 10
        assert child.process.wait(timeout=PATIENCE) == 0


def test_streams_that_outlast_the_drain_are_told_so() -> None:
    with process(drain_timeout=0.3) as child:
        server = child.listening()
        child.wait_for("ready")
        clients = _streams(server, 3, max_tokens=None)
        began = time.monotonic()
        child.signal(signal.SIGTERM)
        assert all(b'"code":"shutting_down"' in body for body in _rest(clients))
        assert child.process.wait(timeout=PATIENCE) == 0
        assert time.monotonic() - began >= 0.3


def test_a_second_signal_stops_at_once() -> None:
    with process() as child:
        server = child.listening()
        child.wait_for("ready")
        clients = _streams(server, 2, max_tokens=None)
        child.signal(signal.SIGTERM)
        child.wait_for("draining")
        child.signal(signal.SIGTERM)
        assert child.process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
        assert all(b'"code":"shutting_down"' in body for body in _rest(clients))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_loading_can_be_interrupted(number: int) -> None:
    with process(script={"load_seconds": 600}) as child:
        server = child.listening()
        assert server.ask("GET", "/health").status == 200
        ready = server.ask("GET", "/ready")
        assert (ready.code, ready.json["stage"]) == ("loading", "weights")
        child.signal(number)
        assert child.process.wait(timeout=PATIENCE) == 0


def test_a_model_that_can_not_be_loaded_ends_the_server() -> None:
    with process(script={"load_error": "config.json is not there"}) as child:
        _, error = child.process.communicate(timeout=PATIENCE)
        assert child.process.returncode == 1
        assert error.splitlines()[-1] == "error: config.json is not there"


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with process(port=port) as child:
            _, error = child.process.communicate(timeout=PATIENCE)
    assert child.process.returncode == 1
    assert error.startswith(f"error: port {port} on 127.0.0.1 is in use")
    assert len(error.splitlines()) == 1


def test_a_port_is_free_again_at_once() -> None:
    with serving() as first, first.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(100)
    with listening(ServerSettings(port=first.port)):
        pass


def test_a_second_server_can_not_take_the_port() -> None:
    with (
        listening(ServerSettings(port=0)) as sockets,
        pytest.raises(InvalidRequest, match="is in use"),
        listening(ServerSettings(port=sockets[0].getsockname()[1])),
    ):
        raise AssertionError


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_a_host_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(InvalidRequest, match=host), listening(ServerSettings(host=host, port=0)):
        raise AssertionError


def test_every_address_of_a_name_gets_the_same_port() -> None:
    with listening(ServerSettings(host="localhost", port=0)) as sockets:
        assert len({bound.getsockname()[1] for bound in sockets}) == 1


def test_connections_leave_files_for_other_uses() -> None:
    assert 1 <= max_connections(10) <= 10
    assert max_connections(10**9) < 10**9


def _ask_unix(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.sendall(b"GET /health HTTP/1.1\r\nHost: any.name\r\nConnection: close\r\n\r\n")
        return Answered.read(client).status


def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "inferno.sock"
    with serving(uds=path, until_ready=False):
        wait_until(lambda: _ask_unix(path) == 200)
        assert path.stat().st_mode & 0o777 == 0o660
        with pytest.raises(InvalidRequest, match="in use"), listening(ServerSettings(uds=path)):
            raise AssertionError
    assert not path.exists()


def test_the_socket_of_a_server_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "inferno.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    with listening(ServerSettings(uds=path)):
        pass
    path.write_text("mine")
    with pytest.raises(InvalidRequest, match="not a socket"), listening(ServerSettings(uds=path)):
        raise AssertionError
    assert path.read_text() == "mine"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate with its key, in one file."""
    file = tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    rest = ["-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout", "-", "-out", "-"]
    try:
        made = subprocess.run([*command, *rest], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    file.write_bytes(made.stdout)
    return file


def test_tls_is_served(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    with serving(ssl_certfile=certificate, until_ready=False) as server:
        with trusting.wrap_socket(server.connect(), server_hostname="localhost") as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert Answered.read(client).status == 200
        with trusting.wrap_socket(server.connect(), server_hostname="localhost") as client:
            client.sendall(b"GET http://x/ HTTP/1.1\r\n\r\n")  # refused, and lingered over
            assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_tls_handshake_has_the_time_of_a_head(certificate: Path, is_silent: bool) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    hello = _client_hello(trusting)
    with (
        serving(ssl_certfile=certificate, until_ready=False, header_timeout=0.5) as server,
        server.connect() as slow,
    ):
        began = time.monotonic()
        slow.settimeout(0.1)
        sent = 0
        while time.monotonic() - began < PATIENCE:
            if not is_silent:  # but slow
                slow.sendall(hello[sent : sent + 1])
                sent += 1
            with suppress(TimeoutError):
                assert not _read(slow)
                break
            with trusting.wrap_socket(server.connect(), server_hostname="localhost") as other:
                head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                other.sendall(head)
                assert Answered.read(other).status == 200
        assert 0.4 < time.monotonic() - began < PATIENCE


def _client_hello(trusting: ssl.SSLContext) -> bytes:
    """What a client begins with."""
    outgoing = ssl.MemoryBIO()
    client = trusting.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _read(client: socket.socket) -> bytes:
    """What comes; nothing from one that was closed, or cut off."""
    try:
        return client.recv(1000)
    except ConnectionResetError:
        return b""


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("no")
    with process(ssl_certfile=str(file)) as child:
        _, error = child.process.communicate(timeout=PATIENCE)
    assert child.process.returncode == 1
    assert error.startswith(f"error: --ssl-certfile {file} can't be used")


def test_what_keeps_the_engine_from_loading_is_raised() -> None:
    with serving(Script(load_error="no weights"), until_ready=False) as server:
        wait_until(lambda: bool(server.problem))
        assert str(server.problem[0]) == "no weights"


def test_more_clients_than_open_files_leave_it_answering() -> None:
    with process(max_files=128) as child:
        server = child.listening()
        child.wait_for("ready")
        crowd = [server.connect() for _ in range(300)]
        assert server.ask("GET", "/health").status == 200
        for client in crowd:
            client.close()
        assert server.ask("GET", "/health").status == 200
        assert child.process.poll() is None
