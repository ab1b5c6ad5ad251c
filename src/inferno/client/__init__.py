"""Define EngineClient, all that others see of an engine, and ServedEngine, for servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from inferno.requests import Request, TokenEvent

__all__ = ["EngineClient", "EngineFacts", "EngineState", "EngineStats", "Recovery", "ServedEngine"]


class EngineState(StrEnum):
    """The states of a served engine; only a ready one takes requests."""

    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"  # it died or hung, and another one is being started
    FAILED = "failed"  # it could not be loaded, not even once; `problem` says why
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The progress of replacing an engine that died.

    num_failures    engines in a row that died before they were of use; 0 for the first death.
    seconds_left    until the next one is started; 0 while one is being started.
    """

    num_failures: int
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The properties of a loaded engine, none of which changes later.

    fingerprint     hex digits that change with the weights, with what they are computed in, and
                    with inferno's version.
    attention       what computes attention, in words; kv_dtype: what keys and values are kept in.
    weight_bytes, cache_bytes   what weights and KV cache take on the device.
    num_blocks      blocks of the KV cache, of block_size tokens each.
    """

    vocab_size: int
    max_model_len: int
    device: str
    dtype: str
    kv_dtype: str
    attention: str
    fingerprint: str
    weight_bytes: int
    cache_bytes: int
    num_blocks: int
    block_size: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot, at most a second old while the engine is idle; counters survive restarts.

    Counters: steps, step_seconds, preemptions, swaps (preemptions after which host memory
    kept what was computed), prompt_tokens (of requests that were accepted),
    cached_tokens (prompt tokens that the prefix cache spared, counted when a request ends),
    generated_tokens, restarts.
    proposed_tokens, accepted_tokens    of speculation, by proposer.
    running, waiting    sequences that have a place, and sequences that wait for one.
    blocks_used     held by somebody; blocks_cached: held by nobody, but reusable; blocks_swapped:
                    in host memory.
    batch_size      sequences in the last step.
    rss_bytes, num_threads  of the engine's process; device_bytes: by use, such as `weights`.
    """

    steps: int = 0
    step_seconds: float = 0.0
    preemptions: int = 0
    swaps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    restarts: int = 0
    proposed_tokens: Mapping[str, int] = field(default_factory=dict)
    accepted_tokens: Mapping[str, int] = field(default_factory=dict)
    running: int = 0
    waiting: int = 0
    blocks_free: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_swapped: int = 0
    batch_size: int = 0
    rss_bytes: int = 0
    num_threads: int = 0
    device_bytes: Mapping[str, int] = field(default_factory=dict)


class EngineClient(Protocol):
    """A running engine, wherever it runs."""

    @property
    def vocab_size(self) -> int:
        """Return the number of values in a row of the model's logits."""

    @property
    def max_model_len(self) -> int:
        """Return the context: prompt and new tokens together."""

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Yield a request's events until each of its sequences has ended.

        Leaving the generator early aborts the request. Raises InvalidRequest before the first
        event where the engine refuses the request, EngineDied where the engine is gone.
        """

    def abort(self, request_id: str, sequence_index: int) -> None:
        """End one sequence, as when a stop string was found; its last event says `aborted`."""

    async def close(self) -> None:
        """End open requests as aborted, and free the engine."""


class ServedEngine(EngineClient, Protocol):
    """An engine that a server starts, watches and shows.

    `vocab_size` and `max_model_len` raise EngineDied, as `generate` does, until it is loaded.
    """

    @property
    def state(self) -> EngineState:
        """Return the state of the engine: whether it takes requests, and if not, why."""

    @property
    def problem(self) -> str | None:
        """Return why the engine failed or restarts, in a sentence; None while nothing is wrong."""

    @property
    def recovery(self) -> Recovery | None:
        """Return the progress of replacing a dead engine; None unless RESTARTING."""

    @property
    def facts(self) -> EngineFacts | None:
        """Return the facts of the engine; None until it is loaded for the first time."""

    @property
    def progress(self) -> float:
        """Return how much of the present stage of loading is done, from 0 to 1."""

    @property
    def stage(self) -> str:
        """Return the stage of loading: weights, or graphs where steps are recorded."""

    def stats(self) -> EngineStats:
        """Return the newest statistics, without asking the engine."""

    async def start(self) -> None:
        """Begin to load, and return at once; call it from the event loop of later calls."""

    async def wait_ready(self) -> None:
        """Wait until the engine takes requests; raise the error of loading, or EngineDied."""
