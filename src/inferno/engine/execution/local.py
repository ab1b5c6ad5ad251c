"""Run plans on one device in this process: build the batch, run the model, sample."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from inferno.engine.execution.batcher import Batcher
from inferno.engine.execution.first_layers import FirstLayers
from inferno.engine.execution.footprint import Footprint
from inferno.engine.execution.known_sequences import KnownSequence, KnownSequences
from inferno.engine.execution.runner import Runner
from inferno.engine.execution.static_batcher import DrawInputs, StaticBatcher
from inferno.engine.kv.kv_cache import HostCache
from inferno.engine.sampling.constraints import Mask, MaskKey, only_token
from inferno.engine.sampling.device_draws import (
    DeviceDraws,
    Drawn,
    DrawRows,
    is_free,
    logits_row,
    num_demanding,
)
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import ProcessedRows, Sampled, Sampler
from inferno.engine.step_plan import (
    DrawnTokens,
    NextTokens,
    ScheduledChunk,
    StepPlan,
    StepResult,
)
from inferno.ops import Batch, KernelContext
from inferno.plan.choices import SMALL_STEP
from inferno.requests import TokenLogprobs

# Logits of many positions are made and used in slices, so that a long prompt with a vocabulary of
# 150,000 takes 40 MB at a time and not gigabytes.
LOGITS_ROWS = 64


@dataclass(frozen=True, slots=True)
class _Hidden:
    """The hidden states of a step: of its row r in places[r], or of all rows in their order."""

    states_NE: Tensor
    places: Mapping[int, int] | None

    def find(self, rows: Sequence[int]) -> Sequence[int]:
        return rows if self.places is None else [self.places[row] for row in rows]


class Ahead(NamedTuple):
    """The parts for a device that computes on its own: see `StaticBatcher`, `DeviceDraws`."""

    batcher: StaticBatcher
    draws: DeviceDraws


@dataclass(slots=True, eq=False, weakref_slot=True)
class LocalStep:
    """A step of a LocalExecutor between its forward pass and its results.

    free        the step's rows of logits, where the device can draw them all by itself; inputs:
                what that draw reads.
    drawn       the tokens that the device draws from these rows, on their way to the host.
    processed   the step's rows of processed logits, which are kept for rows that are drawn again,
                until another step's are made.
    has_places  whether the records of its sequences name these rows already, by the last draw.
    """

    executor: LocalExecutor
    chunks: Sequence[ScheduledChunk]
    sequences: Sequence[KnownSequence]
    starts: Sequence[int]
    hidden: _Hidden
    wanted: Sequence[int]
    free: DrawRows | None = None
    inputs: DrawInputs | None = None
    drawn: Drawn | None = None
    results: Sequence[StepResult] | None = None
    processed: ProcessedRows | None = None
    has_places: bool = False

    @property
    def is_free(self) -> bool:
        return self.free is not None

    def sample(self, masks: Mapping[MaskKey, Mask]) -> None:
        assert self.results is None, "a step is sampled once"
        assert self.drawn is None, "a step is sampled once"
        if self.free is None or masks:
            self.results = self.executor.sample(self, masks)
        else:
            self.drawn = self.executor.draw(self)

    def redraw(self, masks: Mapping[MaskKey, Mask]) -> None:
        assert self.results is not None, "a step is sampled before parts of it are again"
        self.results = self.executor.redraw(self, self.results, masks)

    def take_back(self, places: Sequence[int]) -> None:
        results = list(self.result())
        for place in places:
            token_ids, num_drawn = self.sequences[place].token_ids, len(results[place].token_ids)
            del token_ids[len(token_ids) - num_drawn :]
            results[place] = results[place]._replace(token_ids=(), logprobs=())
        self.results = results

    def result(self) -> Sequence[StepResult]:
        if self.results is None:
            assert self.drawn is not None, "a step is sampled before its results are asked for"
            self.results = _results_of(self, self.drawn)
        return self.results


class LocalExecutor:
    """The executor of one device in this process; owns batcher, runner, sampler and records.

    first_layers    the layers that a proposer runs ahead of steps; the executor then runs the other
                    layers.
    host_cache      the host memory to which plans copy blocks; None where no plan does.
    ahead   the parts that take the batcher's place for a device that computes while the host goes
            on.
    depth   see Executor. Without `ahead` a step is computed when it is launched and sampled, so
            more than 0 gains nothing then; it is for tests of what a device does.
    """

    def __init__(
        self,
        batcher: Batcher,
        runner: Runner,
        sampler: Sampler,
        kernels: KernelContext,
        *,
        first_layers: FirstLayers | None = None,
        host_cache: HostCache | None = None,
        ahead: Ahead | None = None,
        depth: int = 0,
    ) -> None:
        self._batcher = batcher
        self._runner = runner
        self._first_layers = first_layers
        self._host_cache = host_cache
        self._sampler = sampler
        self._kernels = kernels
        self._ahead = ahead
        self._depth = depth
        self._last: LocalStep | None = None
        self._is_last_fixed = False  # the last long step's places
        self._processed: weakref.ref[LocalStep] | None = None  # the step that has processed rows
        self._sequences = KnownSequences()
        self._captures: dict[str, dict[int, Tensor]] = {}

    @property
    def depth(self) -> int:
        return self._depth

    @property
    def footprint(self) -> Footprint:
        return self._runner.footprint

    def widen_tables(self, num_tokens: int) -> None:
        if self._ahead is not None:  # others look no further than a request's own blocks
            self._ahead.batcher.widen_tables(num_tokens)

    def release_memory(self) -> None:
        self._sampler.forget(self._sequences.ids)
        self._sequences.clear()
        self._last = None
        if self._first_layers is not None:
            self._first_layers.clear()
        self._kernels.release_memory()

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> LocalStep:
        with self._kernels:
            gone = self._sequences.gone(plan)
            if gone:
                self._sampler.forget(gone)
            chunks, sequences = self._sequences.follow(plan)
            if self._host_cache is not None:
                self._host_cache.copy(plan.copies)
            if self._ahead is not None:
                return self._launch_ahead(chunks, sequences, plan.next, self._ahead)
            starts = _first_rows(chunks)
            wanted = self._wanted_rows(chunks, starts)
            stream_TE = layers = None
            if self._first_layers is not None:
                stream_TE, layers = self._first_layers.take(chunks, sequences)
            batch = self._batcher.build(chunks, sequences, wanted)
            self._release_other_results(batch)
            states_NE = self._runner.forward(batch, layers, stream_TE)
        places = None if batch.rows_N is None else {row: i for i, row in enumerate(wanted)}
        hidden = _Hidden(states_NE, places)
        return LocalStep(self, chunks, sequences, starts, hidden, wanted)

    def _release_other_results(self, batch: Batch) -> None:
        """Let go of the arena that this long step doesn't use, if the last long one used it.

        Recorded steps have one of their own. Both full would be twice the memory; to fill one again
        should take about a hundredth of such a step (an estimate, of its page faults).
        """
        if len(batch.token_ids_T) > SMALL_STEP and batch.is_fixed != self._is_last_fixed:
            self._is_last_fixed = batch.is_fixed
            self._kernels.release_memory()

    def _launch_ahead(
        self,
        chunks: Sequence[ScheduledChunk],
        sequences: list[KnownSequence],
        next_tokens: NextTokens | None,
        ahead: Ahead,
    ) -> LocalStep:
        """Launch a step on a device that computes on its own.

        One that continues the last step is drawn like that, but for the positions.
        """
        batcher, draws = ahead
        last, self._last = self._last, None
        has_places = False
        if (
            last is not None
            and last.free is not None
            and not self._captures
            and batcher.continues(chunks, sequences, next_tokens)
        ):
            starts, wanted, rows = last.starts, last.wanted, last.free.next()
            has_places = next_tokens is not None and last.drawn is not None
            is_drawn = has_places and last.results is None
            numbers = draws.numbers(rows)
            batch = batcher.go_on(sequences, numbers, next_tokens, is_drawn=is_drawn)
            free: DrawRows | None = rows
        else:
            starts = _first_rows(chunks)
            wanted = self._wanted_rows(chunks, starts)
            free = self._free_rows(chunks, sequences)
            numbers = None if free is None else draws.numbers(free)
            batch = batcher.build(chunks, sequences, wanted, numbers)
        states_NE = self._runner.forward(batch)
        places = None if batch.rows_N is None else {row: i for i, row in enumerate(wanted)}
        hidden = _Hidden(states_NE, places)
        step = LocalStep(self, chunks, sequences, starts, hidden, wanted, free)
        step.has_places = has_places
        step.inputs = batcher.draw_inputs
        self._last = step
        return step

    def _free_rows(
        self, chunks: Sequence[ScheduledChunk], sequences: Sequence[KnownSequence]
    ) -> DrawRows | None:
        """Return the rows of a step, of which there may be none; None if one isn't free."""
        rows, most_demanding = DrawRows([], [], [], [], [], 0), 0
        for chunk, sequence in zip(chunks, sequences, strict=True):
            position = chunk.start + chunk.num_tokens
            if chunk.wants_token:
                if chunk.proposed_token_ids or not is_free(sequence):
                    return None
                most_demanding = max(most_demanding, num_demanding(sequence, position))
                rows.sequences.append(sequence)
                rows.params.append(sequence.params)
                rows.seeds.append(sequence.seed)
                rows.sequence_indices.append(chunk.sequence_index)
                rows.positions.append(position)
            if chunk.wants_prompt_logprobs or self._is_captured(chunk):
                return None
        return rows._replace(num_demanding=most_demanding)

    @torch.inference_mode()
    def draw(self, step: LocalStep) -> Drawn:
        """Begin to choose the tokens of a step whose rows the device can all draw by itself."""
        free, inputs, ahead = step.free, step.inputs, self._ahead
        if free is None or not free.positions:
            return Drawn(None, ())
        num_rows = len(free.positions)
        assert ahead is not None, "other devices draw nothing by themselves"
        assert inputs is not None, "they are set when a step is launched"
        with self._kernels:
            logits_RV = self._runner.logits_at(step.hidden.states_NE, inputs.rows_N, num_rows)
            drawn = ahead.draws.draw(logits_RV, free, inputs.uniform_N)
        if not step.has_places:
            row = 0
            for chunk, sequence in zip(step.chunks, step.sequences, strict=True):
                if chunk.wants_token:
                    sequence.pending_row = row
                    row += 1
        return drawn

    @torch.inference_mode()
    def sample(self, step: LocalStep, masks: Mapping[MaskKey, Mask]) -> list[StepResult]:
        """Choose the tokens of a step, and append them to the records of its sequences."""
        with self._kernels:
            tokens = self._choose(step, masks)
            results = []
            for chunk, sequence, start, chosen in zip(
                step.chunks, step.sequences, step.starts, tokens, strict=True
            ):
                prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
                if chunk.wants_prompt_logprobs:
                    prompt_logprobs = self._prompt_logprobs(chunk, sequence, start, step.hidden)
                if self._is_captured(chunk):
                    self._capture(chunk, start, step.hidden)
                result = _result(chosen, prompt_logprobs)
                for token in chosen:
                    sequence.token_ids.append(token.token_id)
                results.append(result)
        return results

    @torch.inference_mode()
    def redraw(
        self, step: LocalStep, results: Sequence[StepResult], masks: Mapping[MaskKey, Mask]
    ) -> list[StepResult]:
        """Choose tokens again for the chunks named in `masks`; return the results of all."""
        redrawn = {sequence_id for sequence_id, _ in masks}
        places = [i for i, chunk in enumerate(step.chunks) if chunk.sequence_id in redrawn]
        for i in places:
            token_ids = step.sequences[i].token_ids
            del token_ids[len(token_ids) - len(results[i].token_ids) :]
        part = replace(
            step,
            chunks=[step.chunks[i] for i in places],
            sequences=[step.sequences[i] for i in places],
            starts=[step.starts[i] for i in places],
            results=None,
        )
        found = list(results)
        with self._kernels:
            tokens = self._choose(part, masks)
        for i, chosen in zip(places, tokens, strict=True):
            step.sequences[i].token_ids += [token.token_id for token in chosen]
            found[i] = _result(chosen, results[i].prompt_logprobs)
        return found

    def capture_logits(self, request_id: str, positions: Iterable[int]) -> None:
        self._captures[request_id] = {position: torch.empty(0) for position in positions}

    def take_logits(self, request_id: str) -> list[Tensor]:
        return list(self._captures.pop(request_id, {}).values())

    def _wanted_rows(self, chunks: Sequence[ScheduledChunk], starts: Sequence[int]) -> list[int]:
        """List the rows whose logits will be asked for."""
        rows: list[int] = []
        for chunk, start in zip(chunks, starts, strict=True):
            end = start + chunk.num_tokens
            if chunk.wants_prompt_logprobs or self._is_captured(chunk):
                rows += range(start, end)
            elif chunk.wants_token:
                rows += range(end - chunk.num_sampled_rows, end)
        return rows

    def _is_captured(self, chunk: ScheduledChunk) -> bool:
        return bool(self._captures) and chunk.request_id in self._captures

    def _logits(self, hidden: _Hidden, rows: Sequence[int]) -> Tensor:
        return self._runner.logits(hidden.states_NE, hidden.find(rows))

    def _choose(self, step: LocalStep, masks: Mapping[MaskKey, Mask]) -> list[Sequence[Sampled]]:
        """Return the tokens of each chunk that stand, none where it wants none."""
        rows: list[int] = []
        uses: list[LogitsRow] = []
        has_proposals = False
        for chunk, sequence, start in zip(step.chunks, step.sequences, step.starts, strict=True):
            if chunk.proposed_token_ids:
                has_proposals = True
                end = start + chunk.num_tokens
                rows += range(end - chunk.num_sampled_rows, end)
                uses += _logits_rows(chunk, sequence)
            elif chunk.wants_token:
                rows.append(start + chunk.num_tokens - 1)
                uses.append(logits_row(sequence, chunk.start + chunk.num_tokens))
        if not rows:
            return [()] * len(step.chunks)
        sampled = self._sample_rows(step, rows, uses, masks)
        if not has_proposals:
            each = iter(sampled)
            return [(next(each),) if chunk.wants_token else () for chunk in step.chunks]
        tokens: list[Sequence[Sampled]] = []
        row = 0
        for chunk in step.chunks:
            end = row + chunk.num_sampled_rows
            tokens.append(_that_stand(sampled[row:end], chunk.proposed_token_ids))
            row = end
        return tokens

    def _sample_rows(
        self,
        step: LocalStep,
        rows: Sequence[int],
        uses: Sequence[LogitsRow],
        masks: Mapping[MaskKey, Mask],
    ) -> Sequence[Sampled]:
        """Return what is chosen for each row; one whose mask has one token needs no logits."""
        sampled: list[Sampled | None] = [None] * len(uses)
        if masks:
            sampled = [_only_choice(use, masks) for use in uses]
        open_rows = [i for i, known in enumerate(sampled) if known is None]
        if open_rows:
            open_uses = [uses[i] for i in open_rows]
            places = _places(step.processed, open_uses)
            if step.processed is None or places is None:
                self._drop_processed()
                logits_RV = self._logits(step.hidden, [rows[i] for i in open_rows])
                step.processed = self._sampler.process(logits_RV, open_uses)
                self._processed = weakref.ref(step)
            drawn = self._sampler.choose(step.processed, masks, places)
            for i, each in zip(open_rows, drawn, strict=True):
                sampled[i] = each
        return [each for each in sampled if each is not None]

    def _drop_processed(self) -> None:
        """Drop the logits of the step before: those of a vocabulary take tens of megabytes."""
        step = self._processed() if self._processed is not None else None
        if step is not None:
            step.processed = None

    def _prompt_logprobs(
        self, chunk: ScheduledChunk, sequence: KnownSequence, start: int, hidden: _Hidden
    ) -> tuple[TokenLogprobs | None, ...]:
        """Return those of the prompt tokens that this chunk predicts, None for the first of all."""
        num_top = sequence.params.prompt_logprobs
        assert num_top is not None, "the scheduler wants them only where they were asked for"
        stop = min(chunk.start + chunk.num_tokens, sequence.num_prompt_tokens - 1)
        found: list[TokenLogprobs | None] = [None] if chunk.start == 0 else []
        for low in range(chunk.start, stop, LOGITS_ROWS):
            high = min(low + LOGITS_ROWS, stop)
            rows = range(start + low - chunk.start, start + high - chunk.start)
            targets = sequence.token_ids[low + 1 : high + 1]
            logits_NV = self._logits(hidden, rows)
            found += self._sampler.prompt_logprobs(logits_NV, targets, num_top)
        return tuple(found)

    def _capture(self, chunk: ScheduledChunk, start: int, hidden: _Hidden) -> None:
        kept = self._captures[chunk.request_id]
        for offset in range(0, chunk.num_tokens, LOGITS_ROWS):
            stop = min(offset + LOGITS_ROWS, chunk.num_tokens)
            wanted = [i for i in range(offset, stop) if chunk.start + i in kept]
            if not wanted:
                continue
            logits_NV = self._logits(hidden, [start + i for i in wanted]).cpu()
            for i, logits_V in zip(wanted, logits_NV, strict=True):
                kept[chunk.start + i] = logits_V


