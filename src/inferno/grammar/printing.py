"""Write regular expressions in llguidance's notation.

llguidance reads Lark: a terminal's right-hand side is regular expressions between slashes, in the
syntax of Rust's `regex`, and its own operators between them: `&` (and) and `~` (not).
"""

from __future__ import annotations

from functools import lru_cache

from inferno.grammar.regex import (
    ANY_TEXT,
    EMPTY,
    MAX_DEPTH,
    NOTHING,
    Alt,
    And,
    Chars,
    Not,
    Regex,
    Repeat,
    Seq,
    depth_of,
    parts_of,
)

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_PLAIN = _LETTERS | frozenset(" \"':,;<>=!@%")  # what stands for itself outside of a class

# Texts of trees: the same strings, numbers and spaces are in most schemas.
_WRITTEN: dict[Regex, str] = {}
_MOST_KNOWN, _MOST_WRITTEN = 500, 2_000  # trees, and the characters of one's text


def to_llguidance(regex: Regex) -> str:
    """Return a terminal's right-hand side; it needs no other definitions.

    Raises ValueError if the tree is deeper than MAX_DEPTH.
    """
    if depth_of(regex) > MAX_DEPTH:  # before the tree is hashed, by calls as deep as it is
        raise ValueError(f"a regular expression is at most {MAX_DEPTH} levels deep")
    known = _WRITTEN.get(regex)
    if known is None:
        known = _written(regex)
        if len(known) <= _MOST_WRITTEN:
            if len(_WRITTEN) >= _MOST_KNOWN:
                _WRITTEN.clear()
            _WRITTEN[regex] = known
    return known


def _written(regex: Regex) -> str:
    with_operators: set[int] = set()
    _with_operators(regex, with_operators)
    return _terminal(regex, with_operators)


def _with_operators(regex: Regex, found: set[int]) -> bool:
    """Add the identities of the nodes that are or hold an `And` or a `Not`; return if this does."""
    inside = [
        _with_operators(part, found) for part in parts_of(regex) if not isinstance(part, Chars)
    ]
    if not any(inside) and not isinstance(regex, And | Not):
        return False
    found.add(id(regex))
    return True


def _terminal(regex: Regex, with_operators: set[int]) -> str:
    """Return the expression for llguidance's own operators, which bind in its own ways."""
    if id(regex) not in with_operators:
        return f"/{_rust(regex)}/"

    def inner(part: Regex) -> str:
        return _terminal(part, with_operators)

    match regex:
        case Seq(parts):
            return f"({' '.join(_runs(parts, with_operators))})"
        case Alt(options):
            return f"({' | '.join(map(inner, options))})"
        case Repeat(part, least, most):
            # The operators before it bind tighter than a count. A count of 0 isn't known.
            return f"({inner(part)}{_times(least, most)})" if most != 0 else f"/{_rust(EMPTY)}/"
        case And(parts):
            return f"({' & '.join(map(inner, parts or (ANY_TEXT,)))})"
        case Not(part):
            # Alone it would match bytes that are no characters, too.
            return f"(/{_rust(ANY_TEXT)}/ & ~{inner(part)})"
    raise AssertionError(f"characters have no operator: {regex}")


def _runs(parts: tuple[Regex, ...], with_operators: set[int]) -> list[str]:
    """Return the parts of a sequence; neighbours without operators are one expression."""
    texts = []
    run: list[Regex] = []
    for part in parts:
        if id(part) not in with_operators:
            run.append(part)
            continue
        if run:
            texts.append(f"/{_rust(Seq(tuple(run)))}/")
        run = []
        texts.append(_terminal(part, with_operators))
    if run:
        texts.append(f"/{_rust(Seq(tuple(run)))}/")
    return texts


def _rust(regex: Regex) -> str:
    """Return the expression in the syntax of Rust's `regex`."""
    match regex:
        case Chars():
            return _char_class(regex)
        case Seq(parts):
            return "".join(map(_atom_of_sequence, parts)) if parts else "(?:)"
        case Alt(options):
            return f"(?:{'|'.join(map(_rust, options or (NOTHING,)))})"
        case Repeat(part, least, most):
            inner = _rust(part)
            if isinstance(part, Seq | Repeat):
                inner = f"(?:{inner})"
            return f"{inner}{_times(least, most)}"
    raise AssertionError(f"Rust has no such operator: {regex}")


def _atom_of_sequence(part: Regex) -> str:
    if isinstance(part, Chars):
        return _char_class(part)
    return f"(?:{_rust(part)})" if part == EMPTY else _rust(part)


def _times(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if short is not None:
        return short
    if most is None:
        return f"{{{least},}}"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


@lru_cache(maxsize=512)
def _char_class(some: Chars) -> str:
    if some == NOTHING:
        return r"[^\x{0}-\x{10ffff}]"
    first, last = some.ranges[0]
    if len(some.ranges) == 1 and first == last:
        return chr(first) if chr(first) in _PLAIN else rf"\x{{{first:x}}}"
    return f"[{''.join(_range(*each) for each in some.ranges)}]"


def _range(first: int, last: int) -> str:
    ends = [chr(each) if chr(each) in _LETTERS else rf"\x{{{each:x}}}" for each in (first, last)]
    return ends[0] if first == last else "-".join(ends)
