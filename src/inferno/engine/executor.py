"""Run a plan on one device: build the batch, run the model, sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.engine.batcher import Batcher
from inferno.engine.footprint import Footprint
from inferno.engine.runner import Runner
from inferno.engine.sampler import Sampled, Sampler, SampleRow, prompt_logprobs
from inferno.engine.sequences import KnownSequence, KnownSequences
from inferno.engine.step_plan import ScheduledChunk, StepPlan, StepResult
from inferno.ops import KernelContext
from inferno.requests import TokenLogprobs

# Logits of many positions are made and used in slices, so that a long prompt with a vocabulary of
# 150,000 takes 40 MB at a time and not gigabytes.
_LOGITS_ROWS = 64


@dataclass(frozen=True, slots=True)
class StepHandle:
    """A submitted step, whose results can be asked for."""

    results: Sequence[StepResult]

    def result(self) -> Sequence[StepResult]:
        """One StepResult per chunk of the plan."""
        return self.results


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The hidden states of a step: of its row r in places[r], or of all rows in their order."""

    states_NE: Tensor
    places: Mapping[int, int] | None

    def find(self, rows: Sequence[int]) -> Sequence[int]:
        return rows if self.places is None else [self.places[row] for row in rows]


class Executor:
    """Owns batcher, runner and sampler of one device, and what their ops on the CPU work with.

    Of sequences it knows what plans have told it.
    """

    def __init__(
        self, batcher: Batcher, runner: Runner, sampler: Sampler, kernels: KernelContext
    ) -> None:
        self._batcher = batcher
        self._runner = runner
        self._sampler = sampler
        self._kernels = kernels
        self._sequences = KnownSequences()
        self._captures: dict[str, dict[int, Tensor]] = {}

    @property
    def footprint(self) -> Footprint:
        """Return the memory that model and cache take on this device."""
        return self._runner.footprint

    def release_memory(self) -> None:
        """Let the system have memory that only steps need; the next step touches its pages anew.

        All sequences are forgotten: the next plan must have another epoch.
        """
        self._sampler.forget(self._sequences.ids)
        self._sequences.clear()
        self._kernels.release_memory()

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> StepHandle:
        """Run a step on the device."""
        with self._kernels:
            return self._run(plan)

    def _run(self, plan: StepPlan) -> StepHandle:
        chunks = plan.chunks
        gone = self._sequences.gone(plan)
        if gone:
            self._sampler.forget(gone)
        sequences = self._sequences.follow(plan)
        starts = _first_rows(chunks)
        wanted = self._wanted_rows(chunks, starts)
        batch = self._batcher.build(plan, sequences, wanted)
        states_NE = self._runner.forward(batch)
        places = None if batch.rows_N is None else {row: i for i, row in enumerate(wanted)}
        hidden = _Hidden(states_NE, places)
        sampled = self._sample(chunks, sequences, starts, hidden)
        results = []
        for chunk, sequence, start, token in zip(chunks, sequences, starts, sampled, strict=True):
            prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
            if chunk.wants_prompt_logprobs:
                prompt_logprobs = self._prompt_logprobs(chunk, sequence, start, hidden)
            if self._is_captured(chunk):
                self._capture(chunk, start, hidden)
            results.append(_result(token, prompt_logprobs))
        return StepHandle(results)

    def capture_logits(self, request_id: str, positions: Iterable[int]) -> None:
        """Keep the logits of these positions of a request that is about to be added."""
        self._captures[request_id] = {position: torch.empty(0) for position in positions}

    def take_logits(self, request_id: str) -> list[Tensor]:
        """The kept logits [V], float32 on the CPU, in the order in which positions were asked."""
        return list(self._captures.pop(request_id, {}).values())

    def _wanted_rows(self, chunks: Sequence[ScheduledChunk], starts: Sequence[int]) -> list[int]:
        """Rows whose logits will be asked for."""
        rows: list[int] = []
        for chunk, start in zip(chunks, starts, strict=True):
            end = start + chunk.num_tokens
            if chunk.wants_prompt_logprobs or self._is_captured(chunk):
                rows += range(start, end)
            elif chunk.wants_token:
                rows.append(end - 1)
        return rows

    def _is_captured(self, chunk: ScheduledChunk) -> bool:
        return bool(self._captures) and chunk.request_id in self._captures

    def _logits(self, hidden: _Hidden, rows: Sequence[int]) -> Tensor:
        return self._runner.logits(hidden.states_NE, hidden.find(rows))

    def _sample(
        self,
        chunks: Sequence[ScheduledChunk],
        sequences: Sequence[KnownSequence],
        starts: Sequence[int],
        hidden: _Hidden,
    ) -> list[Sampled | None]:
        """The token of each chunk that closes its gap, None for the others."""
        closing = [i for i, chunk in enumerate(chunks) if chunk.wants_token]
        tokens: list[Sampled | None] = [None] * len(chunks)
        if not closing:
            return tokens
        last_rows = [starts[i] + chunks[i].num_tokens - 1 for i in closing]
        logits_RV = self._logits(hidden, last_rows)
        rows = [_sample_row(chunks[i], sequences[i]) for i in closing]
        sampled = self._sampler.sample(logits_RV, rows)
        for i, token in zip(closing, sampled, strict=True):
            tokens[i] = token
        return tokens

    def _prompt_logprobs(
        self, chunk: ScheduledChunk, sequence: KnownSequence, start: int, hidden: _Hidden
    ) -> tuple[TokenLogprobs | None, ...]:
        """Return those of the prompt tokens that this chunk predicts, None for the first of all."""
        num_top = sequence.params.prompt_logprobs
        assert num_top is not None, "the scheduler wants them only where they were asked for"
        stop = min(chunk.start + chunk.num_tokens, sequence.num_prompt_tokens - 1)
        found: list[TokenLogprobs | None] = [None] if chunk.start == 0 else []
        for low in range(chunk.start, stop, _LOGITS_ROWS):
            high = min(low + _LOGITS_ROWS, stop)
            rows = range(start + low - chunk.start, start + high - chunk.start)
            targets = sequence.token_ids[low + 1 : high + 1]
            found += prompt_logprobs(self._logits(hidden, rows), targets, num_top)
        return tuple(found)

    def _capture(self, chunk: ScheduledChunk, start: int, hidden: _Hidden) -> None:
        kept = self._captures[chunk.request_id]
        for offset in range(0, chunk.num_tokens, _LOGITS_ROWS):
            stop = min(offset + _LOGITS_ROWS, chunk.num_tokens)
            wanted = [i for i in range(offset, stop) if chunk.start + i in kept]
            if not wanted:
                continue
            logits_NV = self._logits(hidden, [start + i for i in wanted]).cpu()
            for i, logits_V in zip(wanted, logits_NV, strict=True):
                kept[chunk.start + i] = logits_V


def _first_rows(chunks: Sequence[ScheduledChunk]) -> list[int]:
    starts, row = [], 0
    for chunk in chunks:
        starts.append(row)
        row += chunk.num_tokens
    return starts


def _sample_row(chunk: ScheduledChunk, sequence: KnownSequence) -> SampleRow:
    return SampleRow(
        *sequence.sequence_id,
        sequence.params,
        sequence.seed,
        chunk.start + chunk.num_tokens,  # position
        sequence.token_ids,
        sequence.num_prompt_tokens,
        sequence.eos_token_ids,
        sequence.bad_words_ids,
    )


def _result(token: Sampled | None, prompt_logprobs: tuple[TokenLogprobs | None, ...]) -> StepResult:
    if prompt_logprobs and any(each and math.isnan(each.logprob) for each in prompt_logprobs):
        return StepResult(error="the model produced logits that are no numbers for the prompt")
    if token is None:
        return StepResult((), (), prompt_logprobs, None)
    if token.error is not None:
        return StepResult((), (), prompt_logprobs, token.error)
    logprobs = () if token.logprobs is None else (token.logprobs,)
    return StepResult((token.token_id,), logprobs, prompt_logprobs, None)
