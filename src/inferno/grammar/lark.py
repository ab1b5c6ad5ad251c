"""Grammars in llguidance's notation, a dialect of Lark."""

from __future__ import annotations

from inferno.grammar.printing import to_llguidance
from inferno.grammar.regex import Regex
from inferno.grammar.rules import Grammar, Mark, Reference, Repeated, Symbol, Terminal


def to_lark(grammar: Grammar) -> str:
    """Return the rules and, below them, the terminals, each once."""
    names: dict[Regex, str] = {}
    lines = []
    for name, alternatives in grammar.rules.items():
        texts = (" ".join(_symbol(each, names) for each in parts) for parts in alternatives)
        lines.append(f"{name}: {' | '.join(text or '()' for text in texts)}")
    lines += [f"{name}: {to_llguidance(regex)}" for regex, name in names.items()]
    return "\n".join(lines) + "\n"


def _symbol(symbol: Symbol, names: dict[Regex, str]) -> str:
    match symbol:
        case Reference(name):
            return name
        case Terminal(regex):
            return names.setdefault(regex, f"T{len(names)}")
        case Mark(token_id):
            return f"<[{token_id}]>"
        case Repeated(part, least, most):
            return f"{_symbol(part, names)}{{{least},{'' if most is None else most}}}"
