"""A small template language: `[this|that]` chooses, `{slot}` fills in."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_INNERMOST_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_VOWELS = frozenset("aeiou")


def expand(template: str, rng: random.Random, slots: Mapping[str, str]) -> str:
    """Resolve the choices of a template from the inside out, then fill its slots."""
    while "[" in template:
        template = _INNERMOST_CHOICE.sub(lambda m: rng.choice(m[1].split("|")), template)
    return template.format_map(slots)


def with_article(noun: str) -> str:
    """Put "a" or "an" before a noun; the vocabulary has no silent h and no "uni-" words."""
    return f"{'an' if noun[0].lower() in _VOWELS else 'a'} {noun}"


def sentence_case(text: str) -> str:
    """Raise the first letter and leave the rest alone."""
    return text[:1].upper() + text[1:]


def words(text: str) -> tuple[str, ...]:
    """The words of a text, for tables that read better as a line."""
    return tuple(text.split())
