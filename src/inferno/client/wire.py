"""Define the messages between a client and an engine in another process, and their bytes.

A frame is the body's length and its number, counted from 0 in each direction, both 32 bits,
little-endian; then the body: one message in MessagePack, decoded by its type and nothing else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from inferno import errors
from inferno.client import EngineFacts, EngineStats
from inferno.errors import EngineDied, InfernoError, InvalidRequest
from inferno.options import EngineOptions
from inferno.requests import Request, TokenEvent

# A prompt's log-probabilities are the largest message: engine/process/serve.py bounds them.
MAX_FRAME_BYTES = 256 * 2**20
MAX_MESSAGE_LENGTH = 10_000
_HEADER = struct.Struct("<II")
_SERIALS = 2**32

T = TypeVar("T")


class BrokenWire(Exception):
    """The error of received bytes that are no frame or message."""


class Problem(Struct, frozen=True, array_like=True):
    """A message with an error of errors.py, by name."""

    kind: str
    message: str
    param: str | None

    def error(self) -> InfernoError:
        """Return the error of that name; EngineDied if errors.py has no such name."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, InfernoError)):
            return EngineDied(f"{self.kind}: {self.message}")
        if issubclass(kind, InvalidRequest):
            return kind(self.message, param=self.param)
        return kind(self.message)


def problem_of(error: Exception) -> Problem:
    """Return an error as a message, ready to be sent."""
    message = str(error)[:MAX_MESSAGE_LENGTH].encode(errors="replace").decode()
    return Problem(type(error).__name__, message, getattr(error, "param", None))


# To the engine


class Start(Struct, frozen=True, array_like=True, tag=0):
    """The first message, sent once: load a model.

    num_starts      how many engines the parent started before.
    """

    options: EngineOptions
    num_starts: int


class Add(Struct, frozen=True, array_like=True, tag=1):
    """The message to begin a request; its events or a Refused answer it."""

    request: Request


class Abort(Struct, frozen=True, array_like=True, tag=2):
    """The message to end a request, or one of its sequences."""

    request_id: str
    sequence_index: int | None


class Ping(Struct, frozen=True, array_like=True, tag=3):
    """The question how far the engine is; a Pong answers it."""


class Shutdown(Struct, frozen=True, array_like=True, tag=4):
    """The message to end all requests as aborted, report that, and exit."""


# From the engine


class Loading(Struct, frozen=True, array_like=True, tag=0):
    """A message of progress while loading: bytes of weights, or recorded steps, done and in all.

    stage   of loading: weights or graphs.
    """

    done: int
    total: int
    stage: str = "weights"


class Loaded(Struct, frozen=True, array_like=True, tag=1):
    """The engine's message that it is loaded and takes requests from now on."""

    facts: EngineFacts


class NotLoaded(Struct, frozen=True, array_like=True, tag=2):
    """The engine's last message, where the model can't be loaded."""

    problem: Problem


class Refused(Struct, frozen=True, array_like=True, tag=3):
    """The message that a request was refused."""

    request_id: str
    problem: Problem


class Events(Struct, frozen=True, array_like=True, tag=4):
    """A message with events of an engine's step, all or some."""

    events: list[TokenEvent]


class Stats(Struct, frozen=True, array_like=True, tag=5):
    """A snapshot of the engine's counters."""

    stats: EngineStats


class Pong(Struct, frozen=True, array_like=True, tag=6):
    """The engine's progress: turns of its loop or pieces of loading, and whether it waits.

    expected_seconds    the expected time of the step under way; None if unknown.
    """

    num_turns: int
    is_idle: bool
    expected_seconds: float | None = None


class Dying(Struct, frozen=True, array_like=True, tag=7):
    """The engine's last message: why it ends on its own."""

    reason: str


ToEngine = Start | Add | Abort | Ping | Shutdown
FromEngine = Loading | Loaded | NotLoaded | Refused | Events | Stats | Pong | Dying


class FrameWriter:
    """A writer of frames, made of messages in the order of sending."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder(enc_hook=_to_plain).encode
        self._serial = 0

    def frame(self, message: ToEngine | FromEngine) -> bytes:
        """Return a message's frame; raise ValueError if it is too large or can't be encoded."""
        try:
            body = self._encode(message)
        except OverflowError as problem:
            raise ValueError(str(problem)) from None
        if len(body) > MAX_FRAME_BYTES:
            raise ValueError(f"it takes {len(body):,} bytes, at most {MAX_FRAME_BYTES:,} are sent")
        header = _HEADER.pack(len(body), self._serial % _SERIALS)
        self._serial += 1
        return header + body


class FrameReader:
    """A reader of frames, whose bytes may come in any pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._serial = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies of whole frames; raise BrokenWire for one too long or out of order."""
        self._buffer += data
        bodies, start = [], 0
        while (body := start + _HEADER.size) <= len(self._buffer):
            length, serial = _HEADER.unpack_from(self._buffer, start)
            if length > MAX_FRAME_BYTES or serial != self._serial % _SERIALS:
                raise self._broken(length, serial)
            if body + length > len(self._buffer):
                break
            start = body + length
            bodies.append(bytes(self._buffer[body:start]))
            self._serial += 1
        del self._buffer[:start]
        return bodies

    def _broken(self, length: int, serial: int) -> BrokenWire:
        if length > MAX_FRAME_BYTES:
            most = f"at most {MAX_FRAME_BYTES:,} are taken"
            return BrokenWire(f"a frame of {length:,} bytes, {most}")
        return BrokenWire(f"frame {serial} where number {self._serial} was due")


def decode_to_engine(body: bytes) -> ToEngine:
    """Decode a message to the engine; raise BrokenWire if the bytes are none."""
    return _decode(_TO_ENGINE, body)


def decode_from_engine(body: bytes) -> FromEngine:
    """Decode a message from the engine; raise BrokenWire if the bytes are none."""
    return _decode(_FROM_ENGINE, body)


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError, InvalidRequest) as problem:
        raise BrokenWire(f"no message: {problem}") from None


def _to_plain(value: object) -> object:
    """Turn a path into bytes, or a mapping into a dict: MessagePack has no other types for them."""
    if isinstance(value, Path):
        return os.fsencode(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not sent")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, bytes):
        return Path(os.fsdecode(value))
    raise TypeError(f"{kind.__name__} is not taken")


_TO_ENGINE: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(
    ToEngine, dec_hook=_from_plain
)
_FROM_ENGINE: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
