"""Write grammars in llguidance's notation, a dialect of Lark."""

from __future__ import annotations

from inferno.grammar.printing import to_llguidance
from inferno.grammar.regex import Regex, literal
from inferno.grammar.rules import Grammar, Mark, Reference, Repeated, Symbol, Terminal

# Of the tokens of a forced text llguidance takes those that fit what was said before it, so that a
# mask would depend on more than the place in a grammar. What is forced is found here, by the place.
_OPTIONS = '%llguidance {"no_forcing": true}'


def marks_of(grammar: Grammar) -> frozenset[int]:
    """Return the special tokens that are part of a grammar."""
    symbols = (
        symbol.symbol if isinstance(symbol, Repeated) else symbol
        for alternatives in grammar.rules.values()
        for alternative in alternatives
        for symbol in alternative
    )
    return frozenset(symbol.token_id for symbol in symbols if isinstance(symbol, Mark))


def to_lark(grammar: Grammar, *, marks_as_text: bool = False) -> str:
    """Return the rules and, below them, the terminals, each once.

    marks_as_text   special tokens are written as texts, where the model's tokens aren't known.
    """
    names = _Names()
    lines = [_OPTIONS]
    for name, alternatives in grammar.rules.items():
        texts = (
            " ".join(_symbol(each, names, marks_as_text) for each in parts)
            for parts in alternatives
        )
        lines.append(f"{name}: {' | '.join(text or '()' for text in texts)}")
    lines += [f"{name}: {to_llguidance(regex)}" for regex, name in names.by_regex.items()]
    return "\n".join(lines) + "\n"


class _Names:
    """The names of terminals: a tree that is the same object is found without looking into it."""

    def __init__(self) -> None:
        self.by_regex: dict[Regex, str] = {}
        self._by_identity: dict[int, tuple[Regex, str]] = {}

    def name(self, regex: Regex) -> str:
        known = self._by_identity.get(id(regex))
        if known is None:
            name = self.by_regex.setdefault(regex, f"T{len(self.by_regex)}")
            known = self._by_identity[id(regex)] = regex, name  # held, so that no other is at id
        return known[1]


def _symbol(symbol: Symbol, names: _Names, marks_as_text: bool) -> str:
    match symbol:
        case Reference(name):
            return name
        case Terminal(regex):
            return names.name(regex)
        case Mark(token_id) if marks_as_text:
            return names.name(literal(f"<{token_id}>"))
        case Mark(token_id):
            return f"<[{token_id}]>"
        case Repeated(part, least, most):
            return (
                f"{_symbol(part, names, marks_as_text)}{{{least},{'' if most is None else most}}}"
            )
