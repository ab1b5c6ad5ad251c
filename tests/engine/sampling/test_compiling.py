"""Grammars are compiled beside the steps, under limits; who waits for them gets an answer."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inferno.engine.sampling import compiling
from inferno.engine.sampling.compiling import ConstraintCompiler, KeptGrammars, Made
from inferno.engine.sampling.constraints import Constraint
from inferno.errors import EngineDied, EngineError, InvalidRequest
from inferno.limited.pool import Bounds
from inferno.requests import Request, SamplingParams
from inferno.structured import StructuredOutput
from tests.engine.sampling.hostile_shapes import MAKERS, shapes
from tests.patience import PATIENCE

pytest.importorskip("llguidance")

SIMPLE = StructuredOutput(choice=("yes", "no"))
# A thing of many parts, which takes far longer than a child needs to be asked.
BUSY = StructuredOutput(json={"enum": [f"value number {i}" for i in range(8000)]})


@pytest.fixture(autouse=True)
def _patient_grammars() -> None:
    """Have these tests set the limits that they are about."""


class Panic(BaseException):
    """What a library in Rust raises."""


class Library:
    """A library of grammars that keeps what it is given, and waits while it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.compiled: list[str] = []
        self.constrained: list[int] = []
        self.num_begun = 0
        self.threads: set[int] = set()
        self.may_compile = threading.Event()
        self.may_compile.set()

    def prepare(self, eos_token_ids: frozenset[int]) -> None:
        self.threads.add(threading.get_ident())

    def begin(self, text: str, eos_token_ids: frozenset[int]) -> str:
        self.threads.add(threading.get_ident())
        self.begun.append(text)
        return text

    def compile(
        self,
        source: str,
        eos_token_ids: frozenset[int],
        requests: Sequence[Request],
        begun: str | None = None,
    ) -> str:
        assert begun in (None, json.loads(source)["text"])
        self.threads.add(threading.get_ident())
        self.num_begun += 1
        assert self.may_compile.wait(PATIENCE)
        self.compiled.append(source)
        return source

    def num_bytes(self, matcher: str) -> int:
        return len(matcher)

    def is_costly(self, matcher: str, request: Request) -> bool:
        return request.params.n > 9

    def constrain(self, matcher: str, request: Request) -> Sequence[Constraint]:
        self.constrained.append(request.params.n)
        self.threads.add(threading.get_ident())
        constraints: list[Any] = [matcher] * request.params.n
        return constraints


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def compiler(library: Library) -> Iterator[ConstraintCompiler]:
    compiler = ConstraintCompiler(lambda: library)
    yield compiler
    library.may_compile.set()
    compiler.close()


def request(shape: StructuredOutput = SIMPLE, n: int = 1, eos: int = 2) -> Request:
    params = SamplingParams(structured=shape, n=n)
    return Request(
        request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=frozenset({eos})
    )


def until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "Z" not in _status(pid)


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_requests_of_one_shape_wait_for_one_compilation(
    compiler: ConstraintCompiler, library: Library
) -> None:
    library.may_compile.clear()
    made = [compiler.start(request(n=n)) for n in (1, 2, 3)]
    assert not any(each.done() for each in made)
    library.may_compile.set()
    assert [len(each.result(PATIENCE)) for each in made] == [1, 2, 3]
    assert len(library.compiled) == 1
    assert library.threads.isdisjoint({threading.get_ident()})


def test_what_is_kept_is_there_at_once(compiler: ConstraintCompiler, library: Library) -> None:
    compiler.start(request()).result(PATIENCE)
    assert compiler.start(request(StructuredOutput(choice=["yes", "no"]))).done()
    assert len(library.compiled) == 1
    compiler.start(request(eos=3)).result(PATIENCE)  # what ends an output is part of it
    assert len(library.compiled) == 2


def test_what_is_kept_and_costly_is_not_done_by_who_asks(
    compiler: ConstraintCompiler, library: Library
) -> None:
    compiler.start(request()).result(PATIENCE)
    assert len(compiler.start(request(n=10)).result(PATIENCE)) == 10
    assert threading.get_ident() not in library.threads


