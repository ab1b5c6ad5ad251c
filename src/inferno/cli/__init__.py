"""The `inferno` command. Importing it imports nothing heavy: `inferno --help` starts at once."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; the entry point of the installed `inferno`."""
    try:
        # Imported here so that an interrupt during the imports is met as well.
        from inferno.cli.app import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n" if sys.stderr.isatty() else "interrupted\n")
        sys.stderr.flush()
        os._exit(1)  # without waiting for a step that is under way
