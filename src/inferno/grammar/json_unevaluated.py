"""Find what a schema evaluates, for `unevaluatedProperties` and `unevaluatedItems`.

What is evaluated can depend on which branches a value is valid by. Here is only what doesn't: what
`allOf` and `$ref` add, and branches that add nothing to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inferno.grammar.json_document import Document, refuse

_BRANCHES = ("anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Names and patterns of properties, the number of first items, or all of either."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    all_properties: bool = False
    num_items: int = 0
    all_items: bool = False

    def __or__(self, other: Evaluated) -> Evaluated:
        return Evaluated(
            self.names | other.names,
            self.patterns | other.patterns,
            self.all_properties or other.all_properties,
            max(self.num_items, other.num_items),
            self.all_items or other.all_items,
        )


def evaluated(
    document: Document, content: Mapping[str, Any], pointer: str, keyword: str
) -> Evaluated:
    """Return what a schema evaluates beside its keyword `unevaluatedProperties` or `...Items`.

    Raises UnsupportedSchema where it depends on the value.
    """
    surely = _own(content) | _always(document, content, pointer, {pointer})
    perhaps = _perhaps(document, content, pointer, {pointer})
    if keyword == "unevaluatedProperties":
        depends = not surely.all_properties and (
            perhaps.all_properties
            or not perhaps.names <= surely.names
            or not perhaps.patterns <= surely.patterns
        )
    else:
        depends = not surely.all_items and (
            perhaps.all_items or perhaps.num_items > surely.num_items or "contains" in content
        )
    if depends:
        raise refuse(
            f"{pointer}/{keyword}",
            "depends on which of several schemas a value is valid by",
            "all properties and items outside of anyOf, oneOf, if, dependentSchemas and contains",
        )
    return surely


def _own(content: Mapping[str, Any]) -> Evaluated:
    """Return what the schema's own keywords evaluate, but for the `unevaluated...` ones."""
    first = content.get("prefixItems", content.get("items"))
    num_first = len(first) if isinstance(first, list) else 0
    others = "additionalItems" if isinstance(content.get("items"), list) else "items"
    return Evaluated(
        frozenset(_mapping(content, "properties")),
        frozenset(_mapping(content, "patternProperties")),
        "additionalProperties" in content,
        num_first,
        others in content,
    )


def _whole(content: Mapping[str, Any]) -> Evaluated:
    """Return what a schema within another evaluates by itself."""
    rest = Evaluated(
        all_properties="unevaluatedProperties" in content, all_items="unevaluatedItems" in content
    )
    return _own(content) | rest


def _always(
    document: Document, content: Mapping[str, Any], pointer: str, seen: set[str]
) -> Evaluated:
    """Return what is evaluated in schemas that always hold beside this one."""
    found = Evaluated()
    for inner, place in _beside(document, content, pointer):
        if place not in seen:
            seen.add(place)
            found |= _whole(inner) | _always(document, inner, place, seen)
    return found


def _perhaps(
    document: Document, content: Mapping[str, Any], pointer: str, seen: set[str]
) -> Evaluated:
    """Return what may be evaluated in branches, at any depth."""
    found = Evaluated()
    for inner, place in _beside(document, content, pointer):
        if place not in seen:
            seen.add(place)
            found |= Evaluated(all_items="contains" in inner)
            found |= _perhaps(document, inner, place, seen)
    for keyword in _BRANCHES:
        branches = content.get(keyword, ())
        if keyword in ("then", "else") and "if" not in content:
            continue  # then it says nothing, whatever it is
        if isinstance(branches, Mapping) and not keyword.startswith("depend"):
            branches = [branches]
        every = branches.values() if isinstance(branches, Mapping) else branches
        for number, inner in enumerate(every if not isinstance(every, bool) else ()):
            place = f"{pointer}/{keyword}/{number}"
            if isinstance(inner, Mapping) and place not in seen:
                seen.add(place)
                found |= _whole(inner) | Evaluated(all_items="contains" in inner)
                found |= _always(document, inner, place, set())
                found |= _perhaps(document, inner, place, seen)
    return found


def _beside(
    document: Document, content: Mapping[str, Any], pointer: str
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the schemas that hold of the same value as this one."""
    every = content.get("allOf", ())
    for number, inner in enumerate(every if isinstance(every, list) else ()):
        if isinstance(inner, Mapping):
            yield inner, f"{pointer}/allOf/{number}"
    if "$ref" in content:
        target, place = document.find(content["$ref"], f"{pointer}/$ref")
        if isinstance(target, Mapping):
            yield target, place


def _mapping(content: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    value = content.get(keyword, {})
    return value if isinstance(value, Mapping) else {}
