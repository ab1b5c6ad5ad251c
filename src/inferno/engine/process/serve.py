"""Run an engine in a process of its own, which serves the parent at the other end of a socket.

The command is `python -m inferno.engine.process.serve FD`, where FD is the socket's number.

When the parent ends, at any time, this process ends at once.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import torch

from inferno import ops
from inferno.client import EngineFacts, EngineStats
from inferno.client.wire import (
    MAX_FRAME_BYTES,
    Abort,
    Add,
    BrokenWire,
    Dying,
    Events,
    FrameReader,
    FrameWriter,
    FromEngine,
    Loaded,
    Loading,
    NotLoaded,
    Ping,
    Pong,
    Refused,
    Shutdown,
    Start,
    Stats,
    ToEngine,
    decode_to_engine,
    problem_of,
)
from inferno.engine.build import build_engine
from inferno.engine.engine import Engine
from inferno.engine.execution.device import choose_attention
from inferno.engine.process.fault_injection import VARIABLE, Faults
from inferno.engine.process.fingerprint import fingerprint
from inferno.engine.process.own_process import (
    die_with_parent,
    give_way,
    ignore_signals,
    num_threads,
    rss_bytes,
    share_one_heap,
)
from inferno.engine.sampling.constraints import Constraint
from inferno.engine.warm_up import telling_of_first_kernels
from inferno.errors import InfernoError, InvalidRequest
from inferno.gguf.file import held_headers
from inferno.limited.pool import NUM_CHILDREN
from inferno.machine import own_memory, return_free_memory
from inferno.options import EngineOptions
from inferno.out_of_memory import is_out_of_memory, out_of_memory
from inferno.plan.memory import SERVER_CHILD_BYTES, SERVER_GROWTH_BYTES
from inferno.requests import Request, TokenEvent

IDLE_STATS_SECONDS = 1.0
_TIDY_SECONDS = 0.25  # of idleness, before what steps have left is seen to
BUSY_STATS_SECONDS = 0.5  # each time costs the parent as much as some tokens
_KERNEL_SECONDS = 5.0  # between log lines of kernels that are made ready
_PROGRESS_SECONDS = 0.1
# A full collection of garbage comes after so many times 7,000 new objects: between steps a choice,
# when idle as many as Python itself takes.
_FULL_COLLECTIONS, _FEW_COLLECTIONS = 100, 10
_RECEIVE_BYTES = 1 << 16
# The most bytes of an entry of prompt log-probabilities, and of each of its likeliest tokens.
_ENTRY_BYTES, _TOP_BYTES = 48, 16

_logger = logging.getLogger("inferno")


def main() -> int:
    """Serve the parent at the other end of the socket whose number is on the command line."""
    die_with_parent()
    ignore_signals()
    share_one_heap()
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    try:
        start = link.messages.get()
        assert isinstance(start, Start), "the parent says first what to load"
        return serve(start, link)
    except Exception as problem:
        _logger.exception("the engine stops")
        link.send(Dying(str(problem) if isinstance(problem, InfernoError) else repr(problem)))
        return 1


def serve(start: Start, link: Link) -> int:
    """Load a model and serve it until the parent says to stop; return an exit code."""
    try:
        link.faults = faults = Faults(os.environ.get(VARIABLE, ""), num_starts=start.num_starts)
        faults.visit("load")
        if torch.device(start.options.device).type == "cpu":
            give_way()
        progress = LoadProgress(link)
        server_bytes = (own_memory(os.getppid()) or 0) + SERVER_GROWTH_BYTES
        server_bytes += 2 * NUM_CHILDREN * SERVER_CHILD_BYTES
        with (
            held_headers(start.options.model),
            telling_of_first_kernels(start.options.device, progress.note_kernel),
        ):
            engine = build_engine(
                start.options, progress, others=server_bytes, captures=progress.note_capture
            )
            facts = facts_of(engine, start.options, progress.beat)
    except (InfernoError, OSError) as problem:
        link.send(NotLoaded(problem_of(problem)))
        return 1
    except (MemoryError, RuntimeError) as problem:
        if not is_out_of_memory(problem):
            raise
        link.send(NotLoaded(problem_of(out_of_memory(problem))))
        return 1
    gc.collect()
    # To look through all of the heap for garbage holds up steps, for 0.2 s where many grammars are
    # kept: what is there now is left out, and the rest has its turn after more objects than usual.
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _FULL_COLLECTIONS)
    progress.end()
    link.send(Loaded(facts))
    link.expected_seconds = lambda: engine.expected_step_seconds
    with telling_of_first_kernels(start.options.device, progress.note_kernel):
        Service(engine, link, faults, facts).run()
    engine.close()
    return 0


class Link:
    """The socket to the parent, read by a thread of its own, which also answers pings."""

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)
        self.messages: SimpleQueue[ToEngine | Constrained] = SimpleQueue()
        self.num_turns = 0
        self.is_idle = False
        self.expected_seconds: Callable[[], float | None] = lambda: None  # of the step under way
        self.faults = Faults("")
        self._connection = connection
        self._writer = FrameWriter()
        self._sending = threading.Lock()
        threading.Thread(target=self._read, name="inferno-link", daemon=True).start()

    def send(self, *messages: FromEngine) -> None:
        """Send messages, which wake the parent once; wait while the parent doesn't read."""
        with self._sending:
            frames = [self._writer.frame(message) for message in messages]
            self._connection.sendall(
                b"".join([frame for frame in frames if not self.faults.visit("ipc.send")])
            )

    def _read(self) -> None:
        frames = FrameReader()
        try:
            while data := self._connection.recv(_RECEIVE_BYTES):
                for body in frames.feed(data):
                    self._take(decode_to_engine(body))
        except BrokenWire as problem:
            _logger.error("the engine's process was sent nonsense: %s", problem)
        except OSError:
            pass  # the parent is gone
        finally:
            os._exit(1)  # in the midst of a step or of loading: nobody is left to hear of it

    def _take(self, message: ToEngine) -> None:
        if isinstance(message, Ping):
            is_idle = self.is_idle and self.messages.empty()
            self.send(Pong(self.num_turns, is_idle, self.expected_seconds()))
        else:
            self.messages.put(message)


