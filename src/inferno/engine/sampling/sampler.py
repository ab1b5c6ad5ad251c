"""Turn rows of logits into tokens, each as its request asks, whatever else is in the batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from inferno import ops
from inferno.engine.sampling.constraints import Mask, MaskKey
from inferno.engine.sampling.logits_processors import LogitsProcessors, LogitsRow, is_processed
from inferno.engine.step_plan import SequenceId
from inferno.ops import Purpose, SamplingSpec, SamplingSpecs, Upload
from inferno.requests import SamplingParams, TokenLogprobs


class Sampled(NamedTuple):
    """The result of one row: a token, or the reason why there is none (token_id is 0 then)."""

    token_id: int
    logprobs: TokenLogprobs | None
    error: str | None


@dataclass(frozen=True, slots=True, eq=False)
class ProcessedRows:
    """Processed rows of logits, from which tokens may be chosen again with other masks.

    raw_logits_RV   the model's own logits; the processed tensor itself where they are equal or not
                    asked for.
    raw_peak_R      the largest of each raw row, NaN where one is NaN; peak_R, token_R: the
                    likeliest of each processed row.
    specs           how each row is drawn; None if every row gets the likeliest token.
    """

    rows: Sequence[LogitsRow]
    logits_RV: Tensor
    raw_logits_RV: Tensor
    raw_peak_R: Tensor
    peak_R: Tensor
    token_R: Tensor
    specs: SamplingSpecs | None


class Sampler:
    """The chooser of tokens: processes logits (logits_processors.py), then draws tokens (ops).

    Order: biases, bans, penalties; the likeliest token if greedy; else temperature, min-p, top-k,
    top-p. It is vLLM's: top-p measures probability among the tokens that min-p and top-k leave.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._processors = LogitsProcessors(vocab_size, device)
        self._num_words = -(-vocab_size // 32)
        self._upload: Upload | None = None  # of masks, made when there are some
        self._raw_RV: Tensor | None = None  # logits as they were, where a step needs both
        self._params: list[SamplingParams] = []
        self._specs: SamplingSpecs | None = None

    def forget(self, sequence_ids: Iterable[SequenceId]) -> None:
        """Drop what is kept of these sequences; afterwards others may use their ids."""
        self._processors.forget(sequence_ids)

    def prompt_logprobs(
        self, logits_RV: Tensor, token_ids: Sequence[int], num_top: int
    ) -> list[TokenLogprobs]:
        """Return a prompt's log-probabilities and ranks, computed where tokens are chosen.

        logits_RV   [R, V], on any device; token_ids: of each row, the prompt's next token; num_top:
                    the likeliest tokens of each row that are told as well.
        """
        return prompt_logprobs(logits_RV.to(self._device), token_ids, num_top)

    def sample(
        self,
        logits_RV: Tensor,
        rows: Sequence[LogitsRow],
        masks: Mapping[MaskKey, Mask] | None = None,
    ) -> list[Sampled]:
        """Choose a token for each row; only a row that can't have one gets an error.

        A row's result depends on that row, and its mask, alone. See `process` for logits_RV.
        """
        if not rows:
            return []
        return self.choose(self.process(logits_RV, rows), masks or {})

    def process(
        self, logits_RV: Tensor, rows: Sequence[LogitsRow], drawn_N: Tensor | None = None
    ) -> ProcessedRows:
        """Process one or more rows of logits as their requests ask.

        logits_RV: [len(rows), vocab_size], the sampler's to overwrite. The result holds until the
        next call.
        drawn_N: the tokens of the last draw by row, where some rows have a pending one.
        """
        assert logits_RV.shape == (len(rows), self._vocab_size), logits_RV.shape
        logits_RV = raw_logits_RV = logits_RV.to(self._device, torch.float32)
        raw_peak_R, token_R = ops.argmax(logits_RV)
        peak_R = raw_peak_R
        processed = {i: row for i, row in enumerate(rows) if is_processed(row)}
        is_told = bool(processed) and any(row.params.logprobs is not None for row in rows)
        self._raw_RV = self._room_for(logits_RV) if is_told else None
        if self._raw_RV is not None:
            raw_logits_RV = self._raw_RV[: len(rows)].copy_(logits_RV)
        self._processors.process(logits_RV, processed, drawn_N)
        if processed:
            peak_R, token_R = ops.argmax(logits_RV)
        specs = self.specs_of([row.params for row in rows])
        return ProcessedRows(rows, logits_RV, raw_logits_RV, raw_peak_R, peak_R, token_R, specs)

    def _room_for(self, logits_RV: Tensor) -> Tensor:
        """Return memory for a copy of these rows, the same for more and fewer as far as it goes.

        New memory of another size in each step would leave the heap full of holes.
        """
        if self._raw_RV is not None and len(self._raw_RV) >= len(logits_RV):
            return self._raw_RV
        num_rows = 1 << (len(logits_RV) - 1).bit_length()
        return torch.empty((num_rows, self._vocab_size), device=self._device)

    def choose(
        self,
        processed: ProcessedRows,
        masks: Mapping[MaskKey, Mask],
        places: Sequence[int] | None = None,
    ) -> list[Sampled]:
        """Choose a token for each row, or for the rows at some places, among those its mask allows.

        A row without a mask may get any token. The logits are not changed.
        """
        rows = processed.rows
        places = range(len(rows)) if places is None else places
        found = {i: masks.get((rows[i].sequence_id, rows[i].position)) for i in places}
        sampled, stuck = self._choose(processed, found)
        if stuck:
            freed = self._freed([rows[i] for i in stuck])
            of_freed = {place: found[i] for place, i in enumerate(stuck)}
            sampled |= zip(stuck, self._choose(freed, of_freed)[0].values(), strict=True)
        explained = [i for i in places if rows[i].params.logprobs is not None]
        if explained:
            _explain(sampled, explained, processed.raw_logits_RV, rows)
        return [sampled[i] for i in places]

    def _choose(
        self, processed: ProcessedRows, masks: Mapping[int, Mask | None]
    ) -> tuple[dict[int, Sampled], list[int]]:
        """Return what is chosen for these rows, and those whose bans leave nothing of a mask."""
        logits_RV, rows = processed.logits_RV, processed.rows
        allowed_RW, peak_R, token_R = None, processed.peak_R, processed.token_R.clone()
        if len(masks) < len(rows) or any(mask is not None for mask in masks.values()):
            allowed_RW = self._send(masks, len(rows))
            peak_R, token_R = ops.argmax(logits_RV, allowed_RW=allowed_RW)
        if processed.specs is not None:
            uniform_R = _uniform(rows, self._device)
            ops.draw(
                logits_RV, peak_R, processed.specs, uniform_R, allowed_RW=allowed_RW, out=token_R
            )
        # Float64 holds all three, so that they come in one copy.
        found_3R = torch.stack((token_R.double(), processed.raw_peak_R.double(), peak_R.double()))
        token_ids, raw_peaks, peaks = found_3R.tolist()
        sampled = {i: result_of(rows[i], int(token_ids[i]), raw_peaks[i], peaks[i]) for i in masks}
        stuck = [
            i
            for i, mask in masks.items()
            if mask is not None and peaks[i] == -math.inf and math.isfinite(raw_peaks[i])
        ]
        return sampled, stuck

    def _send(self, masks: Mapping[int, Mask | None], num_rows: int) -> Tensor:
        """Send the masks of rows to the device, [R, W] int32; of rows not asked for nothing is."""
        num_values = -(-num_rows * self._num_words // 2)
        if self._upload is None or len(self._upload.device_N) < num_values:
            self._upload = ops.new_upload(2 * num_values, self._device)
        host_N = self._upload.begin().numpy().view(np.int32)[: num_rows * self._num_words]
        words_RW = host_N.reshape(num_rows, self._num_words)
        words_RW[:] = 0
        for i, mask in masks.items():
            words_RW[i] = -1 if mask is None else mask
        self._upload.send(num_values)
        words_N = self._upload.device_N.view(torch.int32)[: words_RW.size]
        return words_N.view(words_RW.shape)

    def _freed(self, rows: Sequence[LogitsRow]) -> ProcessedRows:
        """Return rows in which all tokens are equal but for penalties: bans leave none of a mask.

        So the mask stands, and a document that is complete ends before min_tokens.
        """
        logits_RV = torch.zeros((len(rows), self._vocab_size), device=self._device)
        self._processors.penalize(logits_RV, dict(enumerate(rows)))
        peak_R, token_R = ops.argmax(logits_RV)
        specs = self._tabulate([row.params for row in rows])
        return ProcessedRows(rows, logits_RV, logits_RV, peak_R, peak_R, token_R, specs)

    def specs_of(self, params: list[SamplingParams]) -> SamplingSpecs | None:
        """Return how each row of a batch is drawn; None if none is. The result is kept."""
        if params != self._params:  # the same objects, as a rule, which takes no time to see
            self._params, self._specs = [], None  # until these are made, none are known
            self._specs = self._tabulate(params)
            self._params = params
        return self._specs

    def _tabulate(self, params: Sequence[SamplingParams]) -> SamplingSpecs | None:
        """Return how each row is drawn; None if none is."""
        specs = [SamplingSpec.of(row_params, self._vocab_size) for row_params in params]
        if all(spec.temperature == 0.0 for spec in specs):
            return None
        return ops.sampling_specs(specs, self._device)


def explained_ids(logits_RV: Tensor, token_R1: Tensor, num_top: int) -> Tensor:
    """Return the tokens to tell log-probabilities of: each row's own, then the likeliest."""
    if num_top == 0:
        return token_R1
    return torch.cat((token_R1, ops.top_tokens(logits_RV, num_top)), dim=1)


def explanation(
    token_ids: Sequence[int], logprobs: Sequence[float], num_top: int | None = None
) -> TokenLogprobs:
    """Return the log-probabilities told of a row; num_top of the likeliest tokens, None for all."""
    (token_id, *top_ids), (logprob, *top_logprobs) = token_ids, logprobs
    top = tuple(zip(top_ids, top_logprobs, strict=True))
    return TokenLogprobs(token_id, logprob, top if num_top is None else top[:num_top])


def token_logprobs(
    logits_RV: Tensor, token_ids: Sequence[int], num_top: int
) -> list[TokenLogprobs]:
    """Return the log-probability of token_ids[i] in row i, and of the row's num_top likeliest.

    Log-probabilities are of softmax(logits), before temperature and anything else.
    """
    logits_RV = logits_RV.float()
    token_R1 = torch.tensor(token_ids, device=logits_RV.device).unsqueeze(1)
    ids_RC = explained_ids(logits_RV, token_R1, num_top)
    logprob_RC = ops.log_probabilities(logits_RV, ids_RC)
    return list(map(explanation, ids_RC.tolist(), logprob_RC.tolist()))


def prompt_logprobs(
    logits_RV: Tensor, token_ids: Sequence[int], num_top: int
) -> list[TokenLogprobs]:
    """Return what `token_logprobs` returns, with ranks; equal logits rank by lower id."""
    found = token_logprobs(logits_RV, token_ids, num_top)
    id_R1 = torch.tensor(token_ids, device=logits_RV.device).unsqueeze(1)
    own_R1 = logits_RV.gather(1, id_R1)
    id_1V = torch.arange(logits_RV.shape[1], device=logits_RV.device).unsqueeze(0)
    is_before_RV = (logits_RV > own_R1) | ((logits_RV == own_R1) & (id_1V < id_R1))
    ranks = (is_before_RV.sum(dim=1) + 1).tolist()
    return [replace(each, rank=rank) for each, rank in zip(found, ranks, strict=True)]


def non_finite(position: int, peak: float) -> str:
    """Return the error message of a position whose largest logit is not a finite number."""
    return (
        f"the model produced non-finite logits at position {position} (the largest is {peak}): its "
        "weights or its precision are at fault; check the checkpoint's files, or use float32"
    )


def _uniform(rows: Sequence[LogitsRow], device: torch.device) -> Tensor:
    """Return the random number of each row, [R]."""
    return ops.uniform(
        [row.seed for row in rows],
        [row.sequence_id.sequence_index for row in rows],
        [row.position for row in rows],
        Purpose.SAMPLE,
        device,
    )


def result_of(row: LogitsRow, token_id: int, raw_peak: float, peak: float) -> Sampled:
    """Return the result of a row, by its largest logits: the model's own, and after processing."""
    if not math.isfinite(raw_peak):
        return Sampled(0, None, non_finite(row.position, raw_peak))
    if not math.isfinite(peak):
        return Sampled(
            0,
            None,
            f"no token may be chosen at position {row.position}: allowed_token_ids, bad_words and "
            "min_tokens together ban all of them; relax one of these",
        )
    return Sampled(token_id, None, None)


def _explain(
    sampled: dict[int, Sampled],
    indices: Sequence[int],
    raw_logits_RV: Tensor,
    rows: Sequence[LogitsRow],
) -> None:
    """Add log-probabilities to the results of some rows."""
    asked = [rows[i].params.logprob_token_ids for i in indices]
    nums_top = [
        0 if ids else rows[i].params.logprobs or 0 for i, ids in zip(indices, asked, strict=True)
    ]
    token_ids = [sampled[i].token_id for i in indices]
    if len(indices) < len(rows):
        raw_logits_RV = raw_logits_RV[torch.tensor(indices, device=raw_logits_RV.device)]
    found = token_logprobs(raw_logits_RV, token_ids, max(nums_top))
    told = _of_asked(raw_logits_RV, asked) if any(asked) else [()] * len(asked)
    for i, num_top, logprobs, others in zip(indices, nums_top, found, told, strict=True):
        if sampled[i].error is None:
            top = (*logprobs.top[:num_top], *others)
            sampled[i] = sampled[i]._replace(logprobs=replace(logprobs, top=top))


def _of_asked(
    logits_RV: Tensor, token_ids: Sequence[Sequence[int]]
) -> list[tuple[tuple[int, float], ...]]:
    """Return the log-probabilities in row i of token_ids[i], which may be none."""
    most = max(map(len, token_ids))
    ids_RC = torch.tensor(
        [[*ids, *[0] * (most - len(ids))] for ids in token_ids], device=logits_RV.device
    )
    logprobs_RC = ops.log_probabilities(logits_RV, ids_RC).tolist()
    return [
        tuple(zip(ids, row[: len(ids)], strict=True))
        for ids, row in zip(token_ids, logprobs_RC, strict=True)
    ]
