"""A small template language: `[this|that]` chooses, `{slot}` fills in."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_INNERMOST_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_VOWELS = frozenset("aeiou")
_SOUNDS_LIKE_A_CONSONANT = ("uni", "use", "ukulele", "one", "euro")
_SOUNDS_LIKE_A_VOWEL = ("hour", "honest", "heir", "x-ray")


def expand(template: str, rng: random.Random, slots: Mapping[str, str]) -> str:
    """Resolve the choices of a template, then fill its slots."""
    return chosen(template, rng).format_map(slots)


def chosen(template: str, rng: random.Random) -> str:
    """Resolve the choices of a template from the inside out."""
    while "[" in template:
        template = _INNERMOST_CHOICE.sub(lambda m: rng.choice(m[1].split("|")), template)
    return template


def with_article(noun: str) -> str:
    """Put "a" or "an" before a noun, by how it sounds."""
    start = noun.lower()
    if start.startswith(_SOUNDS_LIKE_A_CONSONANT):
        return f"a {noun}"
    is_vowel = start[0] in _VOWELS or start.startswith(_SOUNDS_LIKE_A_VOWEL)
    return f"{'an' if is_vowel else 'a'} {noun}"


def sentence_case(text: str) -> str:
    """Raise the first letter and leave the rest alone."""
    return text[:1].upper() + text[1:]


def words(text: str) -> tuple[str, ...]:
    """The words of a text, for tables that read better as a line."""
    return tuple(text.split())
