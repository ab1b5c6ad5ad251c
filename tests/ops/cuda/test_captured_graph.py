"""How passes are captured, told by a play of PyTorch's graphs: what runs where, how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor

from inferno import ops
from inferno.ops import NotCapturable
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
    def graph(self, graph: FakeGraph, pool: object = None, stream: object = None) -> Iterator[None]:
        graph.given = pool
        self.graphs.append(graph)
        self.streams.append(stream)
        self.is_capturing = True
        try:
            yield
        finally:
            self.is_capturing = False

    def other_stream(self, _: object) -> None:
        raise AssertionError("cuBLAS would keep memory for one more stream")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    played = Cuda()
    fakes: dict[str, object] = {
        "CUDAGraph": FakeGraph,
        "graph": played.graph,
        "Stream": object,
        "stream": played.other_stream,
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
        (torch.cuda.OutOfMemoryError("while capturing, memory ran out"), torch.OutOfMemoryError),
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