class LoadProgress:
    """A reporter to the parent of how many bytes are loaded, at most ten times a second.

    It also counts signs of progress, by which the link tells whether loading goes on.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._next = 0.0
        self._done = 0
        self._next_kernel = 0.0
        self._is_loaded = False

    def __call__(self, done: int, total: int) -> None:
        self.beat()
        is_last = done == total != self._done
        if (now := time.monotonic()) >= self._next or is_last:
            self._link.send(Loading(done, total))
            self._next = now + _PROGRESS_SECONDS
        self._done = done

    def note_capture(self, done: int, total: int) -> None:
        """Tell the parent how many of the steps are recorded that come before any request."""
        self.beat()
        if (now := time.monotonic()) >= self._next or done == total:
            self._link.send(Loading(done, total, "graphs"))
            self._next = now + _PROGRESS_SECONDS

    def note_kernel(self, name: str, count: int) -> None:
        """Tell the parent that loading goes on: a kernel is compiled, which takes long.

        name, count     the kernel's name, and how many have been compiled.
        """
        now = time.monotonic()
        if self._is_loaded:
            _logger.info("a step waits for %s, which `inferno warmup` would make ready ahead", name)
        elif count == 1:
            _logger.info("making kernels ready, which takes long when a GPU meets them first")
            self._next_kernel = now + _KERNEL_SECONDS
        elif now >= self._next_kernel:
            _logger.info("%d kernels were made ready, now %s", count - 1, name)
            self._next_kernel = now + _KERNEL_SECONDS
        _logger.debug("kernel %d: %s", count, name)
        self.beat()

    def end(self) -> None:
        """Note that the model is loaded: from now on requests wait for kernels, not the start."""
        self._is_loaded = True

    def beat(self) -> None:
        """Tell the parent that loading goes on, though no bytes were counted."""
        self._link.num_turns += 1


@dataclass(frozen=True, slots=True, eq=False)
class Constrained:
    """A message to the own loop: the constraints of a request are made, or can't be.

    aborted     sequences of the request that the parent ended meanwhile.
    """

    request: Request
    making: Future[Sequence[Constraint]]
    aborted: list[int] = field(default_factory=list)


class Service:
    """The engine's loop: take the parent's messages, run a step, send its events.

    A request with a new shape waits for its constraints first; other requests don't wait for it.
    """

    def __init__(self, engine: Engine, link: Link, faults: Faults, facts: EngineFacts) -> None:
        self._engine = engine
        self._link = link
        self._faults = faults
        self._device_bytes = {"weights": facts.weight_bytes, "kv_cache": facts.cache_bytes}
        self._device = torch.device(facts.device)
        self._constraining: dict[str, Constrained] = {}
        self._is_open = True
        self._next_stats = 0.0
        self._num_steps = self._num_steps_tidied = 0
        self._step_seconds = 0.0
        self._num_prompt_tokens = self._num_cached_tokens = self._num_generated_tokens = 0

    def run(self) -> None:
        """Serve requests until the parent says Shutdown."""
        while self._is_open:
            if not self._engine.has_work:
                self._wait()
            while not self._link.messages.empty():
                self._handle(self._link.messages.get())
            if self._engine.has_work:
                self._step()
            self._link.num_turns += 1

    def _wait(self) -> None:
        """Wait for a message, telling now and then that there is none."""
        message = None
        self._link.is_idle = True
        while message is None:
            self._link.send(self._next_snapshot())
            is_tidy = self._num_steps == self._num_steps_tidied
            try:
                seconds = IDLE_STATS_SECONDS if is_tidy else _TIDY_SECONDS
                message = self._link.messages.get(timeout=seconds)
            except Empty:
                self._tidy()
        self._link.is_idle = False
        self._handle(message)

    def _tidy(self) -> None:
        """Let go of the memory that the steps since the last time have left free."""
        if self._num_steps != self._num_steps_tidied:
            self._num_steps_tidied = self._num_steps
            if gc.get_count()[2] >= _FEW_COLLECTIONS:
                gc.collect()
            self._engine.release_memory()
            return_free_memory()

    def _handle(self, message: ToEngine | Constrained) -> None:
        match message:
            case Add(request):
                self._take(request)
            case Constrained() as waited:
                self._go_on(waited)
            case Abort(request_id, sequence_index):
                self._abort(request_id, sequence_index)
            case Shutdown():
                self._is_open = False

    def _take(self, request: Request) -> None:
        try:
            _check_size(request)
            making = self._engine.start_constraints(request)
        except InfernoError as problem:
            self._refuse(request, problem)
            return
        if making is None:
            self._add(request, None)
            return
        waiting = Constrained(request, making)
        self._constraining[request.request_id] = waiting
        if making.done():
            self._go_on(waiting)
        else:
            making.add_done_callback(lambda _: self._link.messages.put(waiting))

    def _go_on(self, waited: Constrained) -> None:
        """Add a request whose constraints are made, unless it was aborted meanwhile."""
        request_id = waited.request.request_id
        if self._constraining.get(request_id) is not waited:
            return
        del self._constraining[request_id]
        try:
            constraints = waited.making.result()
        except InfernoError as problem:
            self._refuse(waited.request, problem)
            return
        self._add(waited.request, constraints)
        for index in waited.aborted:
            self._engine.abort(request_id, index)

    def _add(self, request: Request, constraints: Sequence[Constraint] | None) -> None:
        try:
            self._engine.add_request(request, constraints)
        except InvalidRequest as problem:
            self._refuse(request, problem)
        else:
            self._num_prompt_tokens += len(request.prompt_token_ids)

    def _refuse(self, request: Request, problem: InfernoError) -> None:
        self._link.send(Refused(request.request_id, problem_of(problem)))

    def _abort(self, request_id: str, sequence_index: int | None) -> None:
        waiting = self._constraining.get(request_id)
        if waiting is None:
            self._engine.abort(request_id, sequence_index)
        elif sequence_index is None:
            del self._constraining[request_id]
            waiting.making.cancel()
        else:
            waiting.aborted.append(sequence_index)

    def _step(self) -> None:
        self._faults.visit("step")
        began = time.perf_counter()
        events = self._engine.step()
        self._step_seconds += time.perf_counter() - began
        self._num_steps += 1
        self._tell(events)

    def _tell(self, events: list[TokenEvent]) -> None:
        for event in events:
            self._num_generated_tokens += len(event.token_ids)
            if event.finish_reason is not None and event.sequence_index == 0:
                self._num_cached_tokens += event.num_cached_tokens
        for event in events:
            if event.prompt_logprobs is not None:  # one alone fits into a frame
                self._link.send(Events([event]))
        messages: list[FromEngine] = []
        if small := [event for event in events if event.prompt_logprobs is None]:
            messages.append(Events(small))
        if time.monotonic() >= self._next_stats:
            messages.append(self._next_snapshot())
        if messages:
            self._link.send(*messages)

    def _next_snapshot(self) -> Stats:
        self._next_stats = time.monotonic() + BUSY_STATS_SECONDS
        return Stats(self._stats())

    def _stats(self) -> EngineStats:
        now = self._engine.occupancy
        return EngineStats(
            steps=self._num_steps,
            step_seconds=self._step_seconds,
            preemptions=now.num_preemptions,
            swaps=now.num_swaps,
            prompt_tokens=self._num_prompt_tokens,
            cached_tokens=self._num_cached_tokens,
            generated_tokens=self._num_generated_tokens,
            proposed_tokens={each.name: each.num_proposed for each in now.proposals},
            accepted_tokens={each.name: each.num_stood for each in now.proposals},
            running=now.num_running,
            waiting=now.num_waiting
            + sum(each.request.params.n for each in self._constraining.values()),
            blocks_free=now.blocks_free,
            blocks_used=now.blocks_used,
            blocks_cached=now.blocks_cached,
            blocks_swapped=now.blocks_swapped,
            batch_size=now.batch_size,
            rss_bytes=rss_bytes(),
            num_threads=num_threads(),
            device_bytes=self._device_bytes
            | {"proposers": now.proposer_bytes}
            | _allocated(self._device),
        )


def facts_of(engine: Engine, options: EngineOptions, beat: Callable[[], None]) -> EngineFacts:
    """Return the facts of an engine, built with these options, that its parent must know.

    beat    called between pieces of the weights, which are read again for the fingerprint.
    """
    footprint, occupancy = engine.footprint, engine.occupancy
    return EngineFacts(
        vocab_size=engine.vocab_size,
        max_model_len=engine.max_model_len,
        device=footprint.device,
        dtype=footprint.dtype,
        kv_dtype=footprint.kv_dtype,
        attention=ops.describe_attention(
            torch.device(footprint.device),
            choose_attention(options),
            getattr(torch, footprint.dtype),
            getattr(torch, footprint.kv_dtype),
            head_size=footprint.head_size,
            block_size=options.block_size,
        ),
        fingerprint=fingerprint(options, footprint.dtype, beat),
        weight_bytes=footprint.weights_bytes,
        cache_bytes=footprint.kv_cache_bytes,
        num_blocks=occupancy.blocks_free,
        block_size=options.block_size,
        max_num_seqs=options.max_num_seqs,
    )


def _check_size(request: Request) -> None:
    """Refuse what could not be sent back."""
    num_top = request.params.prompt_logprobs
    if num_top is None:
        return
    most = MAX_FRAME_BYTES // (_ENTRY_BYTES + _TOP_BYTES * num_top)
    if len(request.prompt_token_ids) > most:
        raise InvalidRequest(
            f"prompt_logprobs={num_top} is for prompts of up to {most:,} tokens, not "
            f"{len(request.prompt_token_ids):,}; ask for fewer, or for none",
            param="prompt_logprobs",
        )


def _allocated(device: torch.device) -> dict[str, int]:
    """Return the bytes that PyTorch has taken of a device's own memory."""
    if device.type == "cuda":
        return {
            "allocated": torch.cuda.memory_allocated(device),
            "reserved": torch.cuda.memory_reserved(device),
        }
    if device.type == "mps":
        return {"allocated": torch.mps.current_allocated_memory()}
    return {}


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)  # nothing is left to tidy up that the kernel doesn't
