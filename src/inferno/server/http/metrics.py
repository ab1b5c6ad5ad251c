"""Count what the server does since its start, and give all metrics as Prometheus reads them."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from inferno.client import EngineState, EngineStats, ServedEngine

# In seconds: first token, between tokens, waiting and whole requests.
FIRST_TOKEN_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0),
)
BETWEEN_TOKENS_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BOUNDS = (
    *(0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0),
    *(20.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0),
)

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_T = TypeVar("_T")
_SELF = Path("/proc/self")


class Histogram:
    """A histogram: how many values fell between each two bounds, and the sum of all values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last is for what is above them all
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class ServerMetrics:
    """Every count since the start; only PrometheusExposition gives them names.

    num_open    HTTP requests that endpoints are answering now.
    http        answers by (route, method, status).
    rejected    requests that were rejected before they ran, by error code.
    finished    sequences by finish reason.
    aborted     requests that ended early, by reason.
    """

    def __init__(self) -> None:
        self.num_open = 0
        self.http: Counter[tuple[str, str, int]] = Counter()
        self.rejected: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.time_to_first_token = Histogram(FIRST_TOKEN_BOUNDS)
        self.inter_token_latency = Histogram(BETWEEN_TOKENS_BOUNDS)
        self.queue_time = Histogram(REQUEST_BOUNDS)
        self.request_latency = Histogram(REQUEST_BOUNDS)


