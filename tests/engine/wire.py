"""Plans as bytes, as a process of its own would get them: nothing of them is shared with others."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec

from inferno.engine.execution.executor import Executor, LaunchedStep
from inferno.engine.step_plan import StepPlan


def over_the_wire(plan: StepPlan) -> StepPlan:
    """Return the plan as somebody reads it who has nothing but its bytes."""
    return _DECODER.decode(encode(plan))


def encode(plan: StepPlan) -> bytes:
    return _ENCODER.encode(plan)


class WiredExecutor:
    """An executor that gets plans as bytes; all else it is asked is answered as by the other."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def launch(self, plan: StepPlan) -> LaunchedStep:
        return self._executor.launch(over_the_wire(plan))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def _plain(value: object) -> object:
    """What msgspec doesn't know: the mapping of SamplingParams that can't be written to."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError(f"a plan holds a {type(value).__name__}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER = msgspec.msgpack.Decoder(StepPlan)
