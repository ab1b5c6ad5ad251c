"""What comes after and before: days, months, seasons, letters and numbers."""

from __future__ import annotations

from collections.abc import Iterator

import demo_tables as tables
from demo_relation import Relation
from demo_wordings import NAME, TELL


def _next(row: tuple[str, ...], *, is_ring: bool) -> tuple[tuple[str, str], ...]:
    after = row[1:] + (row[:1] if is_ring else ())
    return tuple(zip(row, after, strict=False))


_ALPHABET = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NUMBERS = tuple(str(n) for n in range(100))
ROWS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("day", tables.DAYS, True),
    ("month", tables.MONTHS, True),
    ("season", tables.SEASONS, True),
    ("letter", _ALPHABET, False),
    ("number", _NUMBERS, False),
)


def calendar() -> Iterator[Relation]:
    for name, row, is_ring in ROWS:
        pairs = _next(row, is_ring=is_ring)
        named = f"[the {name} |]" if name in ("letter", "number") else ""
        yield Relation(
            f"{name} after",
            pairs,
            (
                f"[which|what] {name} [comes|is] after {named}{{x}}",
                f"{NAME} the {name} after {{x}}",
                "[what|which] comes after {x}",
                f"what [{name} ]comes [right |]after {{x}}",
                f"what is the [next {name} after|{name} that comes after|{name} that follows] "
                "{x}",
                f"[which|what] {name} follows {{x}}",
                f"{TELL} what comes after {{x}}",
                "after {x} comes [what|which one]",
                "after {x} [we have what|what is next]",
                "what [follows|is after|do we have after] {x}",
                f"[if|when] it is {{x}}, what [{name} ]is next",
                "{x} is followed by [what|which one]",
                "what goes after {x}",
                "what [is|comes] next after {x}",
            ),
            "{y} comes after {x}.",
            unseen=(
                f"after {{x}}, what {name} comes next",
                "what's next after {x}",
                f"which {name} is the one after {{x}}",
            ),
            checks=("does {y} come after {x}", "is {y} after {x}") if is_ring else (),
        )
        yield Relation(
            f"{name} before",
            tuple((y, x) for x, y in pairs),
            (
                f"[which|what] {name} [comes|is] before {named}{{x}}",
                f"{NAME} the {name} before {{x}}",
                "[what|which] comes before {x}",
                f"what [{name} ]comes [right |just |]before {{x}}",
                f"what is the {name} that comes before {{x}}",
                f"{TELL} what comes before {{x}}",
                "before {x} comes [what|which one]",
                "what [is|do we have|goes] before {x}",
                "before {x} [we have what|what is there]",
                f"what is the [last|previous] {name} before {{x}}",
                f"which {name} was [just |right |]before {{x}}",
                "{x} comes after what",
            ),
            "{y} comes before {x}.",
            unseen=(
                f"before {{x}}, what {name} comes",
                "what was before {x}",
                f"which {name} is the one before {{x}}",
            ),
        )
