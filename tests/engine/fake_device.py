"""A device that computes on its own, as a GPU does, made of the CPU: it checks what nobody may do.

Its kernels are the CPU's, so its bits must be those of the CPU. But numbers come and go as on a
GPU: results are poison until somebody waits for them, memory that is being copied may not be
written, and whoever reads the device's memory past the download makes the host wait, which is
counted as a mistake where a step is to be free of it. Captured graphs are functions that are called
again, which read the memory that they were captured with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from inferno import ops
from inferno.ops import KernelContext, NotCapturable

POISON = -(2**62) + 1234567

# Operators that need the device's numbers on the host before they can go on.
_WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")


@dataclass
class Stream:
    """What was asked of the device and isn't known to have ended, in order."""

    under_way: deque[Callable[[], None]] = field(default_factory=deque)
    num_asked: int = 0
    num_ended: int = 0

    def ask(self, end: Callable[[], None]) -> int:
        """Ask for something, of which `end` is to be called when the host sees that it ended."""
        self.under_way.append(end)
        self.num_asked += 1
        return self.num_asked

    def wait(self, number: int) -> None:
        """Wait until so many things have ended."""
        while self.num_ended < number:
            self.under_way.popleft()()
            self.num_ended += 1


@dataclass
class Device:
    """The counts of what happened, and the backend that stands in for the CPU's."""

    stream: Stream = field(default_factory=Stream)
    num_waits: int = 0
    num_early_waits: int = 0  # of the host for memory that it is to write
    num_copies: int = 0
    num_captures: int = 0
    num_replays: int = 0
    is_capturing: bool = False
    hidden_waits: list[str] = field(default_factory=list)  # which the emulated GPU sees
    _forbidden: list[tuple[Any, str, Any]] = field(default_factory=list)  # while it is watched

    def __getattr__(self, name: str) -> Any:
        return getattr(_CPU, name)

    __name__ = "fake"

    def is_asynchronous(self) -> bool:
        return True

    def new_upload(self, num_values: int) -> FakeUpload:
        return FakeUpload(self, num_values)

    def new_download(self, num_values: int) -> FakeDownload:
        return FakeDownload(self, num_values)

    def graph_capture(self, context: KernelContext) -> FakeCapture:
        return FakeCapture(self)

    def penalize(self, *args: Any) -> None:
        """Penalise as the reference does, which a kernel stands in for on a real device."""
        with self._looking_away():
            _CPU.penalize(*args)

    def sent(self, values: Any, device: torch.device) -> Tensor:
        """Copy numbers of the host, which nobody waits for on a real device."""
        with self._looking_away():
            sent_N: Tensor = _CPU.sent(values, device)
        return sent_N

    @contextmanager
    def _looking_away(self) -> Iterator[None]:
        with _disable_current_modes(), pytest.MonkeyPatch.context() as patch:
            for owner, name, function in self._forbidden:
                patch.setattr(owner, name, function)
            yield

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise where a read of the device's memory makes the host wait."""
        with pytest.MonkeyPatch.context() as patch:
            names = ("item", "tolist", "cpu", "__array__", "__bool__", "__int__", "__float__")
            owners: dict[str, Any] = dict.fromkeys(names, torch.Tensor)
            owners |= dict.fromkeys(("tensor", "as_tensor", "from_numpy"), torch)
            self._forbidden = [
                (owner, name, getattr(owner, name)) for name, owner in owners.items()
            ]
            for owner, name, _ in self._forbidden:
                patch.setattr(owner, name, _forbidden(f"{owner.__name__}.{name}"))
            with _NoWaiting():  # type: ignore[no-untyped-call]
                yield
            self._forbidden = []


class FakeUpload:
    """Two buffers of the host, each of which may be written when its last copy has ended."""

    def __init__(self, device: Device, num_values: int) -> None:
        self._device = device
        self.device_N = torch.zeros(num_values, dtype=torch.int64)
        self._buffers = [torch.zeros(num_values, dtype=torch.int64) for _ in range(2)]
        self._copies = [0, 0]
        self._turn = 0

    def begin(self) -> Tensor:
        self._turn = 1 - self._turn
        if self._device.stream.num_ended < self._copies[self._turn]:
            self._device.num_early_waits += 1  # a real one waits for an event here
            self._device.stream.wait(self._copies[self._turn])
        return self._buffers[self._turn]

    def send(self, num_values: int) -> None:
        source_N = self._buffers[self._turn]
        sent_N = source_N[:num_values].clone()
        self.device_N[:num_values] = sent_N
        self._device.num_copies += 1

        def end() -> None:
            unchanged = bool((source_N[:num_values].numpy() == sent_N.numpy()).all())
            assert unchanged, "memory was written while it was being copied to the device"

        self._copies[self._turn] = self._device.stream.ask(end)


class FakeDownload:
    """Two buffers of the host, in which results stand when somebody has waited for them."""

    def __init__(self, device: Device, num_values: int) -> None:
        self._device = device
        self._buffers = [torch.zeros(num_values, dtype=torch.int64) for _ in range(2)]
        self._turn = 0

    def fetch(self, values_N: Tensor) -> FakeFetched:
        self._turn = 1 - self._turn
        target_N = self._buffers[self._turn][: len(values_N)]
        target_N.fill_(POISON)
        sent_N = values_N.clone()

        def end() -> None:
            target_N.copy_(sent_N)

        return FakeFetched(self._device, target_N, self._device.stream.ask(end))


@dataclass
class FakeFetched:
    device: Device
    target_N: Tensor
    number: int

    def wait(self) -> Tensor:
        self.device.num_waits += 1
        self.device.stream.wait(self.number)
        return self.target_N


class FakeCapture:
    """Captures functions, whose results lie in the same memory each time, and are spoilt by others.

    Results last until the next graph is replayed, and not a moment longer.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._latest: Tensor | None = None

    def capture(self, function: Callable[[], Tensor]) -> tuple[FakeGraph, Tensor]:
        function()  # a real one warms up
        self._device.is_capturing = True
        try:
            with _NoWaiting():  # type: ignore[no-untyped-call]
                result = function().clone()
        except WaitedFor as problem:
            raise NotCapturable(str(problem)) from problem
        finally:
            self._device.is_capturing = False
        self._device.num_captures += 1
        graph = FakeGraph(self, function, result)
        self.hand_over(result)
        return graph, result

    def hand_over(self, result: Tensor) -> None:
        """Spoil what the last replay has left."""
        if self._latest is not None and self._latest is not result:
            self._latest.fill_(float("nan"))
        self._latest = result


class FakeGraph:
    def __init__(
        self, capture: FakeCapture, function: Callable[[], Tensor], result: Tensor
    ) -> None:
        self._capture = capture
        self._function = function
        self._result = result

    def replay(self) -> Tensor:
        self._capture._device.num_replays += 1
        self._result.copy_(self._function())
        self._capture.hand_over(self._result)
        return self._result


class WaitedFor(Exception):
    """Raised where the host would have to wait for the device."""


class _NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name.startswith(_WAITING):
            raise WaitedFor(f"the host waits for {name}")
        return func(*args, **(kwargs or {}))


def _forbidden(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise WaitedFor(f"the host waits in {name}")

    return refuse


_CPU = ops.BACKENDS["cpu"]


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Engines that are built in this test compute on such a device."""
    device = Device()
    monkeypatch.setitem(ops.BACKENDS, "cpu", device)
    return device
