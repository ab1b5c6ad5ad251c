"""Draw each row's token by its rule: rows of one kind together.

Letters: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor

from inferno.ops.drawing import Purpose, SamplingSpec, SamplingSpecs
from inferno.ops.reference import philox
from inferno.ops.reference.sampling import (
    Cut,
    Scale,
    draw_from_all,
    draw_truncated,
    total_mass,
    unit_weight,
)


def uniform(
    seeds: Sequence[int],
    sequence_indices: Sequence[int],
    positions: Sequence[int],
    purpose: Purpose,
    device: torch.device,
) -> Tensor:
    numbers_R = philox.uniform(seeds, sequence_indices, positions, purpose)
    return torch.from_numpy(numbers_R).to(device)


def sampling_specs(rules: Sequence[SamplingSpec], device: torch.device) -> GroupedRules:
    members: dict[_Method, list[int]] = {}
    for row, rule in enumerate(rules):
        if rule.temperature > 0.0:
            members.setdefault(_method(rule), []).append(row)
    groups = [
        _tabulate(method, _index(rows, len(rules), device), [rules[row] for row in rows], device)
        for method, rows in members.items()
    ]
    return GroupedRules(groups, len(rules))


def draw(
    logits_RV: Tensor, peak_R: Tensor, rules: SamplingSpecs, uniform_R: Tensor, *, out: Tensor
) -> Tensor:
    assert isinstance(rules, GroupedRules), "rules of another device"
    for group in rules.groups:
        i = group.index
        out[i] = group.draw(logits_RV[i], peak_R[i].unsqueeze(1), uniform_R[i].unsqueeze(1))
    return out


@dataclass(frozen=True, slots=True)
class GroupedRules:
    """The rows that are drawn, in groups."""

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
    """The rows that one method draws, by number, and their rules, each [R, 1]."""

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


def _method(rule: SamplingSpec) -> _Method:
    if rule.top_k > 0:
        return _Method.TOP_K
    return _Method.TOP_P if rule.top_p < 1.0 else _Method.ALL


def _tabulate(
    method: _Method, index: Tensor | slice, rules: Sequence[SamplingSpec], device: torch.device
) -> _Group:
    """Return the rules of some rows as tensors."""
    temperatures, top_ks, top_ps, min_ps = zip(*rules, strict=True)
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
