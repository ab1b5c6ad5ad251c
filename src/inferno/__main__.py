"""Run the `inferno` command by `python -m inferno`."""

from __future__ import annotations

from inferno.cli import main

main()
