"""Grammars in llguidance's notation, a dialect of Lark."""

from __future__ import annotations

from inferno.grammar.printing import to_llguidance
from inferno.grammar.regex import Regex
from inferno.grammar.rules import Grammar, Mark, Reference, Repeated, Symbol, Terminal


def to_lark(grammar: Grammar) -> str:
    """Return the rules and, below them, the terminals, each once."""
    names = _Names()
    lines = []
    for name, alternatives in grammar.rules.items():
        texts = (" ".join(_symbol(each, names) for each in parts) for parts in alternatives)
        lines.append(f"{name}: {' | '.join(text or '()' for text in texts)}")
    lines += [f"{name}: {to_llguidance(regex)}" for regex, name in names.by_regex.items()]
    return "\n".join(lines) + "\n"


class _Names:
    """The names of terminals: those that are the same tree are found without looking into it."""

    def __init__(self) -> None:
        self.by_regex: dict[Regex, str] = {}
        self._by_identity: dict[int, str] = {}

    def name(self, regex: Regex) -> str:
        known = self._by_identity.get(id(regex))
        if known is None:
            known = self.by_regex.setdefault(regex, f"T{len(self.by_regex)}")
            self._by_identity[id(regex)] = known
        return known


def _symbol(symbol: Symbol, names: _Names) -> str:
    match symbol:
        case Reference(name):
            return name
        case Terminal(regex):
            return names.name(regex)
        case Mark(token_id):
            return f"<[{token_id}]>"
        case Repeated(part, least, most):
            return f"{_symbol(part, names)}{{{least},{'' if most is None else most}}}"
