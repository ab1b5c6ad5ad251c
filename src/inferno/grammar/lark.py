"""Grammars in llguidance's notation, a dialect of Lark."""

from __future__ import annotations

from inferno.grammar.printing import to_llguidance
from inferno.grammar.regex import Regex, literal
from inferno.grammar.rules import Grammar, Mark, Reference, Repeated, Symbol, Terminal


def has_marks(grammar: Grammar) -> bool:
    """Return whether special tokens are part of a grammar."""
    return any(
        isinstance(symbol.symbol if isinstance(symbol, Repeated) else symbol, Mark)
        for alternatives in grammar.rules.values()
        for alternative in alternatives
        for symbol in alternative
    )


def to_lark(grammar: Grammar, *, marks_as_text: bool = False) -> str:
    """Return the rules and, below them, the terminals, each once.

    marks_as_text   special tokens are written as texts, for who doesn't know the model's.
    """
    names: dict[Regex, str] = {}
    lines = []
    for name, alternatives in grammar.rules.items():
        texts = (
            " ".join(_symbol(each, names, marks_as_text) for each in parts)
            for parts in alternatives
        )
        lines.append(f"{name}: {' | '.join(text or '()' for text in texts)}")
    lines += [f"{name}: {to_llguidance(regex)}" for regex, name in names.items()]
    return "\n".join(lines) + "\n"


def _symbol(symbol: Symbol, names: dict[Regex, str], marks_as_text: bool) -> str:
    match symbol:
        case Reference(name):
            return name
        case Terminal(regex):
            return names.setdefault(regex, f"T{len(names)}")
        case Mark(token_id) if marks_as_text:
            return names.setdefault(literal(f"<{token_id}>"), f"T{len(names)}")
        case Mark(token_id):
            return f"<[{token_id}]>"
        case Repeated(part, least, most):
            return (
                f"{_symbol(part, names, marks_as_text)}{{{least},{'' if most is None else most}}}"
            )
