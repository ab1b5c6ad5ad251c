"""The metrics: exact, bounded, and as Prometheus reads them."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from inferno.client.scripted import Answer, Script
from inferno.server.http.metrics import Histogram
from tests.server.http.direct import JSON, LOCAL, ask, asked, in_middleware


def _samples(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {
        sample.name + repr(sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_names_are_ours_and_counts_are_exact() -> None:
    script = Script(answers=(Answer(token_ids=(1, 2, 3), num_cached_tokens=1),))
    middleware = in_middleware(script=script)
    for _ in range(5):
        ask(middleware, "POST", "/v1/completions", body=[b'{"prompt": 4}'])
    ask(middleware, "POST", "/v1/completions", [LOCAL], [b"{}"])
    ask(middleware, "GET", "/nowhere")
    samples = _samples(ask(middleware, "GET", "/metrics").body.decode())
    assert all(name.startswith("inferno_") for name in samples)
    expected = {
        "inferno_prompt_tokens_total[]": 20,
        "inferno_prompt_tokens_cached_total[]": 5,
        "inferno_generation_tokens_total[]": 15,
        "inferno_requests_finished_total[('reason', 'stop')]": 5,
        "inferno_rejected_total[('reason', 'content_type')]": 1,
        "inferno_time_to_first_token_seconds_count[]": 5,
        "inferno_inter_token_latency_seconds_count[]": 10,
        "inferno_request_queue_time_seconds_count[]": 5,
        "inferno_e2e_request_latency_seconds_count[]": 5,
        "inferno_http_requests_open[]": 0,
        "inferno_queued_tokens[]": 0,
        "inferno_kv_blocks[('state', 'used')]": 0,
        "inferno_swapped_kv_blocks[]": 0,
        "inferno_preemptions_total[('kind', 'recompute')]": 0,
        "inferno_preemptions_total[('kind', 'swap')]": 0,
        "inferno_engine_state[('state', 'ready')]": 1,
        "inferno_engine_state[('state', 'failed')]": 0,
        "inferno_engine_step_seconds_count[]": 15,
        "inferno_engine_restarts_total[]": 0,
    }
    assert {name: samples[name] for name in expected} == expected


def test_no_client_makes_new_series() -> None:
    middleware = in_middleware(host="0.0.0.0")

    async def noise(number: int) -> None:
        headers = [(b"host", b"h%d" % number), (b"x-request-id", b"%d" % number), JSON]
        method = "GET" if number % 2 else f"M{number}"
        await asked(middleware, method, f"/{number}", headers, [b"{}"])
        await asked(
            middleware, "POST", "/v1/completions", [LOCAL, (b"content-type", b"x%d" % number)]
        )

    async def run(numbers: range) -> None:
        for number in numbers:
            await noise(number)

    asyncio.run(run(range(20)))
    before = set(_samples(ask(middleware, "GET", "/metrics").body.decode()))
    before |= {
        "inferno_http_requests_total[('method', 'GET'), ('route', '/metrics'), ('status', '200')]"
    }
    asyncio.run(run(range(20, 1000)))
    text = ask(middleware, "GET", "/metrics").body.decode()
    assert set(_samples(text)) == before


def test_a_histogram_counts_values_at_or_below_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value, times in ((0.5, 1), (1.0, 2), (1.5, 3), (9.0, 4)):
        histogram.observe(value, times)
    assert histogram.counts == [3, 3, 4]
    assert histogram.total == 0.5 + 2 + 4.5 + 36
