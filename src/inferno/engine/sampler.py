"""Turn rows of logits into tokens, each as its request asks, whoever shares the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import torch
from torch import Tensor

from inferno.engine.draw import (
    Cut,
    Scale,
    block_maxima,
    draw,
    draw_likeliest,
    draw_truncated,
    log_probabilities,
    top_tokens,
    total_mass,
    unit_weight,
)
from inferno.engine.logits import LogitShaper, SampleRow, is_shaped
from inferno.engine.philox import Purpose, uniform
from inferno.requests import SamplingParams, TokenLogprobs

__all__ = ["SampleRow", "Sampled", "Sampler", "token_logprobs"]

_SMALLEST_TEMPERATURE = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class Sampled:
    """What became of one row: a token, or the reason why there is none (token_id is 0 then)."""

    token_id: int
    logprobs: TokenLogprobs | None
    error: str | None


class Sampler:
    """Chooses tokens: logits are shaped (logits.py), then tokens are drawn (draw.py).

    Order: biases, bans, penalties; the likeliest token if greedy; else temperature, min-p, top-k,
    top-p. It is vLLM's: top-p measures probability among the tokens that min-p and top-k leave.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._shaper = LogitShaper()
        self._params: list[SamplingParams] = []
        self._groups: list[_Group] = []

    def sample(self, logits_RV: Tensor, rows: Sequence[SampleRow]) -> list[Sampled]:
        """Choose a token for each row; a row that can't have one gets an error, the others don't.

        logits_RV: [len(rows), vocab_size], the sampler's to overwrite. A row's result depends on
        that row alone.
        """
        assert logits_RV.shape == (len(rows), self._vocab_size), logits_RV.shape
        if not rows:
            return []
        logits_RV = logits_RV.to(self._device, torch.float32)
        explained = [i for i, row in enumerate(rows) if row.params.logprobs is not None]
        shaped = {i: row for i, row in enumerate(rows) if is_shaped(row)}
        raw_logits_RV = logits_RV.clone() if explained and shaped else logits_RV
        maxima_RB = block_maxima(logits_RV)
        raw_peak_R1 = peak_R1 = maxima_RB.amax(-1, keepdim=True)
        self._shaper.shape(logits_RV, shaped)
        if shaped:
            maxima_RB = block_maxima(logits_RV)
            peak_R1 = maxima_RB.amax(-1, keepdim=True)
        token_R = self._draw(logits_RV, maxima_RB, peak_R1, rows)
        outcome_R3 = torch.cat((token_R.unsqueeze(1).double(), raw_peak_R1, peak_R1), dim=1)
        sampled = list(map(_sampled, rows, outcome_R3.tolist()))
        if explained:
            _explain(sampled, explained, raw_logits_RV, rows)
        return sampled

    def _draw(
        self, logits_RV: Tensor, maxima_RB: Tensor, peak_R1: Tensor, rows: Sequence[SampleRow]
    ) -> Tensor:
        """A token for each row, [R], the rows of each method together."""
        params = [row.params for row in rows]
        if params != self._params:  # they are the same for many steps
            self._params = params
            self._groups = _group(params, self._vocab_size, self._device)
        if all(group.method is _Method.GREEDY for group in self._groups):
            return draw_likeliest(logits_RV, maxima_RB)
        uniform_R1 = _uniform(rows, self._device)
        token_R = torch.empty(len(rows), dtype=torch.int64, device=self._device)
        for group in self._groups:
            i = group.index
            token_R[i] = group.draw(logits_RV[i], maxima_RB[i], peak_R1[i], uniform_R1[i])
        return token_R


def token_logprobs(
    logits_RV: Tensor, token_ids: Sequence[int], num_top: int
) -> list[TokenLogprobs]:
    """Return the log-probability of token_ids[i] in row i, and of the row's num_top likeliest.

    They are those of softmax(logits), before temperature and anything else.
    """
    logits_RV = logits_RV.float()
    ids_RC = torch.tensor(token_ids, device=logits_RV.device).unsqueeze(1)
    if num_top > 0:
        ids_RC = torch.cat((ids_RC, top_tokens(logits_RV, num_top)), dim=1)
    logprob_RC = log_probabilities(logits_RV, ids_RC)
    return [
        TokenLogprobs(token_id, logprob, tuple(zip(top_ids, top_logprobs, strict=True)))
        for (token_id, *top_ids), (logprob, *top_logprobs) in zip(
            ids_RC.tolist(), logprob_RC.tolist(), strict=True
        )
    ]


