"""What does it cost a process to pass a message on, if that is all it does? In CPU time of its own.

    python benchmarks/wakeup_floor.py [--messages N]

It is the least that a server can spend on a token that comes alone: it wakes, reads from its
engine's socket and writes to its client's, by bare calls of the system or through uvloop as the
server does. With `cold` the sender copies 64 MB between two messages, like an engine whose weights
pass through the caches that both share. The machine's neighbours move all of it by a third.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import uvloop

GAP = 0.004  # seconds from message to message
FROM_ENGINE, TO_CLIENT = b"x" * 100, b"y" * 250  # about what a token takes
MEGABYTE = 1 << 20
Passing = Callable[[socket.socket, socket.socket, int], None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1000)
    messages = parser.parse_args().messages
    for name, passing in (("system calls", pass_bare), ("uvloop", pass_by_uvloop)):
        for caches, copied in (("warm", 0), ("cold", 64 * MEGABYTE)):
            cost = measure(passing, messages, copied)
            print(f"{name:<14}{caches:<6}{cost:7.0f} us")


def measure(passing: Passing, messages: int, copied: int) -> float:
    """Microseconds of this process's main thread for a message."""
    engine, ours = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener, engine, ours:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = get_context("fork").Process(target=read_all, args=(client,))
        sender = get_context("fork").Process(target=send, args=(engine, messages, copied))
        reader.start()
        sender.start()
        client.close()
        engine.close()
        begun = own_time()
        passing(ours, accepted, messages * len(FROM_ENGINE))
        spent = own_time() - begun
        accepted.shutdown(socket.SHUT_RDWR)
        sender.join()
        reader.join()
        accepted.close()
    return spent / messages


def send(engine: socket.socket, messages: int, copied: int) -> None:
    memory = bytes(copied)
    for _ in range(messages):
        due = time.perf_counter() + GAP
        bytearray(memory)
        while time.perf_counter() < due:
            pass
        engine.send(FROM_ENGINE)


def read_all(client: socket.socket) -> None:
    while client.recv(1 << 16):
        pass


def pass_bare(engine: socket.socket, client: socket.socket, num_bytes: int) -> None:
    while num_bytes > 0:
        num_bytes -= len(engine.recv(1 << 16))
        client.send(TO_CLIENT)


def pass_by_uvloop(engine: socket.socket, client: socket.socket, num_bytes: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_pass_by_uvloop(engine, client, num_bytes))


async def _pass_by_uvloop(engine: socket.socket, client: socket.socket, num_bytes: int) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    out, _ = await loop.connect_accepted_socket(asyncio.Protocol, client.dup())

    class Passer(asyncio.Protocol):
        left = num_bytes

        def data_received(self, data: bytes) -> None:
            out.write(TO_CLIENT)
            self.left -= len(data)
            if self.left <= 0:
                done.set_result(None)

    await loop.create_unix_connection(Passer, sock=engine.dup())
    await done


def own_time() -> float:
    """Microseconds that this thread has run, the system's part included."""
    name = f"/proc/self/task/{threading.get_native_id()}/schedstat"
    return int(Path(name).read_text().split()[0]) / 1e3


if __name__ == "__main__":
    main()
