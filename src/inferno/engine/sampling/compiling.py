"""Compile grammars apart from the thread that runs steps, and keep them by their content.

A child process under limits of time and memory makes the grammar's source of a new shape (a
`GrammarSource`: the grammar in llguidance's notation, and as our rules), and compiles it as a
trial. The source is compiled again here, with the model's tokens, in a thread: a matcher can't be
handed from process to process. Requests of the same shape wait for one compilation, and nobody else
does.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from inferno.engine.sampling.constraints import Constraint
from inferno.errors import EngineDied, EngineError, InfernoError, InvalidRequest, Overloaded
from inferno.extras import install_command
from inferno.limited.pool import Bounds, ChildProcesses
from inferno.limited.process import Program
from inferno.requests import Request
from inferno.structured import LIBRARY, StructuredOutput, has_grammars

_PROGRAM = Program(
    script=Path(__file__).resolve().with_name("grammar_child.py"),
    modules=(LIBRARY, "inferno"),
    purpose="compiles grammars",
    error=EngineError,
)
# What most grammars take is half of the first. Those that take more are begun again where they
# leave streams the processor; together that is a second and a half beside streams.
_SHORT_CPU_SECONDS = 0.1
_CPU_SECONDS = 0.5
# What of that the library may take with a source, and then about as much in the engine's process.
_MATCHER_SECONDS = 0.3
_BOUNDS = Bounds(
    cpu_seconds=_CPU_SECONDS,
    # What takes little is given its time on a busy machine too; what takes long is not.
    wall_seconds=(3.0, 1.0),
    short_bytes=64 << 10,
    max_bytes=4 << 20,
    max_waiting=64,
    long_niceness=1,
)
_MOST_KEPT = 64  # compiled grammars
_MOST_KEPT_BYTES = 64 << 20
# What a structural tag has beside a schema that need not be kept to.
_NOT_STRICT = re.compile(r'"is_strict"\s*:\s*false')
# How long a thread may keep Python's lock that another one waits for: by itself, ten times as long.
_SWITCH_SECONDS = 0.0005

Made = Future[Sequence[Constraint]]


class Grammars(Protocol):
    """The protocol of a library that compiles grammars for a model's tokens; see `grammar.py`."""

    def prepare(self, eos_token_ids: frozenset[int]) -> None:
        """Read the model's tokens, which takes most of a second if they are many."""

    def begin(self, text: str, eos_token_ids: frozenset[int]) -> Any:
        """Return what `compile` takes as begun, of the text of a source that is yet to come."""

    def compile(
        self,
        source: str,
        eos_token_ids: frozenset[int],
        requests: Sequence[Request],
        begun: Any = None,
    ) -> Any:
        """Return a compiled grammar; raise InvalidRequest where it can't be honoured."""

    def num_bytes(self, matcher: Any) -> int:
        """Return about how much memory a compiled grammar takes by now."""

    def is_costly(self, matcher: Any, request: Request) -> bool:
        """Return whether `constrain` takes too long for the thread that runs steps.

        Then the compiler's thread does it, after all that takes less.
        """

    def constrain(self, matcher: Any, request: Request) -> Sequence[Constraint]:
        """Return the constraint of each sequence of a request with that grammar."""


@dataclass(frozen=True, slots=True)
class _Key:
    """The content of a grammar, as far as it matters to what is compiled."""

    structured: StructuredOutput
    eos_token_ids: frozenset[int]


@dataclass(slots=True, eq=False)
class _Compilation:
    """A grammar that is being compiled, and who waits for it."""

    key: _Key
    waiting: list[tuple[Request, Made]] = field(default_factory=list)
    source: Future[str] | None = None
    is_loose: bool = False  # schemas that need not be kept to are left out
    begun: Any = None  # what was compiled before the source was there


