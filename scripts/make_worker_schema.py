"""Write docs/worker.schema.json, the worker's protocol, from the types that it is made of.

python scripts/make_worker_schema.py
"""

from __future__ import annotations

import json
from pathlib import Path

from inferno.server.worker.messages import protocol_schema

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "worker.schema.json"


def main() -> None:
    DOCUMENT.write_text(make_document())


def make_document() -> str:
    """The whole document."""
    return json.dumps(protocol_schema(), indent=2) + "\n"


if __name__ == "__main__":
    main()
