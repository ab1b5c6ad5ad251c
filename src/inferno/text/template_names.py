"""The names that a chat template reads: options that it takes are among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

_QUOTES = "\"'"


@dataclass(frozen=True, slots=True)
class TemplateNames:
    """The names between `{{` and `}}` and between `{%` and `%}`.

    variables   also those that the template sets itself or knows from Jinja, such as `for`.
    keys        attributes, and texts, which may be keys.
    """

    variables: frozenset[str]
    keys: frozenset[str]


@lru_cache(maxsize=8)  # of the model, and of requests that bring their own
def template_names(source: str) -> TemplateNames:
    """Return the names that a template reads."""
    variables: set[str] = set()
    keys: set[str] = set()
    at = 0
    while (at := source.find("{", at)) >= 0:
        kind = source[at + 1 : at + 2]
        if kind == "#":
            end = source.find("#}", at + 2)
            at = end + 2 if end >= 0 else len(source)
        elif kind and kind in "{%":
            at = _read_block(source, at + 2, ("}" if kind == "{" else "%") + "}", variables, keys)
        else:
            at += 1
    return TemplateNames(frozenset(variables), frozenset(keys))


def _read_block(source: str, at: int, end: str, variables: set[str], keys: set[str]) -> int:
    """Add the names up to the block's end, and return the place behind it."""
    before = ""  # the last character that is no space
    while at < len(source):
        character = source[at]
        if character in _QUOTES:
            start, at = at, _after_text(source, at)
            keys.add(source[start + 1 : at - 1])
        elif character.isidentifier():
            start = at
            while at < len(source) and (source[at] == "_" or source[at].isalnum()):
                at += 1
            at = max(at, start + 1)
            (keys if before == "." else variables).add(source[start:at])
        elif source.startswith(end, at):
            return at + len(end)
        else:
            at += 1
        before = before if character.isspace() else character
    return at


def _after_text(source: str, start: int) -> int:
    at = start + 1
    while at < len(source) and source[at] != source[start]:
        at += 2 if source[at] == "\\" else 1
    return at + 1
