"""The wire: what is said arrives, in whatever pieces, and nothing else is taken."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno import errors
from inferno.client import wire
from inferno.errors import EngineDied, NeverFits
from inferno.options import EngineOptions
from inferno.requests import FinishReason, Request, SamplingParams, TokenEvent, TokenLogprobs

LOGPROBS = (TokenLogprobs(3, float("-inf"), ((3, -0.5), (4, -1.5))),)
EVENTS = [
    TokenEvent("a", 1, (2**31 - 1, 0), LOGPROBS, (None, *LOGPROBS), 16, FinishReason.STOP, 0),
    TokenEvent("ü", error="no"),
]
REQUEST = Request(
    request_id="a",
    prompt_token_ids=(1, 2, 3),
    params=SamplingParams(
        logit_bias={5: -1.5}, allowed_token_ids=[1, 5], stop="end", seed=-(2**63), min_p=0.25
    ),
    eos_token_ids=frozenset({1, 2}),
    bad_words_ids=((1, 2), (3,)),
    priority=-3,
    cache_salt="key",
    reads_prefix_cache=False,
)


@given(st.lists(st.integers(1, 40), max_size=200))
def test_messages_arrive_whole_in_whatever_pieces(lengths: list[int]) -> None:
    writer, reader = wire.FrameWriter(), wire.FrameReader()
    sent: list[wire.FromEngine] = [wire.Events(EVENTS), wire.Pong(3, True), wire.Events([])]
    stream = b"".join(map(writer.frame, sent))
    received = []
    for length in (*lengths, len(stream)):
        piece, stream = stream[:length], stream[length:]
        received += [wire.decode_from_engine(body) for body in reader.feed(piece)]
    assert received == sent


@pytest.mark.parametrize(
    "message",
    [
        wire.Add(REQUEST),
        wire.Start(EngineOptions(model=Path("/with/\udcff"), num_blocks=5), 2),
        wire.Abort("a", None),
        wire.Ping(),
    ],
)
def test_messages_to_the_engine_arrive_as_they_were(message: wire.ToEngine) -> None:
    assert receive(wire.FrameWriter().frame(message)) == [message]


def test_what_cannot_be_said_is_refused_and_leaves_no_gap() -> None:
    writer, reader = wire.FrameWriter(), wire.FrameReader()
    for request_id, priority in (("\ud800", 0), ("a", 2**70)):
        request = Request(
            request_id=request_id,
            prompt_token_ids=(1,),
            params=SamplingParams(),
            priority=priority,
        )
        with pytest.raises(ValueError):
            writer.frame(wire.Add(request))
    assert len(reader.feed(writer.frame(wire.Ping()))) == 1


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<II", 2**32 - 1, 0),  # giant
        struct.pack("<II", wire.MAX_FRAME_BYTES + 1, 0),
        struct.pack("<II", 1, 1) + b"\xc0",  # out of turn
        struct.pack("<II", 1, 0) + b"\xc0",
        struct.pack("<II", 0, 0),
        struct.pack("<II", 2, 0) + b"\x91\x63",  # no such message
        struct.pack("<II", 9, 0) + pickle.dumps(0, protocol=2).ljust(9, b"."),
    ],
)
def test_nonsense_is_refused(frame: bytes) -> None:
    with pytest.raises(wire.BrokenWire):
        receive(frame)


def receive(frame: bytes) -> list[wire.ToEngine]:
    return [wire.decode_to_engine(body) for body in wire.FrameReader().feed(frame)]


def test_a_request_is_checked_again_on_arrival() -> None:
    frame = wire.FrameWriter().frame(wire.Add(REQUEST))
    with pytest.raises(wire.BrokenWire, match="min_p"):
        receive(frame.replace(struct.pack(">d", 0.25), struct.pack(">d", 9)))


def test_errors_keep_type_and_parameter() -> None:
    problem = wire.problem_of(NeverFits("too long \ud800", param="prompt")).error()
    assert type(problem) is NeverFits
    assert (str(problem), problem.param) == ("too long ?", "prompt")
    assert type(wire.problem_of(ValueError("x")).error()) is EngineDied
    assert type(wire.Problem("__doc__", "x", None).error()) is EngineDied
    assert wire.Problem("ConfigError", "x", None).error().__class__ is errors.ConfigError


def test_a_parent_needs_no_torch() -> None:
    program = (
        "import sys, inferno.client.process, inferno.client.scripted; "
        "sys.exit(any(name.split('.')[0] in ('torch', 'numpy') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
