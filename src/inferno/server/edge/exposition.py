"""The metrics as Prometheus reads them: names, labels and help for what others count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

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
from inferno.server.edge.admission import Admission
from inferno.server.edge.ledger import Histogram, Ledger
from inferno.server.edge.process_facts import num_open_files, rss_bytes

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Exposition(Collector):
    """Asks engine, admission and ledger when it is scraped; keeps nothing itself."""

    def __init__(self, engine: ServedEngine, admission: Admission, ledger: Ledger) -> None:
        self._engine = engine
        self._admission = admission
        self._ledger = ledger
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
        ledger = self._ledger
        states = {"running": stats.running, "waiting": stats.waiting}
        yield _gauge("requests", "Samples in the engine, by state.", "state", states)
        yield _gauge("http_requests_open", "HTTP requests under way.", value=ledger.num_open)
        queued = self._admission.num_queued_tokens
        yield _gauge("queued_tokens", "Prompt tokens of requests without a token.", value=queued)
        http = CounterMetricFamily(
            "inferno_http_requests", "HTTP requests.", labels=("route", "method", "status")
        )
        for (route, method, status), count in ledger.http.items():
            http.add_metric((route, method, str(status)), count)
        yield http
        finished = "Samples that ended, by finish reason."
        yield _counter("requests_finished", finished, "reason", ledger.finished)
        aborts = "Requests that were ended before they were done, by why."
        yield _counter("aborts", aborts, "reason", ledger.aborted)
        rejected = "Requests that were refused before they ran, by why."
        yield _counter("rejected", rejected, "reason", ledger.rejected)

    def _tokens(self) -> Iterator[Metric]:
        ledger = self._ledger
        yield _counter("prompt_tokens", "Prompt tokens.", value=ledger.prompt_tokens)
        cached = "Prompt tokens that the prefix cache spared."
        yield _counter("prompt_tokens_cached", cached, value=ledger.cached_tokens)
        yield _counter("generation_tokens", "New tokens.", value=ledger.generated_tokens)

    def _times(self) -> Iterator[Metric]:
        ledger = self._ledger
        first = "From a request's arrival to its first token."
        yield _histogram("time_to_first_token_seconds", first, ledger.first_token)
        queued = "From a request's arrival at the engine to its first step."
        yield _histogram("request_queue_time_seconds", queued, ledger.queued)
        between = "Between a sample's tokens."
        yield _histogram("inter_token_latency_seconds", between, ledger.between_tokens)
        whole = "From a generating request's arrival to its end."
        yield _histogram("e2e_request_latency_seconds", whole, ledger.whole)

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
        yield _gauge("batch_size", "Samples in the last step.", value=stats.batch_size)
        preempted = "Samples that lost their place for a while."
        yield _counter("preemptions", preempted, value=stats.preemptions)
        restarts = "Engines that died or hung, and were replaced."
        yield _counter("engine_restarts", restarts, value=stats.restarts)

    def _memory(self, stats: EngineStats) -> Iterator[Metric]:
        blocks = {
            "free": stats.blocks_free,
            "used": stats.blocks_used,
            "cached": stats.blocks_cached,
        }
        yield _gauge("kv_blocks", "Blocks of the KV cache, by state.", "state", blocks)
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
