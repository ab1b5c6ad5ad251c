"""How long tests wait for what must come: so long that no machine is too slow, however busy."""

from __future__ import annotations

PATIENCE = 240.0  # seconds; only a test that fails waits for all of it
