"""DEV STUB: derivatives."""

from functools import lru_cache
from inferno.grammar.regex import *


@lru_cache(None)
def nullable(r):
    match r:
        case Chars():
            return False
        case Seq(p) | And(p):
            return all(map(nullable, p))
        case Alt(p):
            return any(map(nullable, p))
        case Repeat(p, l, m):
            return l == 0 or nullable(p)
        case Not(p):
            return not nullable(p)


@lru_cache(100000)
def deriv(r, c):
    match r:
        case Chars(rs):
            return EMPTY if any(a <= c <= b for a, b in rs) else NOTHING
        case Seq(p):
            if not p:
                return NOTHING
            out = [seq(deriv(p[0], c), *p[1:])]
            if nullable(p[0]):
                out.append(deriv(seq(*p[1:]), c))
            return alt(*out)
        case Alt(p):
            return alt(*(deriv(x, c) for x in p))
        case And(p):
            return both(*(deriv(x, c) for x in p))
        case Not(p):
            return without(deriv(p, c))
        case Repeat(p, l, m):
            return seq(deriv(p, c), repeat(p, max(0, l - 1), None if m is None else m - 1))


def bounds(r, out):
    if isinstance(r, Chars):
        for a, b in r.ranges:
            out.add(a)
            out.add(b + 1)
    for p in parts_of(r):
        bounds(p, out)


def matches(r, text):
    for ch in text:
        r = deriv(r, ord(ch))
    return nullable(r)


def is_empty(r, limit=5000):
    pts = set()
    bounds(r, pts)
    pts.add(0x61)
    pts = [p for p in pts if p <= MAX_CODE_POINT and not 0xD800 <= p <= 0xDFFF] + [0xE000]
    seen = {r}
    todo = [r]
    while todo:
        x = todo.pop()
        if nullable(x):
            return False
        for p in pts:
            d = deriv(x, p)
            if d != NOTHING and d not in seen:
                seen.add(d)
                todo.append(d)
                if len(seen) > limit:
                    return False
    return True
