"""Write the table of JSON Schema's keywords into docs/structured.md, with counts of its suite.

python scripts/make_schema_reference.py SUITE

SUITE is the folder `tests/draft2020-12` of github.com/json-schema-org/JSON-Schema-Test-Suite.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from inferno.grammar.json_document import REFUSED
from inferno.grammar.json_keywords import KEYWORDS
from inferno.grammar.json_schema import UnsupportedSchema, compile_schema
from inferno.grammar.json_strings import known_formats

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "structured.md"
BEGIN, END = "<!-- keywords: scripts/make_schema_reference.py -->", "<!-- end of keywords -->"

# What is refused of a keyword that is kept to otherwise.
_REFUSED_OF = {
    "$ref": "other documents, `$id` within the schema, a schema that is itself alone",
    "additionalItems": "beside `items` that are no list",
    "contains": "twice of one array, or with large counts",
    "format": "all formats but those below",
    "minProperties": "2 or more beyond the required ones where other names are allowed",
    "multipleOf": "divisors with many remainders, such as 7, unless bounds leave 2,000 multiples",
    "not": "what would need one property of those that aren't listed, or one item, to differ",
    "oneOf": "branches that overlap, where `not` of one of them is refused",
    "pattern": "what is not regular, such as backreferences",
    "unevaluatedItems": "where it depends on a branch of `anyOf`, `oneOf`, `if`, or on `contains`",
    "unevaluatedProperties": "where it depends on a branch of `anyOf`, `oneOf` or `if`",
    "uniqueItems": "`true`, unless `maxItems` is at most 1",
}
# Where the suite has a keyword's tests, if not in a file of its name.
_FILES = {
    "if": "if-then-else",
    "dependencies": "optional/dependencies-compatibility",
    "$ref": "ref",
    "$dynamicRef": "dynamicRef",
    "$vocabulary": "vocabulary",
}
_BESIDE = {"then": "if", "else": "if", "additionalItems": "items"}


def table(suite: Path) -> str:
    """Return the lines between the marks."""
    lines = [
        "| Keyword | Refused of it | Schemas of the official suite, kept to and refused |",
        "|---|---|---|",
    ]
    for keyword in sorted([*KEYWORDS, *REFUSED], key=str.lower):
        refused = "always" if keyword in REFUSED else _REFUSED_OF.get(keyword, "-")
        counts = _counts(suite, _FILES.get(keyword, keyword))
        number = f"{counts[True]}, {counts[False]}" if counts else "-"
        if keyword in _BESIDE:
            number = f"as `{_BESIDE[keyword]}`"
        lines.append(f"| `{keyword}` | {refused} | {number} |")
    formats = ", ".join(f"`{name}`" for name in known_formats())
    lines += ["", f"Formats: {formats}."]
    return "\n".join(lines)


def _counts(suite: Path, name: str) -> Counter[bool]:
    """Return how many schemas of a file are kept to, and how many are refused.

    A schema that no value satisfies is kept to: there is no answer to give.
    """
    path = suite / f"{name}.json"
    if not path.exists():
        return Counter()
    return Counter(_is_kept(group["schema"]) for group in _groups(path))


def _groups(path: Path) -> Iterator[dict[str, object]]:
    yield from json.loads(path.read_text())


def _is_kept(schema: object) -> bool:
    try:
        compile_schema(schema)  # type: ignore[arg-type]
    except UnsupportedSchema as problem:
        return "nothing can satisfy" in str(problem)
    return True


def main() -> None:
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(Path(sys.argv[1]))}\n{END}{after}")


if __name__ == "__main__":
    main()
