"""Write grammars as JSON, for other processes: a list of nodes, each after the nodes it holds.

A node that occurs often is written once, so that it is shared after reading as well.
"""

from __future__ import annotations

import json
from typing import Any

from inferno.grammar.regex import Alt, And, Chars, Not, Regex, Repeat, Seq
from inferno.grammar.rules import Grammar, Mark, Reference, Repeated, Symbol, Terminal

_Node = Regex | Symbol


def encode(grammar: Grammar) -> str:
    """Return a grammar as text."""
    nodes: dict[tuple[Any, ...], int] = {}
    numbers: dict[int, int] = {}  # by identity: to look at a node that is shared once is enough

    def number(node: _Node) -> int:
        found = numbers.get(id(node))
        if found is None:
            found = numbers[id(node)] = nodes.setdefault(fields(node), len(nodes))
        return found

    def fields(node: _Node) -> tuple[Any, ...]:
        match node:
            case Chars(ranges):
                return "chars", ranges
            case Seq(parts):
                return "seq", tuple(map(number, parts))
            case Alt(options):
                return "alt", tuple(map(number, options))
            case And(parts):
                return "and", tuple(map(number, parts))
            case Not(part):
                return "not", number(part)
            case Repeat(part, least, most):
                return "repeat", number(part), least, most
            case Terminal(regex):
                return "terminal", number(regex)
            case Mark(token_id):
                return "mark", token_id
            case Reference(name):
                return "reference", name
            case Repeated(symbol, least, most):
                return "repeated", number(symbol), least, most

    rules = {
        name: [list(map(number, symbols)) for symbols in alternatives]
        for name, alternatives in grammar.rules.items()
    }
    return json.dumps({"nodes": list(nodes), "rules": rules})


def decode(text: str) -> Grammar:
    """Return the grammar that `encode` has written."""
    known: list[Any] = []

    def nodes(numbers: list[int]) -> tuple[Any, ...]:
        return tuple([known[each] for each in numbers])

    content = json.loads(text)
    for node in content["nodes"]:
        match node:
            case ["chars", ranges]:
                known.append(Chars(tuple([(first, last) for first, last in ranges])))
            case ["seq", parts]:
                known.append(Seq(nodes(parts)))
            case ["alt", options]:
                known.append(Alt(nodes(options)))
            case ["and", parts]:
                known.append(And(nodes(parts)))
            case ["not", part]:
                known.append(Not(known[part]))
            case ["repeat", part, least, most]:
                known.append(Repeat(known[part], least, most))
            case ["terminal", regex]:
                known.append(Terminal(known[regex]))
            case ["mark", token_id]:
                known.append(Mark(token_id))
            case ["reference", name]:
                known.append(Reference(name))
            case ["repeated", symbol, least, most]:
                known.append(Repeated(known[symbol], least, most))
            case _:
                raise ValueError(f"no node of a grammar: {node!r:.100}")
    return Grammar(
        {
            name: tuple(nodes(symbols) for symbols in alternatives)
            for name, alternatives in content["rules"].items()
        }
    )
