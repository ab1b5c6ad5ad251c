"""A hub on loopback, which answers as Hugging Face's does, or as no honest hub would."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.gguf.files import I8, STRING, Parts, entry, tensor, text

COMMIT = "c0ffee" + "0" * 34
Fault = Callable[["Handler", bytes], bool]


def git_oid(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


CONFIG = json.dumps({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64}).encode()


def safetensors(data: bytes) -> bytes:
    """Return a file with one tensor of bytes."""
    entry = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    header = json.dumps({"x": entry}).encode().ljust(120)
    return len(header).to_bytes(8, "little") + header + data


def gguf(data: bytes, architecture: str = "llama") -> bytes:
    """Return a GGUF file with one tensor of bytes."""
    kind = entry("general.architecture", STRING, text(architecture))
    return Parts(entries=[kind], tensors=[tensor("x", [len(data)], 0, I8)], data=data).content()


WEIGHTS = safetensors((bytes(range(256)) * 4096)[128:])  # 1 MiB
FILES = {
    "config.json": CONFIG,
    "tokenizer.json": b'{"model": {}}',
    "model.safetensors": WEIGHTS,
    "README.md": b"read me",
    "modeling_odd.py": b"import os",
}


@dataclass
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass
class Hub:
    """What the hub has and does; tests change it while it runs.

    answer      the whole answer of the API, in place of the one that is made of the files.
    fault       is called with the handler and a file's content before it is served, and returns
                whether it has answered itself.
    absent      likewise of a file that isn't there.
    """

    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    commit: str = COMMIT
    answer: Any = None
    fault: Fault | None = None
    api_fault: Callable[[Handler], bool] | None = None
    absent: Callable[[Handler], bool] | None = None
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def siblings(self) -> list[dict[str, Any]]:
        return [sibling(name, content) for name, content in self.files.items()]

    def asked_files(self) -> list[Asked]:
        return [one for one in self.asked if "/resolve/" in one.path or "/cdn/" in one.path]


def sibling(name: str, content: bytes) -> dict[str, Any]:
    listed: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_oid(content)}
    if name.endswith((".safetensors", ".gguf")):
        sha256 = hashlib.sha256(content).hexdigest()
        listed["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
    return listed


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait until its head is acknowledged: 40 ms
    hub: Hub

    def do_GET(self) -> None:
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()})
        self.hub.asked.append(asked)
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            self._listing()
        else:
            self._file(path)

    def _listing(self) -> None:
        if self.hub.api_fault is not None and self.hub.api_fault(self):
            return
        answer = self.hub.answer
        if answer is None:
            answer = {
                "sha": self.hub.commit,
                "siblings": self.hub.siblings(),
                "cardData": {"license": "apache-2.0"},
            }
        self.reply(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def _file(self, path: str) -> None:
        name = re.split("/resolve/[0-9a-f]{40}/|/cdn/", path)[-1]
        content = self.hub.files.get(name)
        if content is None and self.hub.absent is not None and self.hub.absent(self):
            return
        if content is None:
            self.reply(404, b"", {"x-error-code": "EntryNotFound"})
        elif self.hub.fault is None or not self.hub.fault(self, content):
            self.serve(content)

    def serve(self, content: bytes) -> None:
        """Answer with a file, or with the range of it that was asked for."""
        start, stop = self.start(), self.stop(content)
        if start == 0 and stop == len(content):
            self.reply(200, content)
        elif start >= len(content):
            self.reply(416, b"")
        else:
            where = f"bytes {start}-{stop - 1}/{len(content)}"
            self.reply(206, content[start:stop], {"content-range": where})

    def start(self) -> int:
        asked = self.headers.get("range")
        return int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0

    def stop(self, content: bytes) -> int:
        _, _, last = self.headers.get("range", "").partition("-")
        return min(len(content), int(last) + 1) if last else len(content)

    def reply(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        """Answer; a length that is not the body's closes the connection after it."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if length is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # who asked has left


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    handler = type("Bound", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def redirect(to: str) -> Fault:
    """Send whoever asks for a file to another place, with its name behind."""

    def answer(handler: Handler, content: bytes) -> bool:
        if "/resolve/" not in handler.path:
            return False
        location = f"{to}/cdn/{handler.path.rsplit('/', 1)[1]}"
        handler.reply(302, b"", {"location": location, "set-cookie": "session=secret; Path=/"})
        return True

    return answer


def reply_chunked(handler: Handler, body: bytes) -> None:
    """Answer with a body whose length no header tells."""
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    handler.wfile.flush()