def _results_of(step: LocalStep, drawn: Drawn) -> Sequence[StepResult]:
    """Wait for the tokens of a step and append them to what is known of its sequences."""
    token_ids, told = drawn.wait()
    if len(token_ids) == len(step.chunks) and not told:
        for sequence, token_id in zip(step.sequences, token_ids, strict=True):
            sequence.token_ids.append(token_id)
        return DrawnTokens(token_ids)
    results, row = [], 0
    for chunk, sequence in zip(step.chunks, step.sequences, strict=True):
        if not chunk.wants_token:
            results.append(StepResult())
            continue
        # A sequence without a token ends; the step in flight reads what lies in its place.
        sequence.token_ids.append(token_ids[row])
        more = told.get(row)
        results.append(StepResult((token_ids[row],)) if more is None else _result((more,), ()))
        row += 1
    return results


def _only_choice(row: LogitsRow, masks: Mapping[MaskKey, Mask]) -> Sampled | None:
    """Return the one token that a row's mask allows, if nobody asks how likely it is."""
    mask = masks.get((row.sequence_id, row.position))
    if mask is None or row.params.logprobs is not None:
        return None
    token_id = only_token(mask)
    return None if token_id is None else Sampled(token_id, None, None)


def _places(processed: ProcessedRows | None, uses: Sequence[LogitsRow]) -> list[int] | None:
    """Return where these rows are among those that were processed; None if one isn't."""
    if processed is None:
        return None
    places = {(row.sequence_id, row.position): i for i, row in enumerate(processed.rows)}
    found = [places.get((use.sequence_id, use.position)) for use in uses]
    known = [place for place in found if place is not None]
    return known if len(known) == len(found) else None