class _Method(Enum):
    """How a token is drawn: rows of one method are drawn together."""

    GREEDY = auto()
    ALL = auto()  # from all tokens, or those that min-p leaves
    TOP_K = auto()  # from the top k, or the top p of those
    TOP_P = auto()  # from the top p of all


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows of a batch that one method draws, by number, and their parameters, [R, 1]."""

    method: _Method
    index: Tensor | slice
    temperature_R1: Tensor
    least_R1: Tensor | None
    top_k_R1: Tensor
    top_p_R1: Tensor

    def draw(
        self, logits_RV: Tensor, maxima_RB: Tensor, peak_R1: Tensor, uniform_R1: Tensor
    ) -> Tensor:
        """A token for each of the group's rows: [R]."""
        if self.method is _Method.GREEDY:
            return draw_likeliest(logits_RV, maxima_RB)
        unit = unit_weight(logits_RV.shape[1])
        scale = Scale(peak_R1, self.temperature_R1, self.least_R1, unit)
        if self.method is _Method.ALL:
            return draw(logits_RV, scale, uniform_R1)
        total_R1 = total_mass(logits_RV, scale) if self.method is _Method.TOP_P else None
        cut = Cut(self.top_k_R1, self.top_p_R1, total_R1)
        return draw_truncated(logits_RV, scale, cut, uniform_R1)


def _group(params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> list[_Group]:
    """The groups that a batch falls into."""
    members: dict[_Method, list[int]] = {}
    for i, row_params in enumerate(params):
        members.setdefault(_method(row_params, vocab_size), []).append(i)
    return [
        _tabulate(method, indices, params, vocab_size, device)
        for method, indices in members.items()
    ]


def _method(params: SamplingParams, vocab_size: int) -> _Method:
    if params.temperature == 0.0 or params.top_k == 1:
        return _Method.GREEDY
    if 0 < params.top_k < vocab_size:
        return _Method.TOP_K
    return _Method.TOP_P if params.top_p < 1.0 else _Method.ALL


def _tabulate(
    method: _Method,
    indices: Sequence[int],
    params: Sequence[SamplingParams],
    vocab_size: int,
    device: torch.device,
) -> _Group:
    """The parameters of some rows as tensors."""
    chosen = [params[i] for i in indices]
    unit = unit_weight(vocab_size)
    temperatures = [max(p.temperature, _SMALLEST_TEMPERATURE) for p in chosen]
    leasts = [p.min_p * unit for p in chosen]
    top_ks = [min(p.top_k, vocab_size) or vocab_size for p in chosen]
    return _Group(
        method=method,
        index=_index(indices, len(params), device),
        temperature_R1=_column(temperatures, torch.float32, device),
        least_R1=_column(leasts, torch.float32, device) if any(leasts) else None,
        top_k_R1=_column(top_ks, torch.int64, device),
        top_p_R1=_column([p.top_p for p in chosen], torch.float64, device),
    )


def _column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)


def _index(indices: Sequence[int], num_rows: int, device: torch.device) -> Tensor | slice:
    """Ascending row numbers as an index: a slice for all rows, which copies nothing."""
    if len(indices) == num_rows:
        return slice(None)
    return torch.tensor(indices, device=device)


def _uniform(rows: Sequence[SampleRow], device: torch.device) -> Tensor:
    """The random number of each row, [R, 1]."""
    numbers_R = uniform(
        seeds=[row.seed for row in rows],
        sample_index=[row.sample_index for row in rows],
        position=[row.position for row in rows],
        purpose=Purpose.SAMPLE,
    )
    return torch.from_numpy(numbers_R).unsqueeze(1).to(device)


def _sampled(row: SampleRow, outcome: tuple[float, float, float]) -> Sampled:
    """The result of a row from its token, its largest logit as the model made it, and as shaped."""
    token_id, raw_peak, peak = outcome
    if not math.isfinite(raw_peak):
        return Sampled(
            0,
            None,
            f"the model produced non-finite logits at position {row.position} (the largest is "
            f"{raw_peak}): its weights or its precision are at fault; check the checkpoint's "
            "files, or use float32",
        )
    if not math.isfinite(peak):
        return Sampled(
            0,
            None,
            f"no token may be chosen at position {row.position}: allowed_token_ids, bad_words and "
            "min_tokens together ban all of them; relax one of these",
        )
    return Sampled(int(token_id), None, None)


def _explain(
    sampled: list[Sampled],
    indices: Sequence[int],
    raw_logits_RV: Tensor,
    rows: Sequence[SampleRow],
) -> None:
    """Add log-probabilities to the results of some rows."""
    nums_top = [rows[i].params.logprobs or 0 for i in indices]
    token_ids = [sampled[i].token_id for i in indices]
    logits_EV = raw_logits_RV[_index(indices, len(rows), raw_logits_RV.device)]
    found = token_logprobs(logits_EV, token_ids, max(nums_top))
    for i, num_top, logprobs in zip(indices, nums_top, found, strict=True):
        if sampled[i].error is None:
            top = logprobs.top[:num_top]
            sampled[i] = replace(sampled[i], logprobs=replace(logprobs, top=top))
