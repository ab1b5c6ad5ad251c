"""A benchmark's job and its findings: plain data that two processes exchange as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The kind of a measurement: latency of one request, or throughput of many."""

    LATENCY = "latency"  # one request at a time
    THROUGHPUT = "throughput"  # all requests at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measurement: requests of random token ids, all of equal length.

    model         the model's folder.
    options       the keyword arguments of LLM.
    num_requests  in a run; one for latency.
    """

    kind: Kind
    model: str
    options: Mapping[str, Any]
    num_requests: int
    prompt_tokens: int
    max_tokens: int
    num_runs: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A pass over all requests, in seconds: to the first token (of one request), and in all.

    num_proposed    tokens that speculation proposed; num_accepted: those that the model drew.
    """

    first_token: float
    total: float
    num_proposed: int = 0
    num_accepted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a benchmark: a model as it lay in memory, and what computed with it.

    weights  how they are stored, in words.
    gpu      the name of the device, where that is one.
    """

    num_parameters: int
    weights: str
    weights_bytes: int
    dtype: str
    quantize: str
    kv_dtype: str
    kernels: str
    num_threads: int
    cpu: str | None
    device: str
    gpu: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The least operations and bytes that a run needs; roofline.py says what counts."""

    prefill_operations: float
    decode_operations: float
    decode_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The speeds of this machine at its best, a second: bytes read, operations of `arithmetic`."""

    bandwidth: float
    peak: float
    arithmetic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of a job; cold_start: seconds from starting a process to its first token."""

    cold_start: float
    runs: tuple[Run, ...]
    subject: Subject
    work: Work
    limits: Limits