def test_what_nobody_wants_any_more_is_not_compiled(
    compiler: ConstraintCompiler, library: Library
) -> None:
    library.may_compile.clear()
    first = compiler.start(request(StructuredOutput(choice=("first",))))
    until(lambda: len(compiler.pids) > 0)
    wanted, unwanted = compiler.start(request()), compiler.start(request())
    other = compiler.start(request(StructuredOutput(choice=("other",))))
    assert unwanted.cancel()
    assert other.cancel()
    library.may_compile.set()
    assert wanted.result(PATIENCE)
    assert first.result(PATIENCE)
    with pytest.raises(CancelledError):
        other.result(PATIENCE)
    assert not any("other" in source for source in library.compiled)
    assert compiler.start(request(StructuredOutput(choice=("other",)))).result(PATIENCE)


@pytest.mark.parametrize(
    ("part", "is_kept"),
    [
        ("compile", False),
        *(("is_costly", False), ("is_costly", True)),
        *(("constrain", False), ("constrain", True)),
    ],
)
def test_a_library_that_fails_refuses_its_request_alone(
    compiler: ConstraintCompiler,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    is_kept: bool,
) -> None:
    def fail(*_: object) -> None:
        raise Panic("at the disco")

    if is_kept:
        compiler.start(request()).result(PATIENCE)
    with monkeypatch.context() as broken:
        broken.setattr(library, part, fail)
        with pytest.raises(InvalidRequest, match="can't be built: Panic"):
            compiler.start(request()).result(PATIENCE)
    for shape in (SIMPLE, StructuredOutput(choice=("other",))):
        assert compiler.start(request(shape)).result(PATIENCE)