class PrometheusExposition(Collector):
    """A collector that reads the engine and the counts when it is scraped.

    num_queued_tokens   returns the number of prompt tokens of requests that have no new token yet.
    """

    def __init__(
        self, engine: ServedEngine, metrics: ServerMetrics, num_queued_tokens: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._num_queued_tokens = num_queued_tokens
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return all metrics, in Prometheus's text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        return []  # so that registering doesn't scrape

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        yield from self._requests(stats)
        yield from self._tokens()
        yield from self._times()
        yield from self._engine_steps(stats)
        yield from self._memory(stats)

    def _requests(self, stats: EngineStats) -> Iterator[Metric]:
        metrics = self._metrics
        states = {"running": stats.running, "waiting": stats.waiting}
        yield _gauge("requests", "Sequences in the engine, by state.", "state", states)
        yield _gauge("http_requests_open", "HTTP requests under way.", value=metrics.num_open)
        queued = self._num_queued_tokens()
        yield _gauge("queued_tokens", "Prompt tokens of requests without a token.", value=queued)
        http = CounterMetricFamily(
            "inferno_http_requests", "HTTP requests.", labels=("route", "method", "status")
        )
        for (route, method, status), count in metrics.http.items():
            http.add_metric((route, method, str(status)), count)
        yield http
        finished = "Sequences that ended, by finish reason."
        yield _counter("requests_finished", finished, "reason", metrics.finished)
        aborts = "Requests that were ended before they were done, by why."
        yield _counter("aborts", aborts, "reason", metrics.aborted)
        rejected = "Requests that were refused before they ran, by why."
        yield _counter("rejected", rejected, "reason", metrics.rejected)

    def _tokens(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield _counter("prompt_tokens", "Prompt tokens.", value=metrics.prompt_tokens)
        cached = "Prompt tokens that the prefix cache spared."
        yield _counter("prompt_tokens_cached", cached, value=metrics.cached_tokens)
        yield _counter("generation_tokens", "New tokens.", value=metrics.generated_tokens)

    def _times(self) -> Iterator[Metric]:
        metrics = self._metrics
        first = "From a request's arrival to its first token."
        yield _histogram("time_to_first_token_seconds", first, metrics.time_to_first_token)
        queued = "From a request's arrival at the engine to its first step."
        yield _histogram("request_queue_time_seconds", queued, metrics.queue_time)
        between = "Between a sequence's tokens."
        yield _histogram("inter_token_latency_seconds", between, metrics.inter_token_latency)
        whole = "From a generating request's arrival to its end."
        yield _histogram("e2e_request_latency_seconds", whole, metrics.request_latency)

    def _engine_steps(self, stats: EngineStats) -> Iterator[Metric]:
        states = {state.value: int(self._engine.state is state) for state in EngineState}
        yield _gauge("engine_state", "1 for the state that the engine is in.", "state", states)
        yield _counter("engine_steps", "Steps of the engine.", value=stats.steps)
        yield SummaryMetricFamily(
            "inferno_engine_step_seconds",
            "What a step takes.",
            count_value=stats.steps,
            sum_value=stats.step_seconds,
        )
        yield _gauge("batch_size", "Sequences in the last step.", value=stats.batch_size)
        preempted = "Sequences that lost their place for a while, by how they came back."
        kinds = {"recompute": stats.preemptions - stats.swaps, "swap": stats.swaps}
        yield _counter("preemptions", preempted, "kind", kinds)
        proposed = "Tokens proposed by speculative decoding, by who proposed them."
        yield _counter("proposed_tokens", proposed, "proposer", stats.proposed_tokens)
        accepted = "Proposed tokens that were what the model drew."
        yield _counter("accepted_tokens", accepted, "proposer", stats.accepted_tokens)
        restarts = "Engines that died or hung, and were replaced."
        yield _counter("engine_restarts", restarts, value=stats.restarts)

    def _memory(self, stats: EngineStats) -> Iterator[Metric]:
        blocks = {
            "free": stats.blocks_free,
            "used": stats.blocks_used,
            "cached": stats.blocks_cached,
        }
        yield _gauge("kv_blocks", "Blocks of the KV cache, by state.", "state", blocks)
        swapped = "Blocks of preempted sequences in host memory."
        yield _gauge("swapped_kv_blocks", swapped, value=stats.blocks_swapped)
        use = "Bytes on the engine's device, by use."
        yield _gauge("device_memory_bytes", use, "use", stats.device_bytes)
        rss = {"engine": stats.rss_bytes, "server": rss_bytes() or 0}
        yield _gauge("process_resident_bytes", "Memory of a process.", "process", rss)
        yield _gauge("open_files", "Files and sockets of the server.", value=num_open_files() or 0)


def _gauge(
    name: str,
    text: str,
    label: str | None = None,
    values: Mapping[str, float] | None = None,
    *,
    value: float = 0,
) -> Metric:
    family = GaugeMetricFamily(f"inferno_{name}", text, labels=[label] if label else None)
    _fill(family, values, value)
    return family


def _counter(
    name: str,
    text: str,
    label: str | None = None,
    values: Mapping[str, float] | None = None,
    *,
    value: float = 0,
) -> Metric:
    family = CounterMetricFamily(f"inferno_{name}", text, labels=[label] if label else None)
    _fill(family, values, value)
    return family


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily,
    values: Mapping[str, float] | None,
    value: float,
) -> None:
    """Add one sample without a label, or one for each of the label's values."""
    if values is None:
        family.add_metric([], value)
    else:
        for label, labelled in values.items():
            family.add_metric([label], labelled)


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    bounds = (*(str(bound) for bound in histogram.bounds), "+Inf")
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    return HistogramMetricFamily(
        f"inferno_{name}", text, buckets=buckets, sum_value=histogram.total
    )


def process_facts() -> dict[str, object]:
    """Return facts of this process for debugging; values are None where the system has none."""
    return {
        "pid": os.getpid(),
        "rss_bytes": rss_bytes(),
        "open_files": num_open_files(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "children": _or_none(_children),
    }


def rss_bytes() -> int | None:
    return _or_none(
        lambda: int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    )


def num_open_files() -> int | None:
    return _or_none(lambda: len(os.listdir("/dev/fd")) - 1)  # listing it opens one


def _children() -> list[int]:
    tasks = (_SELF / "task").iterdir()
    lists = [(task / "children").read_text().split() for task in tasks]
    return sorted(int(child) for children in lists for child in children)


def _or_none(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except OSError:
        return None
