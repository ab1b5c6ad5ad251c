"""Grammars come back from their texts as they were, with all that they share."""

from __future__ import annotations

from typing import Any

import pytest

from inferno.grammar.encoding import decode, encode
from inferno.grammar.json_schema import compile_schema
from inferno.grammar.lark import to_lark
from inferno.grammar.regex import Regex, Seq, both, literal, repeat, without
from inferno.grammar.rules import START, Grammar, Reference, Repeated, Terminal
from inferno.grammar.syntax import parse_regex

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {"properties": {"é\n": {"type": "integer", "minimum": 3}, "b": {"pattern": "^a|b{2,}$"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}, "maxItems": 3}}},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schemas_grammar_is_the_same_afterwards(schema: dict[str, Any]) -> None:
    grammar = compile_schema(schema)
    again = decode(encode(grammar))
    assert again == grammar
    assert to_lark(again) == to_lark(grammar)


def test_every_kind_of_node_comes_back() -> None:
    regex = both(without(literal("a")), parse_regex("(b|cd){1,3}x*"))
    terminal = Terminal(regex)
    symbols = terminal, Reference("rest"), Repeated(terminal, 0, None), Repeated(terminal, 1, 2)
    grammar = Grammar({START: (symbols, ()), "rest": ((),), "never": ()})
    assert decode(encode(grammar)) == grammar


def test_what_is_shared_is_written_once() -> None:
    node: Regex = repeat(literal("ab"), 0, 3)
    for _ in range(60):  # a tree of 2**60 nodes
        node = Seq((node, node))
    text = encode(Grammar({START: ((Terminal(node),),)}))
    assert len(text) < 5000
    again: Any = decode(text).rules[START][0][0]
    assert again.regex.parts[0] is again.regex.parts[1]


def test_other_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="no node of a grammar"):
        decode('{"nodes": [["call", 1]], "rules": {}}')
