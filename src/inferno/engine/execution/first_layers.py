"""Run a model's first layers ahead of a step, for tokens that the step is going to compute.

Keys and values go to the cache as in any pass, and each token's residual stream is kept. If the
step then computes exactly those tokens, it runs the other layers only; else it runs all layers. A
token has the same bits in any batch, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.engine.execution.batcher import Batcher, PlacedSequence
from inferno.engine.execution.runner import Runner
from inferno.engine.step_plan import ScheduledChunk, SequenceId
from inferno.errors import InvalidRequest
from inferno.plan.choices import SMALL_STEP


@dataclass(slots=True)
class _Kept:
    """Tokens of a sequence from position `start` on, and the rows in which their streams lie."""

    start: int
    token_ids: list[int]
    rows: list[int]


class FirstLayers:
    """The runner of a model's first layers; owns the residual streams that steps go on from.

    num_layers  how many; see `check_num_layers`.
    num_tokens  the most that a step computes.
    """

    def __init__(
        self, batcher: Batcher, runner: Runner, *, num_layers: int, num_tokens: int
    ) -> None:
        check_num_layers(num_layers, of=runner.num_layers)
        self._batcher = batcher
        self._runner = runner
        self._layers = range(num_layers)
        self._other_layers = range(num_layers, runner.num_layers)
        # One place for all, for a recorded pass reads its streams where the first one has.
        self._streams_NE = runner.new_streams(max(SMALL_STEP, num_tokens))
        self._num_rows = 0
        self._kept: dict[SequenceId, _Kept] = {}

    @property
    def num_bytes(self) -> int:
        """Return the memory that the residual streams take."""
        return self._streams_NE.nbytes

    def clear(self) -> None:
        """Forget all residual streams: the next step runs all layers."""
        self._kept = {}
        self._num_rows = 0

    def forget(self, sequence_id: SequenceId) -> None:
        """Forget the residual streams of one sequence."""
        self._kept.pop(sequence_id, None)

    def run(self, chunks: Sequence[ScheduledChunk], sequences: Sequence[PlacedSequence]) -> Tensor:
        """Run the first layers on the tokens that come next, and keep the residual streams.

        Returns the streams [T, E], which last until the next pass.
        """
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        first, end = self._num_rows, self._num_rows + num_tokens
        assert end <= len(self._streams_NE), "a step has no room for so many tokens"
        batch = self._batcher.build(chunks, sequences, range(num_tokens))
        streams_TE = self._runner.forward(batch, self._layers)
        assert streams_TE.dtype == self._streams_NE.dtype, "a copy must not round"
        self._streams_NE[first:end] = streams_TE
        self._num_rows = end
        for chunk, sequence in zip(chunks, sequences, strict=True):
            kept = self._kept.setdefault(chunk.sequence_id, _Kept(chunk.start, [], []))
            assert chunk.start == kept.start + len(kept.rows), "tokens run in their order"
            kept.token_ids += _tokens(chunk, sequence)
            kept.rows += range(first, first + chunk.num_tokens)
            first += chunk.num_tokens
        return streams_TE

    def early_logits(self, streams_TE: Tensor, rows: Sequence[int]) -> Tensor:
        """Return float32 logits [N, V] of rows of streams, as if no layer followed."""
        return self._runner.early_logits(streams_TE, rows)

    def take(
        self, chunks: Sequence[ScheduledChunk], sequences: Sequence[PlacedSequence]
    ) -> tuple[Tensor | None, range | None]:
        """Return the streams and layers to run a step with, and forget all that was kept.

        See `Runner.forward`.

        The returned streams stay where they lie until the next call of `run`.
        """
        try:
            streams_TE = self._gather(chunks, sequences) if self._kept else None
        finally:
            self.clear()
        return streams_TE, None if streams_TE is None else self._other_layers

    def _gather(
        self, chunks: Sequence[ScheduledChunk], sequences: Sequence[PlacedSequence]
    ) -> Tensor | None:
        """Return the streams of a step's tokens in their order, [T, E]; None: it computes all.

        Tokens that lack theirs, such as the last proposals, get them in one pass if they are few.
        """
        num_found = 0
        lacking: list[tuple[ScheduledChunk, PlacedSequence]] = []
        for chunk, sequence in zip(chunks, sequences, strict=True):
            num_kept = self._num_kept(chunk, sequence)
            num_found += num_kept
            if not num_kept:
                self.forget(chunk.sequence_id)
            if num_kept < chunk.num_tokens:
                lacking.append((_rest(chunk, num_kept), sequence))
        num_lacking = sum(chunk.num_tokens for chunk, _ in lacking)
        has_room = self._num_rows + num_lacking <= len(self._streams_NE)
        if not num_found or num_lacking > SMALL_STEP or not has_room:
            return None
        if lacking:
            self.run([chunk for chunk, _ in lacking], [sequence for _, sequence in lacking])
        rows = [
            row
            for chunk in chunks
            for row in self._kept[chunk.sequence_id].rows[: chunk.num_tokens]
        ]
        if rows != list(range(len(rows))):
            device = self._streams_NE.device
            self._streams_NE[: len(rows)] = self._streams_NE[torch.tensor(rows, device=device)]
        return self._streams_NE[: len(rows)]

    def _num_kept(self, chunk: ScheduledChunk, sequence: PlacedSequence) -> int:
        """Count the leading tokens of a chunk whose streams are kept: all that are, or none."""
        kept = self._kept.get(chunk.sequence_id)
        if kept is None or kept.start != chunk.start:
            return 0
        token_ids = _tokens(chunk, sequence)
        num_kept = min(len(kept.token_ids), len(token_ids))
        return num_kept if kept.token_ids[:num_kept] == token_ids[:num_kept] else 0


def check_num_layers(num_layers: int, *, of: int) -> None:
    """Raise InvalidRequest if the first so many layers of a model can't propose tokens for it."""
    if of < 2:
        raise InvalidRequest(
            f"early layers can't propose anything: the model has {of} layer, and proposals need "
            "one less than all; choose another proposer",
            param="speculative_early_layers",
        )
    if not 1 <= num_layers < of:
        raise InvalidRequest(
            f"speculative_early_layers must be from 1 to {of - 1}, as the model has {of} layers, "
            f"not {num_layers}",
            param="speculative_early_layers",
        )


def _tokens(chunk: ScheduledChunk, sequence: PlacedSequence) -> list[int]:
    """Return the tokens that a chunk computes."""
    end = chunk.start + chunk.num_tokens - len(chunk.proposed_token_ids)
    return [*sequence.token_ids[chunk.start : end], *chunk.proposed_token_ids]


def _rest(chunk: ScheduledChunk, num_tokens: int) -> ScheduledChunk:
    """Return a chunk without its first tokens."""
    num_left = chunk.num_tokens - num_tokens
    proposed = chunk.proposed_token_ids
    return chunk._replace(
        start=chunk.start + num_tokens,
        num_tokens=num_left,
        proposed_token_ids=proposed[max(0, len(proposed) - num_left) :],
    )
