"""The counts of a stream: usage so far, and how many tokens wait for its next event."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from inferno.server.answers import Usage
from inferno.server.call import usage
from inferno.server.fields import GenerateFields
from inferno.text.completion import Chunk


class Tally:
    """Usage of a stream; cached and reasoning tokens are known of choices that are done."""

    def __init__(self, fields: GenerateFields, num_prompt_tokens: int) -> None:
        self._fields = fields
        self._prompt = num_prompt_tokens
        self._completion = 0
        self._cached = 0
        self._reasoning = 0

    def add(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self._completion += len(chunk.token_ids)
        if (done := chunk.completion) is not None:
            self._reasoning += done.usage.reasoning_tokens
            self._cached += done.usage.cached_tokens if done.sample_index == 0 else 0

    @property
    def of_event(self) -> Usage | UnsetType | None:
        """Return an event's usage: so far, or None if the last event has it; UNSET if none has."""
        if self._fields.repeats_usage:
            return self.usage
        return None if self._fields.includes_usage else UNSET

    @property
    def usage(self) -> Usage:
        """Return the usage so far; a choice's reasoning and cached tokens count at its end."""
        return usage(
            prompt=self._prompt,
            completion=self._completion,
            cached=self._cached,
            reasoning=self._reasoning,
        )


class Pace:
    """Holds chunks back until a choice has `interval` tokens to tell, or is done."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._held: dict[tuple[int, int], list[Chunk]] = {}

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the chunk, or all that waited as one, if it is time."""
        if self._interval == 1:
            yield chunk
            return
        choice = chunk.prompt_index, chunk.sample_index
        held = self._held.setdefault(choice, [])
        held.append(chunk)
        num_tokens = sum(len(each.token_ids) for each in held)
        if chunk.completion is not None or num_tokens >= self._interval:
            del self._held[choice]
            yield _joined(held)


def _joined(chunks: list[Chunk]) -> Chunk:
    return chunks[-1]._replace(
        pieces=tuple(piece for chunk in chunks for piece in chunk.pieces),
        token_ids=tuple(token_id for chunk in chunks for token_id in chunk.token_ids),
        logprobs=tuple(entry for chunk in chunks for entry in chunk.logprobs),
    )
