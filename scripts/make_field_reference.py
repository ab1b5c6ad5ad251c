"""Write docs/server-fields.md, the tables of every field that the server's routes know.

python scripts/make_field_reference.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from inferno.server.docs.field_table import FieldRow, Support, field_rows
from inferno.server.route import Route
from inferno.server.routes import ROUTES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "server-fields.md"
_HEAD = """# Fields of the server's routes

<!-- Written by scripts/make_field_reference.py: change src/inferno/server, not this file. -->

Every field that clients of OpenAI and vLLM send. A null counts as absent. What stands in no table
is refused by name, with status 400, unless the server runs with `--lenient`; then the header
`x-inferno-ignored` names it. [The server](server.md) shows the routes at work.

| Column | Meaning |
|---|---|
| supported | does what OpenAI's field of this name does, or vLLM's where OpenAI has none |
| differs | does it in another way, which the last column tells |
| accepted, changes nothing | a hint to whoever serves; taken, and of no effect here |
| unsupported | only values that would change nothing are taken; any other is a 400 that names it |
"""


def main() -> None:
    DOCUMENT.write_text(make_reference())


def make_reference() -> str:
    """The whole document."""
    return "\n".join([_HEAD, *(line for route in ROUTES for line in _section(route))])


def _section(route: Route) -> Iterator[str]:
    for kind in route.requests:
        yield f"## {route.methods[0]} {route.template}\n"
        yield _table([_cells(row) for row in field_rows(kind)])


def _cells(row: FieldRow) -> tuple[str, ...]:
    default = f"`{row.default}`" if row.default else "needed"
    note = "" if row.support is Support.UNSUPPORTED else row.note
    return f"`{row.name}`", row.values, default, str(row.support), note


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = ["| Field | Value | Default | Support | Meaning |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
