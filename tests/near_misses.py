"""Texts that a regular expression all but matches, and how long it takes over them.

Run as a script it reads patterns from its input, a line of JSON each, and tells those whose time
grows faster than the text. It is a process of its own, as a pattern can be so bad that it never
comes back: then the kernel ends the process, which has said before what it was about to try, after
as many seconds as its argument says.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

SHORT, LONG = 4 << 10, 256 << 10
# Eight million ways, which a quadratic pattern tries with SHORT, take any machine longer.
QUICK_SECONDS = 0.001
# The part of a text that it is compared with. What is linear takes 16 times as long over the whole
# text, and what is quadratic 256 times; a busy machine's caches may make it several times slower.
PART = 16
MOST_GROWTH = 64.0
_KINDS = ' \t\n\r aA0_-.!"\\/:;,<>[]{}()|=\x00éß'  # a character or two of each class
_WIDE = "｜中\ufdd0\ufffd\U0001f600"
_TAILS = ("", "!", "\n", "\x00")


@dataclass(frozen=True)
class Use:
    """A pattern, where it stands, and the methods that it is used with."""

    where: str
    pattern: str
    flags: int
    is_bytes: bool
    methods: tuple[str, ...]

    @classmethod
    def of(cls, where: str, compiled: re.Pattern[Any], methods: tuple[str, ...]) -> Use:
        is_bytes = isinstance(compiled.pattern, bytes)
        pattern = compiled.pattern.decode("latin-1") if is_bytes else compiled.pattern
        return cls(where, pattern, compiled.flags & ~re.UNICODE, is_bytes, methods)

    @property
    def compiled(self) -> re.Pattern[Any]:
        pattern = self.pattern.encode("latin-1") if self.is_bytes else self.pattern
        return re.compile(pattern, self.flags)


@dataclass(frozen=True)
class NearMiss:
    """A beginning, something that is said again and again, and an end that doesn't fit."""

    begin: str
    unit: str
    end: str

    def text(self, size: int) -> str:
        return self.begin + self.unit * (size // max(1, len(self.unit))) + self.end


def near_misses(use: Use) -> set[NearMiss]:
    """Runs of each kind of character, alone and after all that leads to each repetition."""
    kinds = _KINDS if use.is_bytes else _KINDS + _WIDE
    tree = _parser.parse(use.pattern, use.flags)
    literals = {chr(code) for code in _literals(tree)}
    alphabet = "".join(sorted({*kinds, *literals}))
    if use.is_bytes:
        alphabet = "".join(c for c in alphabet if ord(c) < 256)
    runs = {("", character) for character in alphabet}
    for begin, body in _repetitions(tree, "", alphabet):
        units = {c for c in alphabet if _fits(tree.state, body, c)} | {_sample(body, alphabet)}
        for unit in units - {""}:
            runs |= {(begin, unit), ("", begin + unit)}
    return {NearMiss(begin, unit, end) for begin, unit in runs for end in _TAILS}


def _repetitions(tree: Any, begin: str, alphabet: str) -> Iterator[tuple[str, Any]]:
    """What leads to each repetition, and what is repeated."""
    for operator, argument in tree:
        match operator:
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
                yield begin, argument[2]
                yield from _repetitions(argument[2], begin, alphabet)
            case _constants.SUBPATTERN:
                yield from _repetitions(argument[3], begin, alphabet)
            case _constants.BRANCH:
                for alternative in argument[1]:
                    yield from _repetitions(alternative, begin, alphabet)
            case _constants.ATOMIC_GROUP:
                yield from _repetitions(argument, begin, alphabet)
            case _constants.ASSERT | _constants.ASSERT_NOT:
                yield from _repetitions(argument[1], begin, alphabet)
        begin += _sample([(operator, argument)], alphabet)


def _sample(tree: Any, alphabet: str) -> str:
    """About the shortest text that it matches."""
    sample = ""
    for operator, argument in tree:
        match operator:
            case _constants.LITERAL:
                sample += chr(argument)
            case _constants.NOT_LITERAL:
                sample += next(c for c in "a0" if ord(c) != argument)
            case _constants.ANY:
                sample += "a"
            case _constants.IN:
                sample += next((c for c in alphabet if _is_in(argument, c)), "")
            case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
                sample += _sample(argument[2], alphabet) * argument[0]
            case _constants.SUBPATTERN:
                sample += _sample(argument[3], alphabet)
            case _constants.ATOMIC_GROUP:
                sample += _sample(argument, alphabet)
            case _constants.BRANCH:
                sample += _sample(argument[1][0], alphabet)
    return sample


def _literals(tree: Any) -> Iterator[int]:
    for item in tree:
        if isinstance(item, tuple) and len(item) == 2 and item[0] is _constants.LITERAL:
            yield item[1]
        elif isinstance(item, list | tuple | _parser.SubPattern):
            yield from _literals(item)


def _is_in(members: Any, character: str) -> bool:
    state = _parser.State()
    return _fits(state, [(_constants.IN, members)], character)


def _fits(state: Any, body: Any, text: str) -> bool:
    """Whether this part of a pattern matches the text."""
    part = _parser.SubPattern(state, list(body))
    try:
        return _compiler.compile(part, 0).fullmatch(text) is not None
    except (re.error, IndexError, TypeError):  # a part that means nothing alone
        return False


def seconds(use: Use, method: str, near_miss: NearMiss, size: int) -> float:
    """How long it takes over a text of about this size."""
    text: Any = near_miss.text(size)
    if use.is_bytes:
        text = text.encode("latin-1", "replace")
    started = time.thread_time()
    _METHODS[method](use.compiled, text)
    return time.thread_time() - started


_METHODS: dict[str, Callable[[re.Pattern[Any], Any], object]] = {
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: pattern.search(text),
    "sub": lambda pattern, text: pattern.sub(text[:0], text),
    "subn": lambda pattern, text: pattern.subn(text[:0], text),
    "split": lambda pattern, text: pattern.split(text),
    "findall": lambda pattern, text: pattern.findall(text),
    "finditer": lambda pattern, text: sum(1 for _ in pattern.finditer(text)),
}


def grows_too_fast(use: Use, method: str, near_miss: NearMiss, size: int) -> bool:
    """Whether it takes far more than 16 times what a sixteenth of the text takes."""
    took = seconds(use, method, near_miss, size)
    if took < QUICK_SECONDS:
        return False
    part = min(seconds(use, method, near_miss, size // PART) for _ in range(5))
    for _ in range(3):  # others may have had the processor's caches meanwhile
        if took <= MOST_GROWTH * part:
            return False
        took = min(took, seconds(use, method, near_miss, size))
    return True


def faults(use: Use) -> Iterator[str]:
    """What takes longer than it may; the slowest near-miss is also tried at full length."""
    for method in use.methods:
        slowest = (0.0, NearMiss("", "a", ""))
        for near_miss in sorted(near_misses(use), key=repr):
            took = seconds(use, method, near_miss, SHORT)
            slowest = max(slowest, (took, near_miss), key=lambda pair: pair[0])
            if took >= QUICK_SECONDS and grows_too_fast(use, method, near_miss, SHORT):
                yield f"{use.where}: {method} of {near_miss} takes {took:.3f} s"
                return
        if grows_too_fast(use, method, slowest[1], LONG):
            yield f"{use.where}: {method} of {slowest[1]} grows too fast"


def main() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        use = Use(**{**given, "methods": tuple(given["methods"])})
        print(json.dumps({"trying": use.where}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))  # which ends the process
        found = list(faults(use))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"faults": found}), flush=True)


def as_line(use: Use) -> str:
    """As the script reads it."""
    return json.dumps(asdict(use)) + "\n"


if __name__ == "__main__":
    main()