class ConstraintCompiler:
    """A `ConstraintMaker` for grammars.

    load    makes the library; called once, in a thread of the compiler, for the first request.
    """

    def __init__(self, load: Callable[[], Grammars]) -> None:
        self._load = load
        self._grammars: Grammars | None = None
        self._children = ChildProcesses(_PROGRAM, _Outcomes(), lambda: _BOUNDS)
        self._lock = threading.Lock()
        self._kept = KeptGrammars(_MOST_KEPT, _MOST_KEPT_BYTES)
        self._under_way: dict[_Key, _Compilation] = {}
        self._tasks: deque[Callable[[], None]] = deque()
        self._long_tasks: deque[Callable[[], None]] = deque()  # when there are no others
        self._thread: threading.Thread | None = None  # while there are any
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children that compile."""
        return self._children.pids

    def start(self, request: Request) -> Made:
        """Begin to make the constraints of a request, one for each sequence; return their future.

        Raises InvalidRequest, or the future does, where the request can't be honoured.
        """
        structured = request.params.structured
        assert structured is not None
        if not request.eos_token_ids:
            raise InvalidRequest(
                "structured needs a model that has an end-of-sequence token", param="structured"
            )
        if self._grammars is None and not has_grammars():
            raise InvalidRequest(
                "structured needs llguidance, which is not installed: "
                f"{install_command('structured')}",
                param="structured",
            )
        key = _Key(structured, request.eos_token_ids)
        made = Made()
        with self._lock:
            if self._is_closed:
                raise _closed()
            matcher = self._kept.find(key)
            is_new = matcher is None and key not in self._under_way
            if matcher is None:
                compilation = self._under_way.setdefault(key, _Compilation(key))
                compilation.waiting.append((request, made))
        if matcher is not None:
            self._make_soon(matcher, request, made)
            return made
        made.add_done_callback(lambda _: self._leave(compilation, made))
        if is_new:
            self._begin(compilation)
        return made

    def close(self) -> None:
        """End the children, and refuse all requests that wait."""
        with self._lock:
            self._is_closed = True
            compilations = list(self._under_way.values())
            self._under_way.clear()
            self._kept.clear()
        self._children.close()
        for compilation in compilations:
            _tell(compilation.waiting, _closed())

    def _begin(self, compilation: _Compilation) -> None:
        """Have a child compile it; meanwhile the library is loaded, if it isn't yet."""
        if self._grammars is None:
            self._hand_over(partial(self._prepare, compilation.key.eos_token_ids))
        asked = {
            "structured": asdict(compilation.key.structured),
            "matcher_seconds": _MATCHER_SECONDS,
            "is_loose": compilation.is_loose,
        }
        job = self._children.job(
            json.dumps(asked).encode(),
            _SHORT_CPU_SECONDS,
            on_part=lambda part: self._hand_over(partial(self._compile_ahead, compilation, part)),
        )
        compilation.source = job.future
        job.future.add_done_callback(lambda _: self._go_on(compilation))
        try:
            self._children.start(job)
        except InfernoError as problem:
            job.resolve(problem)

    def _compile_ahead(self, compilation: _Compilation, part: dict[str, Any]) -> None:
        """Compile what a child has found to take little, while it looks into the rest."""
        if compilation.waiting and not self._is_closed:
            # It is tried again with the source, and told then; a panic is no Exception.
            with suppress(BaseException):
                ends = compilation.key.eos_token_ids
                compilation.begun = self._library().begin(str(part["text"]), ends)

    def _go_on(self, compilation: _Compilation) -> None:
        """Have the thread finish it; where no child has compiled it, finish at once."""
        source = compilation.source
        assert source is not None, "it is there before its child begins"
        if source.cancelled() or source.exception() is not None:
            self._finish(compilation)
        else:
            self._hand_over(partial(self._finish, compilation))

    def _leave(self, compilation: _Compilation, made: Made) -> None:
        """Let a request that was cancelled go, and what is compiled for nobody any more."""
        if not made.cancelled():
            return
        with self._lock:
            compilation.waiting = [each for each in compilation.waiting if each[1] is not made]
            is_wanted = bool(compilation.waiting)
            if not is_wanted and self._under_way.get(compilation.key) is compilation:
                del self._under_way[compilation.key]
        if not is_wanted and compilation.source is not None:
            compilation.source.cancel()

    def _hand_over(self, task: Callable[[], None], *, is_long: bool = False) -> None:
        """Have the thread do it, which is there while there is anything to do.

        Where the system has no room for a thread, whoever asks does it.
        """
        with self._lock:
            (self._long_tasks if is_long else self._tasks).append(task)
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._work, name="inferno-grammars")
            try:
                self._thread.start()
                return
            except RuntimeError:
                pass
        self._work()

    def _work(self) -> None:
        """Do what there is to do; steps get Python's lock back sooner meanwhile."""
        with _switches.sooner():
            while True:
                with self._lock:
                    tasks = self._tasks or self._long_tasks
                    if not tasks:
                        self._thread = None
                        return
                    task = tasks.popleft()
                task()

    def _prepare(self, eos_token_ids: frozenset[int]) -> None:
        if not self._is_closed:
            # It is tried again for those who wait, and told to them; a panic is no Exception.
            with suppress(BaseException):
                self._library().prepare(eos_token_ids)

    def _library(self) -> Grammars:
        if self._grammars is None:
            self._grammars = self._load()
        return self._grammars

    def _finish(self, compilation: _Compilation) -> None:
        """Compile what a child has made, and give it to all who wait."""
        key = compilation.key
        assert compilation.source is not None
        matcher = None
        problem: InfernoError | None = None
        if not compilation.source.cancelled():
            try:
                source = compilation.source.result()
                requests = [request for request, _ in compilation.waiting]
                begun, compilation.begun = compilation.begun, None
                matcher = self._library().compile(source, key.eos_token_ids, requests, begun)
            except BaseException as raised:
                problem = _refusal(raised)
        if isinstance(problem, InvalidRequest) and self._is_to_be_loosened(compilation):
            compilation.is_loose = True
            self._begin(compilation)
            return
        with self._lock:
            if self._under_way.get(key) is compilation:
                del self._under_way[key]
            if matcher is not None and not self._is_closed:
                self._kept.keep(key, matcher, partial(self._library().num_bytes, matcher))
        if problem is not None:
            _tell(compilation.waiting, problem)
        elif matcher is not None:
            for request, made in compilation.waiting:
                self._make_soon(matcher, request, made)

    def _is_to_be_loosened(self, compilation: _Compilation) -> bool:
        """Return whether a shape may be compiled without schemas that need not be kept to.

        Of tools that are not strict, one that takes too much is no reason to refuse them all.
        """
        tag = compilation.key.structured.structural_tag
        if compilation.is_loose or tag is None or not _NOT_STRICT.search(str(tag)):
            return False
        with self._lock:
            return bool(compilation.waiting) and not self._is_closed

    def _make_soon(self, matcher: Any, request: Request, made: Made) -> None:
        """Make constraints now, or after all that takes less than they do."""
        with _telling(request, made):
            if self._library().is_costly(matcher, request):
                self._hand_over(partial(self._make, matcher, request, made), is_long=True)
            else:
                self._make(matcher, request, made)

    def _make(self, matcher: Any, request: Request, made: Made) -> None:
        if made.cancelled() or self._is_closed:
            _tell([(request, made)], _closed())
            return
        with _telling(request, made):
            constraints = self._library().constrain(matcher, request)
            with suppress(InvalidStateError):  # it was cancelled
                made.set_result(constraints)


