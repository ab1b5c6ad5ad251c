"""`python -m inferno` is the `inferno` command."""

from __future__ import annotations

from inferno.cli import main

main()
