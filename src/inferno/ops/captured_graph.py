"""An engine's context for its kernels, and captured forward passes, whatever the device.

A captured pass is a CUDA graph, or a list of kernel calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor


class KernelContext(Protocol):
    """The context of one engine's ops: a number of threads, their memory, and memory for results.

    Ops called in a thread that has entered the context use it. One thread at a time may enter.
    """

    def __enter__(self) -> object:
        """Have the ops that this thread calls use the context."""

    def __exit__(self, *problem: object) -> None:
        """Have the ops that this thread calls use the context that was in use before."""

    def release_memory(self) -> None:
        """Give memory of results that nobody holds back to the system; call it between steps."""


class NotCapturable(Exception):
    """An exception: the function to be captured computes something by other means than kernels."""


class NoRoomForGraph(Exception):
    """An exception: memory ran out for a graph itself, where the function had run without one."""


class CapturedGraph(Protocol):
    """A captured function, which reads and writes the same memory each time it runs."""

    def replay(self) -> Tensor:
        """Run the captured function again on what its input memory holds now.

        The result is valid until a graph of the same capture is replayed or made.
        """


class GraphCapture(Protocol):
    """A recorder of functions that run one after the other and share their working memory."""

    def capture(self, function: Callable[[], Tensor]) -> tuple[CapturedGraph, Tensor]:
        """Run a function, and return it as a graph with its first result.

        Raises NotCapturable, NoRoomForGraph, and what the function itself raises.
        """
