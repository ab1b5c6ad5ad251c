"""Capture a forward pass as a CUDA graph, which is then launched as a whole.

All graphs of an engine draw their memory from one pool, for they run one after the other: a result
lasts until the next graph is replayed. Graphs read and write the addresses of the capture, so
inputs must lie in the same places (see PinnedUpload).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inferno.ops.captured_graph import KernelContext, NoRoomForGraph, NotCapturable
from inferno.out_of_memory import is_out_of_memory

# PyTorch allows one capture at a time in a process, which may have engines in several threads.
_capturing = threading.Lock()


class CudaGraph:
    """A captured forward pass, and the tensor that has its result after each replay."""

    def __init__(self, graph: torch.cuda.CUDAGraph, result: Tensor) -> None:
        self._graph = graph
        self._result = result

    def replay(self) -> Tensor:
        self._graph.replay()
        return self._result


class CudaCapture:
    """A recorder of forward passes that share a pool of memory."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        # Results of a shape lie in one place: kept for each graph, they would add up.
        self._results: dict[tuple[torch.Size, torch.dtype], Tensor] = {}

    def capture(self, function: Callable[[], Tensor]) -> tuple[CudaGraph, Tensor]:
        """Run a function once to compile its kernels, perhaps twice, then capture it."""
        # On the stream in force: cuBLAS keeps memory for each that it meets, 32 MiB on SM90.
        first = function()
        try:
            if self._stream is None:  # PyTorch's own is of the GPU on which it captured first
                self._stream = torch.cuda.Stream()
            graph = torch.cuda.CUDAGraph()
            key = first.shape, first.dtype
            result = self._results.setdefault(key, torch.empty_like(first))
            with (
                _capturing,
                # PyTorch leaves its stream in force where a capture can't be ended.
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(
                    graph,
                    pool=self._pool,
                    stream=self._stream,
                    # Otherwise what other threads ask of CUDA meanwhile would fail, and break it.
                    capture_error_mode="thread_local",
                ),
            ):
                result.copy_(function())
            captured = CudaGraph(graph, result)
            replayed = captured.replay()  # the driver may take the graph's memory only now
        except RuntimeError as problem:
            if is_out_of_memory(problem):
                raise NoRoomForGraph from problem
            if "captur" not in str(problem):  # the driver's words for a call that may not be there
                raise
            raise NotCapturable(f"the forward pass waits for the device: {problem}") from problem
        self._pool = graph.pool()
        return captured, replayed


def refuse_capture(reason: str) -> None:
    """Raise NotCapturable while a graph is captured, which would repeat this step's numbers.

    reason  names what is computed from numbers that the host has read.
    """
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise NotCapturable(reason)


def graph_capture(context: KernelContext) -> CudaCapture:
    return CudaCapture()
