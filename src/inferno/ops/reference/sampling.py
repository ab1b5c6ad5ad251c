"""Choose token ids from rows of logits, so that a row's choice depends on that row alone.

Probabilities are kept as weights: whole numbers, `unit_weight(V)` for the likeliest token. Any sum
of weights stays below 2**53, so float64 holds it exactly and the order of summation can't matter:
not the batch's, not the threads', not the device's.

Letters: R rows, V vocabulary, B blocks of the vocabulary, C candidates, likeliest first. A row that
is NaN or all -inf does no harm to others; its own token means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inferno.ops.drawing import Penalties, Purpose, SamplingSpec, SamplingSpecs
from inferno.ops.reference import philox

_BLOCK = 256  # tokens per block
_NUM_CANDIDATES = 256  # tried before the whole vocabulary is sorted
_CPU_CHUNK = 2**18  # logits weighed at a time: what a core's cache holds
_GPU_CHUNK = 2**26
# Constants of `exponential`, which float32 rounds; kernels elsewhere take the same.
LEAST_EXPONENT = -87.33654  # below, e^x is denormal
LOG2_E = 1.442695041
LN2_HIGH, LN2_LOW = 0.693359375, 2.12194440e-4
POLYNOMIAL = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
SMALLEST = torch.finfo(torch.float32).tiny
LARGEST = torch.finfo(torch.float32).max
_WORD_BITS = 32  # of a mask of tokens
_MASK31, _MASK32 = 0x7FFFFFFF, 0xFFFFFFFF


def penalize(
    logits_RV: Tensor,
    rows: Sequence[int],
    penalties: Sequence[Penalties],
    drawn_N: Tensor | None = None,
) -> None:
    if drawn_N is not None:
        drawn = drawn_N.cpu().numpy()
        penalties = [_with_pending(each, drawn) for each in penalties]
    # The N pairs of row and token lie flat; each is there once, so nothing depends on their order.
    num_tokens = torch.tensor([len(each.token_ids) for each in penalties])
    factors_R3 = torch.tensor(
        [(max(each.repetition, SMALLEST), each.frequency, each.presence) for each in penalties]
    )
    device = logits_RV.device
    row_N = torch.tensor(rows).repeat_interleave(num_tokens).to(device)
    id_N = _concatenate([each.token_ids for each in penalties]).to(device)
    count_N = _concatenate([each.in_output for each in penalties]).to(device)
    factors_N3 = factors_R3.repeat_interleave(num_tokens, dim=0).to(device)
    repetition_N, frequency_N, presence_N = factors_N3.unbind(1)
    logit_N = logits_RV[row_N, id_N]
    logit_N = torch.where(logit_N > 0, logit_N / repetition_N, logit_N * repetition_N)
    logit_N -= count_N * frequency_N + (count_N > 0) * presence_N
    # A tiny repetition penalty may overflow, and infinity is no logit.
    logits_RV[row_N, id_N] = logit_N.clamp_(max=LARGEST)


def _with_pending(penalties: Penalties, drawn: npt.NDArray[np.int64]) -> Penalties:
    """Return penalties in whose output the token stands that was drawn last."""
    if penalties.pending_row is None:
        return penalties
    token_id = int(drawn[penalties.pending_row])
    in_output = dict(zip(penalties.token_ids, penalties.in_output, strict=True))
    in_output[token_id] = in_output.get(token_id, 0) + 1
    return penalties._replace(
        token_ids=list(in_output), in_output=list(in_output.values()), pending_row=None
    )


def argmax(logits_RV: Tensor, *, allowed_RW: Tensor | None = None) -> tuple[Tensor, Tensor]:
    logits_RV = _where_allowed(logits_RV, allowed_RW)
    maxima_RB = _block_maxima(logits_RV)
    logits_RC, ids_RC = _open_block(logits_RV, maxima_RB.argmax(-1, keepdim=True))
    token_R1 = ids_RC.gather(1, logits_RC.argmax(-1, keepdim=True))
    return maxima_RB.amax(-1), token_R1.squeeze(1)


def uniform(
    seeds: Sequence[int],
    sequence_indices: Sequence[int],
    positions: Sequence[int],
    purpose: Purpose,
    device: torch.device,
) -> Tensor:
    numbers_R = philox.uniform(seeds, sequence_indices, positions, purpose)
    return torch.from_numpy(numbers_R).to(device)


def sampling_specs(specs: Sequence[SamplingSpec], device: torch.device) -> GroupedSpecs:
    members: dict[_Method, list[int]] = {}
    for row, spec in enumerate(specs):
        if spec.temperature > 0.0:
            members.setdefault(_method(spec), []).append(row)
    groups = [
        _tabulate(method, _index(rows, len(specs), device), [specs[row] for row in rows], device)
        for method, rows in members.items()
    ]
    return GroupedSpecs(groups, len(specs))


def draw(
    logits_RV: Tensor,
    peak_R: Tensor,
    specs: SamplingSpecs,
    uniform_R: Tensor,
    *,
    allowed_RW: Tensor | None = None,
    out: Tensor,
) -> Tensor:
    assert isinstance(specs, GroupedSpecs), "specs of another device"
    logits_RV = _where_allowed(logits_RV, allowed_RW)
    for group in specs.groups:
        i = group.index
        out[i] = group.draw(logits_RV[i], peak_R[i].unsqueeze(1), uniform_R[i].unsqueeze(1))
    return out


def log_probabilities(logits_RV: Tensor, ids_RC: Tensor) -> Tensor:
    peak_R1 = _block_maxima(logits_RV).amax(-1, keepdim=True)
    scale = Scale(peak_R1, torch.ones_like(peak_R1), None, unit_weight(logits_RV.shape[1]))
    log_total_R1 = (total_mass(logits_RV, scale) / scale.unit).log()
    return logits_RV.gather(1, ids_RC).double() - peak_R1.double() - log_total_R1


def top_tokens(logits_RV: Tensor, num_tokens: int) -> Tensor:
    num_tokens = min(num_tokens, logits_RV.shape[1])
    logits_RC, ids_RC = _rank(logits_RV, 2 * num_tokens)
    top_RC = ids_RC[:, :num_tokens]
    is_tied_R = logits_RC[:, num_tokens - 1] == logits_RC[:, -1]
    if ids_RC.shape[1] < logits_RV.shape[1] and is_tied_R.any():
        _, ids_TV = _rank(logits_RV[is_tied_R], logits_RV.shape[1])
        top_RC[is_tied_R] = ids_TV[:, :num_tokens]
    return top_RC


def fill_pending(token_ids_T: Tensor, drawn_R: Tensor) -> None:
    found_T = drawn_R[(-1 - token_ids_T).clamp(min=0)]
    token_ids_T.copy_(torch.where(token_ids_T < 0, found_T, token_ids_T))


@dataclass(frozen=True, slots=True)
class GroupedSpecs:
    """The rows that are drawn, in groups that are computed in the same way."""

    groups: Sequence[_Group]
    num_rows: int

    def __len__(self) -> int:
        return self.num_rows


class _Method(Enum):
    ALL = auto()  # from all tokens, or those that min-p leaves
    TOP_K = auto()  # from the top k, or the top p of those
    TOP_P = auto()  # from the top p of all


@dataclass(frozen=True, slots=True)
class _Group:
    """The rows that one method draws, by number, and their specs, each [R, 1]."""

    method: _Method
    index: Tensor | slice
    inverse_temperature_R1: Tensor
    top_k_R1: Tensor
    top_p_R1: Tensor
    min_p_R1: Tensor

    def draw(self, logits_RV: Tensor, peak_R1: Tensor, uniform_R1: Tensor) -> Tensor:
        """Return a token for each of the group's rows: [R]."""
        unit = unit_weight(logits_RV.shape[1])
        least_R1 = (self.min_p_R1 * unit).float()
        scale = Scale(peak_R1, self.inverse_temperature_R1, least_R1, unit)
        if self.method is _Method.ALL:
            return draw_from_all(logits_RV, scale, uniform_R1)
        if self.method is _Method.TOP_K:
            cut = Cut(self.top_p_R1, top_k_R1=self.top_k_R1)
        else:
            cut = Cut(self.top_p_R1, total_R1=total_mass(logits_RV, scale))
        return draw_truncated(logits_RV, scale, cut, uniform_R1)