class _Switches:
    """The time for which threads may keep Python's lock: one for a process, so all share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_threads = 0  # that want it short
        self._usual = 0.0

    @contextmanager
    def sooner(self) -> Iterator[None]:
        """Have threads give the lock to others sooner, until the last of those that ask is done."""
        with self._lock:
            if not self._num_threads:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SWITCH_SECONDS))
            self._num_threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_threads -= 1
                if not self._num_threads:
                    sys.setswitchinterval(self._usual)

    def forget_threads(self) -> None:
        """Begin anew in a forked child: whoever asked stayed with the parent."""
        if self._num_threads:
            sys.setswitchinterval(self._usual)
        self._lock, self._num_threads = threading.Lock(), 0


_switches = _Switches()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_switches.forget_threads)


class KeptGrammars:
    """A cache of the compiled grammars used last, by content, bounded by number and by bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Any, tuple[Any, Callable[[], int]]] = OrderedDict()

    def find(self, key: Any) -> Any:
        """Return the grammar kept under a key, or None; it counts as used now.

        A grammar that has grown too large by being used is forgotten: compiled anew, it is small.
        """
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        self._make_room()
        return self._kept[key][0] if key in self._kept else None

    def keep(self, key: Any, grammar: Any, num_bytes: Callable[[], int]) -> None:
        """Keep a grammar; those used longest ago are forgotten to make room.

        num_bytes   returns how much memory the grammar takes, which may grow.
        """
        if num_bytes() > self._most_bytes or key in self._kept:
            return
        self._kept[key] = grammar, num_bytes
        self._make_room()

    def _make_room(self) -> None:
        sizes = [size() for _, size in self._kept.values()]
        total = sum(sizes)
        for size in sizes:
            if len(self._kept) <= self._most and total <= self._most_bytes:
                break
            self._kept.popitem(last=False)
            total -= size

    def clear(self) -> None:
        """Forget all grammars."""
        self._kept.clear()


class _Outcomes:
    """The outcomes of grammars that no child could compile; see `Outcomes`."""

    def text_of(self, answer: dict[str, Any]) -> str:
        match answer:
            case {"source": str(source)}:
                return source
            case {"refused": str(words)}:
                raise InvalidRequest(words, param="structured")
        raise EngineError("the process that compiles grammars gave no sensible answer")

    def took_too_much(self) -> InvalidRequest:
        return InvalidRequest(
            f"structured can't be honoured: to compile it takes more than {_CPU_SECONDS:g} seconds "
            "or too much memory; ask for a simpler shape",
            param="structured",
        )

    def busy(self, num_waiting: int) -> Overloaded:
        return Overloaded(f"{num_waiting} grammars wait to be compiled already; try again")

    def closed(self) -> EngineDied:
        return _closed()

    def failed(self, problem: Exception) -> EngineError:
        return EngineError(f"the process that compiles grammars could not be asked: {problem}")


@contextmanager
def _telling(request: Request, made: Made) -> Iterator[None]:
    """Tell who waits for constraints what is raised where they are made: nobody waits for ever."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):  # of the thread that asks, not of the library
        raise
    except BaseException as problem:
        _tell([(request, made)], _refusal(problem))


def _refusal(problem: BaseException) -> InfernoError:
    """Return the error for one request, to which whatever a library of grammars raises belongs.

    A panic of such a library is no Exception.
    """
    if isinstance(problem, InfernoError):
        return problem
    return InvalidRequest(f"the constraint can't be built: {problem!r}")


def _tell(waiting: Sequence[tuple[Request, Made]], problem: InfernoError) -> None:
    for _, made in waiting:
        with suppress(InvalidStateError):  # it was cancelled
            made.set_exception(problem)


def _closed() -> EngineDied:
    return EngineDied("the engine was closed while a grammar was being compiled")
