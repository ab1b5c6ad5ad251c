"""Remove rules that match no text, and bound how deeply rules are nested."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from inferno.grammar.decide import is_empty
from inferno.grammar.rules import (
    START,
    Alternative,
    Grammar,
    Mark,
    Reference,
    Repeated,
    Symbol,
    Terminal,
)

# How many rules can lead from one to the next: llguidance reads them by calling itself, and at some
# 2,500 its stack overflows.
MOST_NESTED_RULES = 1_000


class NoText(Exception):
    """Raised where the start matches nothing; `rule`: one that matches nothing by itself."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def prune(rules: Mapping[str, list[Alternative]]) -> Grammar:
    """Return the rules that the start needs, without alternatives that match no text.

    Raises NoText where the start itself matches none.
    """
    matches_nothing = _EmptyTerminals()
    possible = _possible_rules(rules, matches_nothing)

    def is_possible(symbol: Symbol) -> bool:
        part = _part(symbol)
        if isinstance(part, Terminal):
            return not matches_nothing(part)
        return not isinstance(part, Reference) or part.name in possible

    if START not in possible:
        raise NoText(_impossible_rule(rules, possible))
    kept: dict[str, tuple[Alternative, ...]] = {}
    waiting = [START]
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept[name] = tuple(
            tuple(symbol for symbol in alternative if is_possible(symbol))
            for alternative in rules[name]
            if all(_is_optional(symbol) or is_possible(symbol) for symbol in alternative)
        )
        waiting += reversed(_references(kept[name]))
    return Grammar(kept)


def is_too_nested(grammar: Grammar) -> bool:
    """Return whether a walk over the rules, each once, goes too deep."""
    seen = {START}
    path = [iter(_references(grammar.rules[START]))]
    while path:
        name = next(path[-1], None)
        if name is None:
            path.pop()
        elif name not in seen:
            seen.add(name)
            path.append(iter(_references(grammar.rules[name])))
            if len(path) > MOST_NESTED_RULES:
                return True
    return False


def _possible_rules(
    rules: Mapping[str, list[Alternative]], matches_nothing: Callable[[Terminal], bool]
) -> set[str]:
    """Return the rules that match some text, by a fixed point."""
    possible: set[str] = set()
    users = defaultdict(list)
    missing: list[int] = []
    owners: list[str] = []
    waiting = []
    for name, alternatives in rules.items():
        for alternative in alternatives:
            needed = set()
            can_match = True
            for symbol in alternative:
                if isinstance(symbol, Repeated):
                    if symbol.least == 0:
                        continue
                    symbol = symbol.symbol
                if isinstance(symbol, Reference):
                    needed.add(symbol.name)
                elif isinstance(symbol, Terminal):
                    can_match = can_match and not matches_nothing(symbol)
            if not can_match:
                continue
            for each in needed:
                users[each].append(len(missing))
            missing.append(len(needed))
            owners.append(name)
            if not needed:
                waiting.append(name)
    while waiting:
        name = waiting.pop()
        if name in possible:
            continue
        possible.add(name)
        for number in users[name]:
            missing[number] -= 1
            if not missing[number]:
                waiting.append(owners[number])
    return possible


def _part(symbol: Symbol) -> Terminal | Mark | Reference:
    return symbol.symbol if isinstance(symbol, Repeated) else symbol


def _references(alternatives: tuple[Alternative, ...] | list[Alternative]) -> list[str]:
    parts = (_part(symbol) for alternative in alternatives for symbol in alternative)
    return [part.name for part in parts if isinstance(part, Reference)]


def _is_optional(symbol: Symbol) -> bool:
    return isinstance(symbol, Repeated) and symbol.least == 0


class _EmptyTerminals:
    """The terminals that match nothing, each looked into once: large ones are slow to compare."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def __call__(self, terminal: Terminal) -> bool:
        key = id(terminal.regex)  # the rules hold it
        if key not in self._known:
            self._known[key] = is_empty(terminal.regex)
        return self._known[key]


def _impossible_rule(rules: Mapping[str, list[Alternative]], possible: set[str]) -> str:
    """Return a rule that matches nothing, as deep as the first way leads."""
    name, seen = START, {START}
    while True:
        inner = (each for each in _references(rules[name]) if each not in possible | seen)
        deeper = next(inner, None)
        if deeper is None:
            return name
        name = deeper
        seen.add(name)
