"""Send a POST request to one address: no redirect, proxy or cookie; read the answer in pieces."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

from inferno.errors import InvalidRequest

_MAX_HEAD = 64 << 10
_PIECE = 64 << 10
_URL = re.compile(r"https?://[!-\[\]-~]{1,2000}")  # no backslash: not every parser reads it alike
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})\b")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?\r?\n")
_PORT = re.compile(r":[0-9]{1,5}")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_MAX_NAME = 253
_LENGTH = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Target:
    """The address that a request goes to; `authority` is the value of the Host header."""

    host: str
    port: int
    authority: str
    path: str
    is_tls: bool


def parse_target(url: str, *, option: str) -> Target:
    """Return the target of a URL that an option gave; raise InvalidRequest for a bad URL."""
    parts = _split(url)
    if parts is None or not parts.hostname or "#" in url:
        raise InvalidRequest(
            f"{option} must be an http:// or https:// URL without a user name or a fragment, "
            f"not {url[:200]!r}",
            param=option.removeprefix("--").replace("-", "_"),
        )
    is_tls = parts.scheme == "https"
    return Target(
        host=parts.hostname,
        port=parts.port or (443 if is_tls else 80),
        authority=parts.netloc,
        path=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        is_tls=is_tls,
    )


@asynccontextmanager
async def post(target: Target, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
    """Yield the answer to a body, on a connection of its own that is closed when the block ends.

    Raises OSError where no answer comes. The wait has no bound: use asyncio.timeout around it.
    """
    context = _tls() if target.is_tls else None
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=context, limit=_MAX_HEAD
    )
    try:
        writer.write(_head(target, len(body), headers) + body)
        await writer.drain()
        yield await _read_answer(reader)
    finally:
        writer.transport.abort()


class Answer:
    """The answer of a server: status, headers by lower-case names, and a body read as it comes."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader):
        self.status = status
        self.headers = headers
        self._reader = reader

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body, piece by piece; raise ConnectionError where the body breaks off."""
        length = self.headers.get("content-length")
        if self.status == 204:
            return
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := await self._next_chunk():
                async for piece in self._exactly(size):
                    yield piece
                await _until(self._reader, b"\n")
        elif length is None:
            while piece := await self._reader.read(_PIECE):
                yield piece
        elif _LENGTH.fullmatch(length):
            async for piece in self._exactly(int(length)):
                yield piece
        else:
            raise ConnectionError("the answer has a length that is no number")

    async def read(self, at_most: int) -> bytes:
        """Return the body's first bytes."""
        body = b""
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= at_most:
                    break
        return body[:at_most]

    async def _next_chunk(self) -> int:
        size = _CHUNK_SIZE.fullmatch(await _until(self._reader, b"\n"))
        if size is None:
            raise ConnectionError("the answer's chunks have no size")
        return int(size[1], 16)

    async def _exactly(self, size: int) -> AsyncGenerator[bytes, None]:
        while size:
            piece = await self._reader.read(min(size, _PIECE))
            if not piece:
                raise ConnectionError("the answer broke off")
            size -= len(piece)
            yield piece


def _split(url: str) -> SplitResult | None:
    """Return the URL's parts, unless somebody could take its authority for another."""
    if not _URL.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets around no address
        return None
    return parts if _is_authority(parts.netloc) else None


def _is_authority(text: str) -> bool:
    """Return whether a text is a host's name or IP address, and perhaps a port, and no more."""
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        is_host = bool(bracket) and "%" not in address and _is_address(IPv6Address, address)
    else:
        name, colon, port = text.partition(":")
        rest, is_host = colon + port, _is_name(name)
    is_port = _PORT.fullmatch(rest) is not None and 0 < int(rest[1:]) < 1 << 16
    return is_host and (not rest or is_port)


def _is_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    if len(text) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        return False
    # 2130706433, 127.1 and 0x7f.1 are addresses as well, though not to everybody.
    return not _NUMBER.fullmatch(labels[-1]) or _is_address(IPv4Address, text)


def _is_address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()  # it reads a file of certificates, once


def _head(target: Target, num_bytes: int, headers: Mapping[str, str]) -> bytes:
    lines = {
        "Host": target.authority,
        "Content-Type": "application/json",
        "Content-Length": str(num_bytes),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode("ascii")


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    status = 0
    while status < 200:  # what comes before only says that an answer will
        first, *lines = (await _until(reader, b"\r\n\r\n")).rstrip().split(b"\r\n")
        found = _STATUS.match(first)
        if found is None:
            raise ConnectionError("the answer is not HTTP")
        status = int(found[1])
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    return Answer(status, {name.lower(): value.strip() for name, _, value in pairs}, reader)


async def _until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    try:
        return await reader.readuntil(end)
    except asyncio.IncompleteReadError:
        raise ConnectionError("the answer broke off") from None
    except asyncio.LimitOverrunError:
        raise ConnectionError("the answer has a line that is too long") from None
