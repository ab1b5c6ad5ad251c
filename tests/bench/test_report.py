"""Figures from known times: what a person would work out with a pencil."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferno.bench.measurement import Findings, Job, Kind, Limits, Run, Subject, Work
from inferno.bench.report import as_json, as_table, figures

LIMITS = Limits(bandwidth=40e9, peak=800e9, arithmetic="bfloat16")
SUBJECT = Subject(
    num_parameters=600_000_000,
    weights="bfloat16, experts in mxfp4",
    weights_bytes=1_200_000_000,
    dtype="bfloat16",
    quantize="none",
    kv_dtype="bfloat16",
    kernels="avx512_bf16",
    num_threads=2,
    cpu="A Processor",
    device="cpu",
    gpu=None,
)
WORK = Work(prefill_operations=400e9, decode_operations=80e9, decode_bytes=120e9)


def job_of(kind: Kind, num_requests: int) -> Job:
    return Job(
        kind=kind,
        model="/models/it",
        options={"load_format": "dummy"},
        num_requests=num_requests,
        prompt_tokens=512,
        max_tokens=101,
        num_runs=3,
        seed=7,
    )


def found_of(*runs: Run) -> Findings:
    return Findings(cold_start=3.0, runs=runs, subject=SUBJECT, work=WORK, limits=LIMITS)


ONE = found_of(
    Run(first_token=1.0, total=5.0),
    Run(first_token=9.0, total=99.0),
    Run(first_token=0.5, total=4.5),
)


def test_latency_is_the_median_run_beside_the_limits() -> None:
    assert figures(job_of(Kind.LATENCY, 1), ONE) == {
        "cold_start_seconds": 3.0,
        "first_token_seconds": 1.0,
        "decode_tokens_per_second": 100 / 4,
        "prefill_share_of_peak": pytest.approx(0.5),
        "decode_share_of_bandwidth": pytest.approx(0.75),
    }


def test_throughput_counts_prompts_and_outputs() -> None:
    found = figures(job_of(Kind.THROUGHPUT, 10), ONE)
    assert found["total_seconds"] == 5.0
    assert found["requests_per_second"] == 2.0
    assert found["prompt_tokens_per_second"] == 1024
    assert found["output_tokens_per_second"] == 202
    assert found["share_of_peak"] == pytest.approx(480 / 800 / 5)
    assert found["share_of_bandwidth"] == pytest.approx(120 / 40 / 5)
    # Prompts at the peak, and then outputs at the slower of the two limits.
    assert found["least_seconds"] == pytest.approx(400 / 800 + 120 / 40)
    assert found["share_of_least"] == pytest.approx(3.5 / 5)


@pytest.mark.parametrize("kind", Kind)
def test_a_report_says_under_which_conditions(kind: Kind) -> None:
    job = job_of(kind, 1)
    table = as_table(job, ONE, "a/[model]", width=100, is_terminal=False)
    for said in (
        *("a/[model]", "600.0 million parameters", "random weights"),
        *("bfloat16, experts in mxfp4, 1.20 GB", "computed in bfloat16"),
        *("avx512_bf16", "threads: 2", "A Processor", "512 tokens in, 101 out", "seed 7"),
        *("40.0 GB/s", "800 GOP/s"),
    ):
        assert said in table
    assert table.isascii()
    shown = as_json(job, ONE, "a/[model]")
    assert shown["model"] == "a/[model]"
    assert (shown["kernels"], shown["num_threads"], shown["cpu"]) == (
        "avx512_bf16",
        2,
        "A Processor",
    )
    assert shown["limits"] == {
        "bytes_per_second": 40e9,
        "operations_per_second": 800e9,
        "arithmetic": "bfloat16",
    }


def test_a_terminal_gets_a_drawn_table() -> None:
    table = as_table(job_of(Kind.LATENCY, 1), ONE, "it", width=100, is_terminal=True)
    assert "─" in table
    assert "\x1b" in table


def test_a_gpu_is_named_beside_the_processor() -> None:
    found = found_of(Run(first_token=1.0, total=5.0))
    table = as_table(job_of(Kind.LATENCY, 1), found, "it", width=80, is_terminal=False)
    assert "gpu" not in table
    on_gpu = replace(found, subject=replace(SUBJECT, device="cuda:1", gpu="A GPU"))
    table = as_table(job_of(Kind.LATENCY, 1), on_gpu, "it", width=80, is_terminal=False)
    assert "gpu      cuda:1, A GPU" in table
    shown = as_json(job_of(Kind.LATENCY, 1), on_gpu, "it")
    assert (shown["device"], shown["gpu"]) == ("cuda:1", "A GPU")
