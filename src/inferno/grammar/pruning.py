"""Rules without those that match no text, and with bounds on how far they lead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

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
    possible = _possible_rules(rules)
    if START not in possible:
        raise NoText(_impossible_rule(rules, possible))
    kept: dict[str, tuple[Alternative, ...]] = {}
    waiting = [START]
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept[name] = tuple(
            dict.fromkeys(
                tuple(symbol for symbol in alternative if _is_possible(symbol, possible))
                for alternative in rules[name]
                if all(_can_match(symbol, possible) for symbol in alternative)
            )
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


def _possible_rules(rules: Mapping[str, list[Alternative]]) -> set[str]:
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
                    can_match = can_match and not is_empty(symbol.regex)
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


def _is_possible(symbol: Symbol, possible: set[str]) -> bool:
    part = _part(symbol)
    if isinstance(part, Reference):
        return part.name in possible
    return isinstance(part, Mark) or not is_empty(part.regex)


def _can_match(symbol: Symbol, possible: set[str]) -> bool:
    is_optional = isinstance(symbol, Repeated) and symbol.least == 0
    return is_optional or _is_possible(symbol, possible)


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
