"""Read a schema's document: its vocabulary, the places of its parts, and errors with places."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from inferno.structured import HOLD_SCHEMAS_BY_NAME, HOLD_VALUES

_DRAFTS = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")

# Keywords that say something of a schema or of its values, and restrict nothing.
ANNOTATIONS = frozenset(
    {
        *("$schema", "$comment", "$defs", "definitions", "$anchor", "$dynamicAnchor"),
        *("title", "description", "default", "example", "examples", "deprecated", "readOnly"),
        *("writeOnly", "contentMediaType", "contentEncoding", "contentSchema"),
        *("discriminator", "externalDocs", "xml"),  # OpenAPI
    }
)

REFUSED = {
    "$dynamicRef": "a $ref",
    "$recursiveRef": "a $ref",
    "$recursiveAnchor": "an $anchor",
    "$vocabulary": "one of JSON Schema's own drafts",
    "nullable": 'the type "null" beside the other one',
}


class UnsupportedSchema(ValueError):
    """Raised for a schema that can't be kept to, with the keyword, its place, and a cure."""


class Document:
    """A schema with all schemas that are parts of it."""

    def __init__(self, content: Mapping[str, Any] | bool) -> None:
        self.content = content
        self._anchors: dict[str, str] | None = None

    def find(self, reference: Any, pointer: str) -> tuple[Any, str]:
        """Return the schema that a reference names, and its place; `pointer`: the reference's.

        Raises UnsupportedSchema where it leads out of the document, or to nothing.
        """
        expected = "a part of this schema such as #/$defs/name"
        if not isinstance(reference, str):
            raise refuse(pointer, f"is {shown(reference)}", expected)
        own = self.content.get("$id") if isinstance(self.content, Mapping) else None
        if isinstance(own, str) and own and reference.partition("#")[0] == own.partition("#")[0]:
            reference = "#" + reference.partition("#")[2]
        if not reference.startswith("#"):
            raise refuse(pointer, f"is {shown(reference)}", expected)
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            if self._anchors is None:
                self._anchors = _anchors(self.content)
            if fragment not in self._anchors:
                raise refuse(pointer, f"is {shown(reference)}", "an $anchor that is there")
            fragment = self._anchors[fragment][1:]
        target: Any = self.content
        parts = fragment.split("/")[1:]
        for depth, part in enumerate(parts):
            name = part.replace("~1", "/").replace("~0", "~")
            if depth and isinstance(target, Mapping) and "$id" in target:
                raise refuse(pointer, "leads into a schema with an $id", expected)
            if isinstance(target, Mapping) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise refuse(pointer, f"is {shown(reference)}, which isn't there", expected)
        place = "/".join(["#", *parts])
        if not isinstance(target, Mapping | bool):
            raise refuse(pointer, f"is {shown(reference)}, which is no schema", expected)
        return target, place


def check_keywords(content: Mapping[str, Any], pointer: str, known: Collection[str]) -> None:
    """Check that all keywords of a schema are known or restrict nothing.

    Words that JSON Schema doesn't know are annotations, as it says; but not those that seem to be
    keywords written wrong, for then a restriction would be lost.
    """
    for keyword, value in content.items():
        place = f"{pointer}/{escaped(keyword)}"
        if keyword == "$schema":
            if not _is_draft(value):
                raise refuse(place, f"is {shown(value)}", " or ".join(_DRAFTS))
        elif (
            keyword in known
            or keyword in ANNOTATIONS
            or keyword.startswith("x-")
            or (keyword in ("$id", "id") and pointer == "#")
        ):
            continue
        elif keyword == "$id":
            raise refuse(place, "names a schema", "$defs or $anchor")
        elif keyword in REFUSED:
            if value is not False:
                raise refuse(place, "can't be kept to", REFUSED[keyword])
        elif (likely := _likely(keyword, [*known, *ANNOTATIONS])) is not None:
            raise refuse(place, "is no keyword", f"{likely}, if this is meant")


def refuse(pointer: str, problem: str, expected: str) -> UnsupportedSchema:
    """Return the error for a keyword, or a schema, at a place."""
    return UnsupportedSchema(f"{pointer} {problem}; expected {expected}")


def _is_draft(value: Any) -> bool:
    return isinstance(value, str) and any(
        value.rstrip("#") == f"{start}://json-schema.org/{draft}/schema"
        for start in ("http", "https")
        for draft in _DRAFTS
    )


def _likely(keyword: str, known: list[str]) -> str | None:
    """Return the keyword that a word was meant to be, if it is almost one."""
    by_lower = {each.lower(): each for each in known}
    lower = keyword.lower().lstrip("$")
    if lower in by_lower or f"${lower}" in by_lower:
        return by_lower.get(lower) or by_lower[f"${lower}"]
    close = difflib.get_close_matches(keyword, known, 1, 0.84)
    return close[0] if close else None


def _anchors(content: Any) -> dict[str, str]:
    """Return the anchors of a document and their places; refuse one that names two schemas."""
    anchors: dict[str, str] = {}
    for anchor, pointer in _all_anchors(content, "#"):
        if anchors.setdefault(anchor, pointer) != pointer:
            place = f"{pointer}/$anchor"
            raise refuse(place, f"is {shown(anchor)}, as another's is", "an anchor of its own")
    return anchors


def _all_anchors(content: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(content, Mapping):
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(content.get(keyword), str):
                yield content[keyword], pointer
        for keyword, each in content.items():
            place = f"{pointer}/{escaped(keyword)}"
            if keyword in HOLD_SCHEMAS_BY_NAME and isinstance(each, Mapping):
                for name, inner in each.items():
                    yield from _all_anchors(inner, f"{place}/{escaped(name)}")
            elif keyword not in HOLD_VALUES:
                yield from _all_anchors(each, place)
    elif isinstance(content, list):
        for number, each in enumerate(content):
            yield from _all_anchors(each, f"{pointer}/{number}")


def escaped(name: str) -> str:
    """Return a name as it stands in a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def shown(value: Any) -> str:
    """Return a value of a schema as messages show it."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."