def _first_rows(chunks: Sequence[ScheduledChunk]) -> list[int]:
    starts, row = [], 0
    for chunk in chunks:
        starts.append(row)
        row += chunk.num_tokens
    return starts


def _logits_rows(chunk: ScheduledChunk, sequence: KnownSequence) -> Iterator[LogitsRow]:
    """Yield what the rows of a chunk with proposals are for; the first follows none of these."""
    proposed = chunk.proposed_token_ids
    first = chunk.start + chunk.num_tokens - len(proposed)
    for count in range(chunk.num_sampled_rows):
        yield logits_row(sequence, first + count, proposed[:count])


def _that_stand(sampled: Sequence[Sampled], proposed: Sequence[int]) -> Sequence[Sampled]:
    """Return the tokens up to the first that is not what was proposed: those after it mean nothing.

    So every token is the one that would have been drawn without proposals. A row that can't have
    one is left to the next step, in which it is the first.
    """
    for i, token_id in enumerate(proposed):
        if sampled[i].token_id != token_id or sampled[i + 1].error is not None:
            return sampled[: i + 1]
    return sampled


def _result(
    chosen: Sequence[Sampled], prompt_logprobs: tuple[TokenLogprobs | None, ...]
) -> StepResult:
    if prompt_logprobs and any(each and math.isnan(each.logprob) for each in prompt_logprobs):
        return StepResult(error="the model produced logits that are no numbers for the prompt")
    if not chosen:
        return StepResult((), (), prompt_logprobs, None)
    first = chosen[0]
    if first.error is not None:
        return StepResult((), (), prompt_logprobs, first.error)
    if len(chosen) == 1:
        logprobs = () if first.logprobs is None else (first.logprobs,)
        return StepResult((first.token_id,), logprobs, prompt_logprobs, None)
    return StepResult(
        tuple([token.token_id for token in chosen]),
        tuple([token.logprobs for token in chosen if token.logprobs is not None]),
        prompt_logprobs,
        None,
    )