def _method(spec: SamplingSpec) -> _Method:
    if spec.top_k > 0:
        return _Method.TOP_K
    return _Method.TOP_P if spec.top_p < 1.0 else _Method.ALL


def _tabulate(
    method: _Method, index: Tensor | slice, specs: Sequence[SamplingSpec], device: torch.device
) -> _Group:
    """Return the specs of some rows as tensors."""
    temperatures, top_ks, top_ps, min_ps = zip(*specs, strict=True)
    return _Group(
        method=method,
        index=index,
        inverse_temperature_R1=_column(temperatures, torch.float32, device).reciprocal(),
        top_k_R1=_column(top_ks, torch.int64, device),
        top_p_R1=_column(top_ps, torch.float64, device),
        min_p_R1=_column(min_ps, torch.float64, device),
    )


def _index(rows: Sequence[int], num_rows: int, device: torch.device) -> Tensor | slice:
    """Return ascending row numbers as an index: a slice for all rows, which copies nothing."""
    return slice(None) if len(rows) == num_rows else torch.tensor(rows, device=device)


def _column(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale by which the logits of each row become weights.

    peak_R1         the row's largest logit, whose weight is `unit`.
    inverse_temperature_R1  float32.
    least_R1        lighter tokens weigh nothing (min-p), float32; None where no row has a min-p.
    """

    peak_R1: Tensor
    inverse_temperature_R1: Tensor
    least_R1: Tensor | None
    unit: float

    def rows(self, index: Tensor | slice) -> Scale:
        """Return the scale of some rows."""
        inverse_R1, least_R1 = self.inverse_temperature_R1[index], _some(self.least_R1, index)
        return Scale(self.peak_R1[index], inverse_R1, least_R1, self.unit)

    def weigh(self, logits_RC: Tensor, out: Tensor | None = None) -> Tensor:
        """Return whole-number weights in proportion to exp(logits / temperature), float32."""
        # The peak goes first, so that no temperature, however small, can overflow.
        weight_RC = torch.sub(logits_RC, self.peak_R1, out=out).mul_(self.inverse_temperature_R1)
        weight_RC = exponential(weight_RC, out=out).mul_(self.unit).round_()
        if self.least_R1 is not None:
            weight_RC.mul_(torch.ge(weight_RC, self.least_R1, out=torch.empty_like(weight_RC)))
        return weight_RC


def exponential(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return e^x of float32 x <= 0, to about 2 ulp; below -87.33654 return e^-87.33654.

    The steps in the code define the result to the bit: each rounds to the nearest float32, ties to
    even, and no two are fused. So tokens depend on no library's exponential, and kernels for any
    device draw the same ones (native/simd/exp.h). x = n ln 2 + r, by two constants whose sum is ln
    2, of which n times the first is exact; e^r is Cephes' polynomial; 2^n is made of its exponent's
    bits.
    """
    x = x.clamp(min=LEAST_EXPONENT)
    n = (x * LOG2_E).round_()
    r = x.sub_(n * LN2_HIGH).add_(n * LN2_LOW)
    power = n.int().add_(127).bitwise_left_shift_(23).view(torch.float32)
    p = torch.full_like(r, POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        p.mul_(r).add_(coefficient)
    p.mul_(r * r).add_(r.add_(1.0))
    return torch.mul(p, power, out=out)


def unit_weight(vocab_size: int) -> float:
    """Return the largest power of two that, times vocab_size, is less than 2**53."""
    return 2.0 ** (53 - vocab_size.bit_length())


def total_mass(logits_RV: Tensor, scale: Scale) -> Tensor:
    """Return the sum of each row's weights: [R, 1], float64, exact."""
    return _block_masses(logits_RV, scale).sum(-1, keepdim=True)


@dataclass(frozen=True, slots=True)
class Cut:
    """The cut after which a row's ranked tokens are dropped: top p of the top k. Fields are [R, 1].

    top_p_R1    float64: the share of the mass that must be reached.
    top_k_R1    int64: the number of tokens that top p counts in. None for all.
    total_R1    float64: the mass of all tokens. None where there is a top-k, whose mass is summed
                later.
    """

    top_p_R1: Tensor
    top_k_R1: Tensor | None = None
    total_R1: Tensor | None = None

    def rows(self, index: Tensor) -> Cut:
        """Return the cut of some rows."""
        return Cut(self.top_p_R1[index], _some(self.top_k_R1, index), _some(self.total_R1, index))

    def last_kept(self, end_RC: Tensor) -> Tensor:
        """Return the rank of the last token kept, [R, 1], by the running sum of weights."""
        total_R1 = self.total_R1
        if self.top_k_R1 is not None:
            total_R1 = end_RC.gather(1, self.top_k_R1.clamp(max=end_RC.shape[1]) - 1)
        assert total_R1 is not None, "neither a top-k nor all"
        return _clip(torch.searchsorted(end_RC, self.top_p_R1 * total_R1), end_RC)


def draw_from_all(logits_RV: Tensor, scale: Scale, uniform_R1: Tensor) -> Tensor:
    """Draw a token for each row among all tokens with a weight above 0: [R].

    The random number picks a block of ids by the blocks' sums, then a token inside it: both invert
    the cumulative distribution in the order of token ids.
    """
    mass_RB = _block_masses(logits_RV, scale)
    end_RB = mass_RB.cumsum(-1)
    target_R1 = _target(end_RB[:, -1:], uniform_R1)
    block_R1 = _invert(end_RB, target_R1)
    target_R1 -= (end_RB - mass_RB).gather(1, block_R1)
    logits_RC, ids_RC = _open_block(logits_RV, block_R1)
    end_RC = scale.weigh(logits_RC).double().cumsum(-1)
    return ids_RC.gather(1, _invert(end_RC, target_R1)).squeeze(1)


def draw_truncated(logits_RV: Tensor, scale: Scale, cut: Cut, uniform_R1: Tensor) -> Tensor:
    """Draw a token for each row by weight, among the tokens that its cut keeps: [R].

    Equal logits rank by id. The draw inverts the cumulative distribution in the order of rank.
    """
    vocab_size = logits_RV.shape[1]
    token_R, is_exact_R = _draw_ranked(logits_RV, scale, cut, uniform_R1, _NUM_CANDIDATES)
    if vocab_size > _NUM_CANDIDATES and not is_exact_R.all():
        for rows in torch.split((~is_exact_R).nonzero().squeeze(1), _rows_per_chunk(logits_RV)):
            part = (logits_RV[rows], scale.rows(rows), cut.rows(rows), uniform_R1[rows])
            token_R[rows], _ = _draw_ranked(*part, num_candidates=vocab_size)
    return token_R


def _where_allowed(logits_RV: Tensor, allowed_RW: Tensor | None) -> Tensor:
    """Return the logits of the tokens that may be chosen, and minus infinity for the others."""
    if allowed_RW is None:
        return logits_RV
    places = torch.arange(_WORD_BITS, dtype=torch.int32, device=logits_RV.device)
    bits_RV = allowed_RW.unsqueeze(-1).bitwise_right_shift(places).bitwise_and_(1).flatten(1)
    is_allowed_RV = bits_RV[:, : logits_RV.shape[1]].bool()
    return logits_RV.masked_fill(~is_allowed_RV, float("-inf"))


def _block_maxima(logits_RV: Tensor) -> Tensor:
    """Return the largest logit of each block, [R, B]: NaN where a block has one."""
    num_rows, vocab_size = logits_RV.shape
    num_whole = vocab_size // _BLOCK
    whole_RV, rest_RV = logits_RV[:, : num_whole * _BLOCK], logits_RV[:, num_whole * _BLOCK :]
    maxima_RB = whole_RV.view(num_rows, num_whole, _BLOCK).amax(-1)
    if vocab_size % _BLOCK == 0:
        return maxima_RB
    return torch.cat((maxima_RB, rest_RV.amax(-1, keepdim=True)), dim=1)


def _block_masses(logits_RV: Tensor, scale: Scale) -> Tensor:
    """Return the sum of the weights of each block, [R, B], float64, exact."""
    num_rows, vocab_size = logits_RV.shape
    num_blocks = -(-vocab_size // _BLOCK)
    chunk = _rows_per_chunk(logits_RV)
    mass_RB = logits_RV.new_empty((num_rows, num_blocks), dtype=torch.float64)
    # Written again for every chunk, but for the zeros that fill up the last block.
    weight_RV = logits_RV.new_zeros((min(chunk, num_rows), num_blocks * _BLOCK))
    for start in range(0, num_rows, chunk):
        rows = slice(start, start + chunk)
        mass_CB = mass_RB[rows]
        weight_CV = weight_RV[: len(mass_CB)]
        scale.rows(rows).weigh(logits_RV[rows], out=weight_CV[:, :vocab_size])
        torch.sum(weight_CV.view(-1, num_blocks, _BLOCK), -1, dtype=torch.float64, out=mass_CB)
    return mass_RB


def _some(x_R1: Tensor | None, index: Tensor | slice) -> Tensor | None:
    return None if x_R1 is None else x_R1[index]


def _rows_per_chunk(logits_RV: Tensor) -> int:
    return max(1, (_CPU_CHUNK if logits_RV.is_cpu else _GPU_CHUNK) // logits_RV.shape[1])


def _open_block(logits_RV: Tensor, block_R1: Tensor) -> tuple[Tensor, Tensor]:
    """Return one block's logits and ids of each row, [R, C]; the last id fills up a short block."""
    ids_RC = block_R1 * _BLOCK + torch.arange(_BLOCK, device=logits_RV.device)
    ids_RC.clamp_(max=logits_RV.shape[1] - 1)
    return logits_RV.gather(1, ids_RC), ids_RC


def _target(mass_R1: Tensor, uniform_R1: Tensor) -> Tensor:
    """Point into a mass by a random number: at a whole number from 0 to below the mass."""
    return (uniform_R1 * mass_R1).floor_().minimum(mass_R1 - 1)  # the product may round up


def _invert(end_RC: Tensor, target_R1: Tensor) -> Tensor:
    """Return the first place where a running sum of weights passes the target; it has a weight."""
    return _clip(torch.searchsorted(end_RC, target_R1, right=True), end_RC)


def _clip(place_R1: Tensor, end_RC: Tensor) -> Tensor:
    """Move places inside the candidates: NaN points outside, as do sums that they miss."""
    return place_R1.clamp_(max=end_RC.shape[1] - 1)


def _draw_ranked(
    logits_RV: Tensor, scale: Scale, cut: Cut, uniform_R1: Tensor, num_candidates: int
) -> tuple[Tensor, Tensor]:
    """Draw from each row's likeliest tokens; and say for which rows those are enough."""
    logits_RC, ids_RC = _rank(logits_RV, num_candidates)
    end_RC = scale.weigh(logits_RC).double().cumsum(-1)
    last_R1 = cut.last_kept(end_RC)
    target_R1 = _target(end_RC.gather(1, last_R1), uniform_R1)
    token_R = ids_RC.gather(1, _invert(end_RC, target_R1)).squeeze(1)
    # The ranks that are kept are right if they end above the last candidate, which may have equals
    # that were left out. And the mass of the top k needs all k of them.
    is_exact_R1 = logits_RC.gather(1, last_R1) > logits_RC[:, -1:]
    if cut.top_k_R1 is not None:
        is_exact_R1 &= cut.top_k_R1 <= num_candidates
    return token_R, is_exact_R1.squeeze(1)


def _rank(logits_RV: Tensor, num_candidates: int) -> tuple[Tensor, Tensor]:
    """Return the largest logits of each row and their ids, in order; equal logits by id: [R, C].

    Which of the tokens that equal the last candidate are among the candidates is undefined.
    """
    if num_candidates < logits_RV.shape[1]:
        ids_RC = logits_RV.topk(num_candidates, sorted=False).indices
        logits_RC = logits_RV.gather(1, ids_RC)
    else:
        ids_RC = torch.arange(logits_RV.shape[1], device=logits_RV.device)
        logits_RC = logits_RV
    ids_RC = _sort(_ordinal(logits_RC).neg_().bitwise_left_shift_(32).bitwise_or_(ids_RC)) & _MASK32
    return logits_RV.gather(1, ids_RC), ids_RC


def _ordinal(values: Tensor) -> Tensor:
    """Return int64 numbers in the order of float32 values: their bits, reversed below 0."""
    bits = (values + 0.0).view(torch.int32)  # adding zero makes -0.0 equal to 0.0
    return (bits ^ ((bits >> 31) & _MASK31)).long()


def _concatenate(parts: Sequence[Sequence[int]]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, np.int64) for part in parts]))


def _sort(keys_RC: Tensor) -> Tensor:
    """Sort int64 keys, in place on a CPU, where numpy is 20 times as fast as torch."""
    if not keys_RC.is_cpu:
        return keys_RC.sort(dim=-1).values
    keys_RC.numpy().sort(axis=-1)
    return keys_RC
