"""Reach into an engine that runs its steps in this process."""

from __future__ import annotations

from inferno.engine.engine import Engine
from inferno.engine.execution.local import LocalExecutor


def executor_of(engine: Engine) -> LocalExecutor:
    """Return the engine's executor, whose parts a test wants to see or to break."""
    executor = engine._executor
    wired = getattr(executor, "_executor", executor)
    assert isinstance(wired, LocalExecutor)
    return wired
