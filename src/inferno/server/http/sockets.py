"""Bind the sockets that the server listens on, before anything expensive is begun."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from inferno.errors import InvalidRequest
from inferno.server.settings import ServerSettings

_BACKLOG = 1024
_SPARE_FILES = 80
_UNSENT_BYTES = (
    256 << 10
)  # in the kernel for a client that doesn't read; else it grows to megabytes
_UDS_MODE = 0o660


@contextlib.contextmanager
def listening(settings: ServerSettings) -> Iterator[list[socket.socket]]:
    """Yield bound sockets; raise InvalidRequest, with the port, where binding fails."""
    if settings.uds is not None:
        sockets = [_bind_unix(settings.uds)]
    else:
        sockets = _bind_all(settings.host, settings.port)
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()
        if settings.uds is not None:
            settings.uds.unlink(missing_ok=True)


def max_connections(asked: int) -> int:
    """Return how many sockets there may be: as asked, or fewer where open files are scarce."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = asked + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(1, min(asked, soft - _SPARE_FILES))
    return asked


def _bind_all(host: str, port: int) -> list[socket.socket]:
    """Bind one socket for each address of the host; a free port is the same for all."""
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for family, address in _addresses(host, port):
            port = sockets[0].getsockname()[1] if sockets else port
            sockets.append(undo.enter_context(_bind(family, (address, port))))
        undo.pop_all()
    return sockets


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise InvalidRequest(
            f"--host {host} is no name or address of this machine: {problem.strerror}",
            param="host",
        ) from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind(family: int, address: tuple[str, int]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        _prepare(bound)
    except OSError as problem:
        bound.close()
        raise _cannot_bind(address, problem) from None
    return bound


def _prepare(bound: socket.socket) -> None:
    """Set the options that connections inherit, and listen: only then is the port taken."""
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT_BYTES)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # finds clients that vanished
    bound.listen(_BACKLOG)


def _cannot_bind(address: tuple[str, int], problem: OSError) -> InvalidRequest:
    host, port = address
    if problem.errno == errno.EADDRINUSE:
        message = f"port {port} on {host} is in use; choose another with --port, or stop its owner"
    else:
        message = (
            f"can't listen on port {port} of {host}: {problem.strerror}; see --host and --port"
        )
    return InvalidRequest(message)


def _bind_unix(path: Path) -> socket.socket:
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
        path.chmod(_UDS_MODE)  # before anybody can connect
        _prepare(bound)
    except OSError as problem:
        bound.close()
        reason = problem.strerror or problem
        raise InvalidRequest(f"--uds {path} can't be used: {reason}") from None
    return bound


def _remove_stale(path: Path) -> None:
    """Clear away the socket of a server that is gone; anything else is somebody's."""
    with contextlib.suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InvalidRequest(f"--uds {path} exists and is not a socket", param="uds")
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise InvalidRequest(f"--uds {path} is in use by another server")
