"""EngineClient: all that the outside sees of an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from inferno.requests import Request, TokenEvent

__all__ = ["EngineClient"]


class EngineClient(Protocol):
    """A running engine, wherever it runs."""

    vocab_size: int
    max_model_len: int

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Events of a request until each of its samples has ended.

        Leaving the generator early aborts the request. Raises InvalidRequest before the first
        event where the engine refuses the request, EngineDied where the engine is gone.
        """

    def abort(self, request_id: str, sample_index: int) -> None:
        """End one sample, as when a stop string was found; its last event says `aborted`."""

    async def close(self) -> None:
        """End open requests as aborted and let go of the engine."""
