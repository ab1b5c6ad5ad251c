"""Grammars that are followed by llguidance, byte by byte, and random texts of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest

from inferno.grammar.automaton import Automaton
from inferno.grammar.lark import to_lark
from inferno.grammar.regex import Regex
from inferno.grammar.rules import START, Grammar, Reference, Repeated, Symbol, Terminal

llguidance = pytest.importorskip("llguidance")


class _Bytes:
    """A tokenizer whose tokens are the bytes, and one for the end."""

    eos_token_id = 256
    bos_token_id = None
    unk_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([each]) for each in range(256)), b"<end>")

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


_LIMITS = llguidance.LLParserLimits(initial_lexer_fuel=500_000, max_grammar_size=250_000)


class Acceptor:
    """A grammar, which says of a text whether it is one of its own."""

    _tokenizer: Any = None

    def __init__(self, grammar: Grammar) -> None:
        if Acceptor._tokenizer is None:
            Acceptor._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
        self._matcher = llguidance.LLMatcher(
            Acceptor._tokenizer, to_lark(grammar), log_level=0, limits=_LIMITS
        )
        assert not self._matcher.is_error(), self._matcher.get_error()

    def accepts(self, text: str) -> bool:
        matcher = self._matcher.deep_copy()
        raw = list(text.encode())
        return bool(matcher.try_consume_tokens(raw) == len(raw) and matcher.is_accepting())


class Sampler:
    """Random texts of a grammar, of some size at most where the grammar lets them end."""

    def __init__(self, grammar: Grammar, seed: int) -> None:
        self._rules = grammar.rules
        self._random = random.Random(seed)
        self._costs = _costs(grammar)
        self._left = 0

    def text(self, size: int = 60) -> str:
        """Return a text of about so many symbols."""
        self._left = size
        return self._symbol(Reference(START)).decode()

    def _symbol(self, symbol: Symbol) -> bytes:
        self._left -= 1
        if isinstance(symbol, Terminal):
            return self._terminal(symbol.regex)
        if isinstance(symbol, Repeated):
            most = symbol.least + 3 if symbol.most is None else symbol.most
            times = symbol.least
            while self._left > 0 and times < most and self._random.random() < 0.6:
                times += 1
            return b"".join(self._symbol(symbol.symbol) for _ in range(times))
        assert isinstance(symbol, Reference)
        ways = self._rules[symbol.name]
        if self._left <= 0:
            ways = (min(ways, key=lambda way: _cost(way, self._costs)),)
        way = self._random.choice(ways)
        return b"".join(self._symbol(each) for each in way)

    def _terminal(self, regex: Regex) -> bytes:
        """Walk the automaton at random, and by its shortest way when that takes long."""
        automaton = _automaton(regex)
        text = bytearray()
        state = automaton.start
        for _ in range(self._random.randint(1, 12)):
            if automaton.accepts(state) and self._random.random() < 0.3:
                return bytes(text)
            tried = (*self._random.choices(_COMMON, k=6), *self._random.sample(range(256), 40))
            ways = ((byte, automaton.next(state, byte)) for byte in tried)
            byte, after = next((way for way in ways if way[1] != automaton.DEAD), (0, state))
            if after == state and automaton.next(state, byte) != state:
                break
            text.append(byte)
            state = after
        return bytes(text + automaton.shortest(state))


_COMMON = b'abcz0159 -.:,"@ \\/en\xc3\xe2\xf0'


@lru_cache(maxsize=1000)
def _automaton(regex: Regex) -> Automaton:
    return Automaton(regex)


def _costs(grammar: Grammar) -> dict[str, float]:
    """Return how many symbols a rule takes at least."""
    costs = dict.fromkeys(grammar.rules, float("inf"))
    while True:
        before = dict(costs)
        for name, ways in grammar.rules.items():
            costs[name] = min((_cost(way, costs) for way in ways), default=float("inf"))
        if costs == before:
            return costs


def _cost(way: Sequence[Symbol], costs: dict[str, float]) -> float:
    total = 1.0
    for symbol in way:
        times = symbol.least if isinstance(symbol, Repeated) else 1
        part = symbol.symbol if isinstance(symbol, Repeated) else symbol
        if times:
            total += times * (costs[part.name] if isinstance(part, Reference) else 1)
    return total
