"""How passes are captured, told by a play of PyTorch's graphs: what runs where, how often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.ops import NoRoomForGraph, NotCapturable
from inferno.ops.cuda.captured_graph import CudaCapture, graph_capture, refuse_capture


class FakeGraph:
    """A graph that repeats nothing, of the pool that it was captured with or of a new one."""

    def __init__(self) -> None:
        self.given: object = None
        self.num_replays = 0

    def pool(self) -> object:
        return self.given or self

    def replay(self) -> None:
        self.num_replays += 1


class Cuda:
    """What torch.cuda is asked for while passes are captured."""

    def __init__(self) -> None:
        self.graphs: list[FakeGraph] = []
        self.streams: list[object] = []
        self.is_capturing = False

    @contextmanager
    def graph(
        self,
        graph: FakeGraph,
        pool: object = None,
        stream: object = None,
        capture_error_mode: str = "global",
    ) -> Iterator[None]:
        assert capture_error_mode == "thread_local", "other threads would break it"
        assert not self.is_capturing, "PyTorch captures one graph at a time"
        graph.given = pool
        self.graphs.append(graph)
        self.streams.append(stream)
        self.is_capturing = True
        try:
            yield
        finally:
            self.is_capturing = False

    def stream(self, stream: object) -> object:
        assert stream is self, "cuBLAS would keep memory for one more stream"
        return nullcontext()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    played = Cuda()
    fakes: dict[str, object] = {
        "CUDAGraph": FakeGraph,
        "graph": played.graph,
        "Stream": object,
        "stream": played.stream,
        "current_stream": lambda: played,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: played.is_capturing,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return played


@pytest.fixture
def capture() -> CudaCapture:
    return graph_capture(ops.kernel_context(1))


def test_a_pass_runs_on_the_stream_in_force_and_then_is_captured(
    cuda: Cuda, capture: CudaCapture
) -> None:
    were_capturing = []

    def function() -> Tensor:
        were_capturing.append(cuda.is_capturing)
        return torch.ones(2)

    _, result = capture.capture(function)
    assert were_capturing == [False, True]
    assert result.tolist() == [1, 1]
    assert cuda.graphs[0].num_replays == 1


def test_graphs_share_a_pool_and_those_of_a_shape_their_result(
    cuda: Cuda, capture: CudaCapture
) -> None:
    results = [capture.capture(partial(torch.ones, n))[1] for n in (2, 3, 2)]
    assert results[0] is results[2]
    assert results[0] is not results[1]
    first, *others = cuda.graphs
    assert [graph.given for graph in others] == [first, first]


def test_each_engine_captures_on_a_stream_of_its_own_gpu(cuda: Cuda) -> None:
    captures = [graph_capture(ops.kernel_context(1)) for _ in range(2)]
    for capture in (*captures, *captures):
        capture.capture(lambda: torch.ones(2))
    first, second, *again = cuda.streams
    assert None not in (first, second)
    assert first is not second
    assert again == [first, second]


def test_what_needs_the_hosts_numbers_is_not_captured(cuda: Cuda, capture: CudaCapture) -> None:
    def function() -> Tensor:
        refuse_capture("it counts")
        return torch.ones(2)

    function()  # nothing is being captured
    with pytest.raises(NotCapturable, match="it counts"):
        capture.capture(function)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (RuntimeError("operation not permitted when stream is capturing"), NotCapturable),
        (RuntimeError("an illegal memory access was encountered"), RuntimeError),
        (torch.cuda.OutOfMemoryError("CUDA out of memory, while capturing"), NoRoomForGraph),
        (torch.AcceleratorError("CUDA error: out of memory"), NoRoomForGraph),
    ],
)
def test_a_wait_in_a_capture_is_told_from_other_errors(
    cuda: Cuda, capture: CudaCapture, problem: Exception, expected: type[Exception]
) -> None:
    def function() -> Tensor:
        if cuda.is_capturing:
            raise problem
        return torch.ones(2)

    raises: Callable[..., pytest.RaisesExc[Exception]] = pytest.raises
    with raises(expected):
        capture.capture(function)


def test_a_pass_without_memory_is_no_fault_of_its_graph(cuda: Cuda, capture: CudaCapture) -> None:
    def function() -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        capture.capture(function)


def test_a_graph_may_lack_memory_when_it_first_runs(
    cuda: Cuda, capture: CudaCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replay(_: FakeGraph) -> None:
        raise torch.AcceleratorError("CUDA error: out of memory")

    monkeypatch.setattr(FakeGraph, "replay", replay)
    with pytest.raises(NoRoomForGraph):
        capture.capture(lambda: torch.ones(2))


def test_another_thread_captures_when_this_one_has_ended(cuda: Cuda) -> None:
    is_within, may_end = threading.Event(), threading.Event()

    def slow() -> Tensor:
        if cuda.is_capturing:
            is_within.set()
            may_end.wait()
        return torch.ones(2)

    def capture_slowly() -> None:
        graph_capture(ops.kernel_context(1)).capture(slow)

    ended = threading.Event()

    def capture_too() -> None:
        graph_capture(ops.kernel_context(1)).capture(lambda: torch.ones(3))
        ended.set()

    threads = [threading.Thread(target=one) for one in (capture_slowly, capture_too)]
    threads[0].start()
    is_within.wait()
    threads[1].start()
    assert not ended.wait(0.05)
    may_end.set()
    for thread in threads:
        thread.join()
    assert ended.is_set()
    assert [graph.num_replays for graph in cuda.graphs] == [1, 1]


def test_the_stream_in_force_stays_so_where_a_capture_can_not_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's own context of a capture, whose streams are names."""
    streams = iter(SimpleNamespace(name=name, device=0) for name in ("first", "of captures"))
    in_force = [next(streams)]

    class BrokenGraph(FakeGraph):
        def capture_begin(self, **_: object) -> None:
            pass

        def capture_end(self) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    fakes: dict[str, object] = {
        "CUDAGraph": BrokenGraph,
        "Stream": lambda: next(streams),
        "current_stream": lambda _=None: in_force[-1],
        "set_stream": in_force.append,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "_get_device_index": lambda *_: 0,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    with pytest.raises(NotCapturable, match="a previous error during capture"):
        graph_capture(ops.kernel_context(1)).capture(lambda: torch.ones(2))
    assert "of captures" in [stream.name for stream in in_force]
    assert in_force[-1].name == "first"