@pytest.mark.parametrize("name", ["inferno-limited", "inferno-grammars"])
def test_a_system_that_has_no_room_for_threads_holds_nobody_up_for_ever(
    compiler: ConstraintCompiler, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", fail)
        if name == "inferno-grammars":
            assert compiler.start(request()).result(PATIENCE)
        else:
            with pytest.raises(EngineError, match="could not be asked: can't start new thread"):
                compiler.start(request()).result(PATIENCE)
    assert compiler.start(request(StructuredOutput(choice=("other",)))).result(PATIENCE)


def test_threads_switch_as_before_when_the_last_of_several_compilers_is_done(
    compiler: ConstraintCompiler, library: Library
) -> None:
    usual, longer = sys.getswitchinterval(), Library()
    library.may_compile.clear()
    longer.may_compile.clear()
    other = ConstraintCompiler(lambda: longer)
    first = compiler.start(request())
    until(lambda: library.num_begun == 1)
    second = other.start(request())
    until(lambda: longer.num_begun == 1)
    assert sys.getswitchinterval() < usual
    library.may_compile.set()
    assert first.result(PATIENCE)
    until(lambda: compiler._thread is None)
    assert sys.getswitchinterval() < usual, "one is at work still"
    longer.may_compile.set()
    assert second.result(PATIENCE)
    other.close()
    until(lambda: sys.getswitchinterval() == usual)


def test_a_library_that_fails_to_prepare_is_asked_all_the_same(
    compiler: ConstraintCompiler, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Panic("at the disco")

    monkeypatch.setattr(library, "prepare", fail)
    for shape in (SIMPLE, StructuredOutput(choice=("other",))):
        assert compiler.start(request(shape)).result(PATIENCE)


def test_a_tokenizer_that_cant_be_read_is_told_each_time() -> None:
    def load() -> Library:
        raise OSError("the disk is gone")

    compiler = ConstraintCompiler(load)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="the disk is gone"):
            compiler.start(request()).result(PATIENCE)
    compiler.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_close_ends_children_and_whoever_waits(
    compiler: ConstraintCompiler, library: Library
) -> None:
    compiler.start(request()).result(PATIENCE)
    pids = compiler.pids
    assert pids
    library.may_compile.clear()
    waiting = compiler.start(request(StructuredOutput(choice=("later",))))
    compiler.close()
    with pytest.raises(EngineDied, match="closed"):
        waiting.result(PATIENCE)
    with pytest.raises(EngineDied, match="closed"):
        compiler.start(request())
    until(lambda: not any(map(is_running, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_child_that_is_killed_is_replaced(compiler: ConstraintCompiler) -> None:
    compiler.start(request()).result(PATIENCE)
    for number in range(3):
        for pid in compiler.pids:
            os.kill(pid, signal.SIGKILL)
        assert compiler.start(request(StructuredOutput(choice=(f"{number}",)))).result(PATIENCE)


def bounds(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    wide = {"cpu_seconds": 30.0, "wall_seconds": (60.0, 60.0), "max_waiting": 64}
    given = {**wide, "short_bytes": 1 << 16, "max_bytes": 1 << 22, "long_niceness": 0, **changed}
    monkeypatch.setattr(compiling, "_BOUNDS", Bounds(**given))


@pytest.mark.parametrize("limit", ["cpu", "wall", "size"])
def test_what_takes_too_much_is_refused(
    compiler: ConstraintCompiler, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    match limit:
        case "cpu":
            bounds(monkeypatch, cpu_seconds=0.05)
        case "wall":
            bounds(monkeypatch, wall_seconds=(0.02, 0.02))
        case "size":
            bounds(monkeypatch, max_bytes=100)
    shape = SIMPLE if limit == "size" else BUSY
    with pytest.raises(InvalidRequest, match=r"more than 0\.5 seconds or too much memory"):
        compiler.start(request(shape)).result(PATIENCE)


def tools(*, are_strict: bool) -> StructuredOutput:
    """Calls of two tools, of which the second takes long to compile."""
    schemas = [{"type": "object"}, {"properties": {"x": json.loads(str(BUSY.json))}}]
    contents = [
        {"type": "json_schema", "json_schema": each, "is_strict": are_strict} for each in schemas
    ]
    tags = [
        {"type": "tag", "begin": f"<call={number}>", "content": content, "end": "</call>"}
        for number, content in enumerate(contents)
    ]
    triggered = {"type": "triggered_tags", "triggers": ["<call="], "tags": tags}
    return StructuredOutput(structural_tag={"type": "structural_tag", "format": triggered})


def test_a_schema_that_takes_too_much_is_left_out_where_it_need_not_be_kept_to(
    compiler: ConstraintCompiler, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, cpu_seconds=0.1)
    with pytest.raises(InvalidRequest, match="or too much memory"):
        compiler.start(request(tools(are_strict=True))).result(PATIENCE)
    assert compiler.start(request(tools(are_strict=False))).result(PATIENCE)
    assert len(library.compiled) == 1
    assert "value number" not in library.compiled[0]
    compiler.start(request(tools(are_strict=False))).result(PATIENCE)
    assert len(library.compiled) == 1  # it is kept


def test_a_schema_that_the_library_refuses_is_left_out_too(
    compiler: ConstraintCompiler, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(source: str, *_: object) -> str:
        library.compiled.append(source)
        if "shy" in source:
            raise InvalidRequest("it is too shy")
        return source

    monkeypatch.setattr(library, "compile", compile)
    shy = {"properties": {"shy": {"type": "string"}}}
    for is_strict in (True, False):
        content = {"type": "json_schema", "json_schema": shy, "is_strict": is_strict}
        tag = {"type": "tag", "begin": "<", "content": content, "end": ">"}
        shape = StructuredOutput(structural_tag={"type": "structural_tag", "format": tag})
        made = compiler.start(request(shape))
        if is_strict:
            with pytest.raises(InvalidRequest, match="too shy"):
                made.result(PATIENCE)
        else:
            assert made.result(PATIENCE)
    assert len(library.compiled) == 3


def test_what_takes_little_is_begun_before_its_source_is_there(
    compiler: ConstraintCompiler, library: Library
) -> None:
    for number in range(5):
        shape = StructuredOutput(json={"maxLength": number})
        assert compiler.start(request(shape)).result(PATIENCE)
    assert len(library.begun) == 5
    assert [json.loads(each)["text"] for each in library.compiled] == library.begun


def test_a_shape_is_compiled_where_it_could_not_be_begun(
    compiler: ConstraintCompiler, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(text: str, eos_token_ids: frozenset[int]) -> str:
        library.begun.append(text)
        raise Panic

    monkeypatch.setattr(library, "begin", begin)
    assert compiler.start(request(SIMPLE)).result(PATIENCE)
    assert len(library.begun) == len(library.compiled) == 1


def test_more_than_may_wait_is_refused(
    compiler: ConstraintCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(monkeypatch, max_waiting=1)
    many = [compiler.start(request(BUSY, eos=eos)) for eos in range(9)]
    said = {str(each.exception(PATIENCE)) for each in many}
    assert "1 grammars wait to be compiled already; try again" in said


def test_what_takes_long_waits_for_the_rest(compiler: ConstraintCompiler, library: Library) -> None:
    compiler.start(request(SIMPLE)).result(PATIENCE)
    library.constrained.clear()
    library.may_compile.clear()
    first = compiler.start(request(StructuredOutput(choice=("first",)), n=2))
    until(lambda: library.num_begun == 2)
    long = compiler.start(request(SIMPLE, n=12))
    second = compiler.start(request(StructuredOutput(choice=("second",)), n=3))
    until(lambda: bool(compiler._tasks))
    library.may_compile.set()
    for made in (first, second, long):
        assert made.result(PATIENCE)
    assert library.constrained == [2, 3, 12]


def test_the_least_lately_used_is_forgotten_first() -> None:
    kept = KeptGrammars(most=3, most_bytes=100)
    for name in "abc":
        kept.keep(name, name.upper(), lambda: 10)
    assert kept.find("a") == "A"
    kept.keep("d", "D", lambda: 10)
    assert [kept.find(name) for name in "abcd"] == ["A", None, "C", "D"]
    kept.keep("e", "E", lambda: 85)  # beside which one more has room
    assert [kept.find(name) for name in "acde"] == [None, None, "D", "E"]
    kept.keep("f", "F", lambda: 101)
    assert kept.find("f") is None
    assert kept.find("e") == "E"


def test_grammars_that_have_grown_make_room_for_the_next() -> None:
    kept = KeptGrammars(most=9, most_bytes=100)
    sizes = dict.fromkeys("abc", 10)
    for name in sizes:
        kept.keep(name, name.upper(), partial(sizes.__getitem__, name))
    sizes["b"] = 95
    kept.keep("d", "D", lambda: 10)
    assert [kept.find(name) for name in "abcd"] == [None, None, "C", "D"]


def test_a_grammar_that_has_grown_by_being_used_is_made_anew() -> None:
    kept = KeptGrammars(most=9, most_bytes=100)
    sizes = dict.fromkeys("ab", 10)
    for name in sizes:
        kept.keep(name, name.upper(), partial(sizes.__getitem__, name))
    sizes["a"] = 95  # no other shape was asked for since
    assert kept.find("a") == "A"
    assert kept.find("b") is None
    sizes["a"] = 101
    assert kept.find("a") is None
    kept.keep("a", "A", lambda: 10)
    assert kept.find("a") == "A"


def test_a_grammar_with_special_tokens_is_tried_without_knowing_them(
    compiler: ConstraintCompiler, library: Library
) -> None:
    grammar = 'start: "<no>" <|im_end|> /<no>/ <[151645]> // <no>'
    compiler.start(request(StructuredOutput(grammar=grammar))).result(PATIENCE)
    [source] = library.compiled
    assert json.loads(source)["text"] == grammar


@pytest.mark.parametrize("attribute", ["stop=/x{3}/", "max_tokens=5"])
def test_terminals_that_cant_be_taken_back_are_refused(
    compiler: ConstraintCompiler, attribute: str
) -> None:
    """They once failed at the first token that steering took back, in the midst of the answer."""
    shape = StructuredOutput(grammar=f'start: "a" some\nsome[{attribute}]: /(a|b)*c/')
    with pytest.raises(InvalidRequest, match=r"`stop` and `max_tokens` of Lark's terminals"):
        compiler.start(request(shape)).result(PATIENCE)
    held = StructuredOutput(json={"enum": ["stop", "max_tokens"]})
    compiler.start(request(held)).result(PATIENCE)


def test_a_grammar_without_a_text_is_refused(compiler: ConstraintCompiler) -> None:
    endless = StructuredOutput(grammar='start: x\nx: x "a" | x "b"')
    with pytest.raises(InvalidRequest, match="no text has this shape"):
        compiler.start(request(endless)).result(PATIENCE)


REFUSED = "InvalidRequest: structured can't be honoured: "


def outcome(made: Made) -> str:
    problem = made.exception(PATIENCE)
    return "compiled" if problem is None else f"{type(problem).__name__}: {problem}"


def test_hostile_shapes_are_honoured_or_refused() -> None:
    from inferno.engine.sampling.grammar import GrammarCompiler  # noqa: PLC0415

    model = Path(compiling.__file__).parents[2] / "demo" / "files" / "demo"
    compiler = ConstraintCompiler(lambda: GrammarCompiler(model, 2048, 4096))
    said = [outcome(compiler.start(request(shape))) for shape in shapes(len(MAKERS))[::3]]
    assert compiler.start(request()).result(PATIENCE)
    compiler.close()
    assert {"compiled"} < set(said)
    assert all(each.startswith(("compiled", REFUSED)) for each in said)
