"""Evidence of a mistake, where it is, and hypotheses of what it may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferno.verify.checks.measures import typical
from inferno.verify.oracles.plain_config import PlainConfig
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.outcome import Measure
from inferno.verify.runs.taps import Taps, at

_MOST_LISTED = 6
_STANDS_OUT = 3  # times the typical error that is allowed


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A mistake in words, and what a tensor would be with it."""

    words: str
    expected: Tensor


@dataclass(frozen=True, slots=True)
class Evidence:
    """The engine's tensors, the oracle's, and the checkpoint in float32, as evidence of a mistake.

    layers             whose insides are known.
    num_prompt, chunk  how many tokens were computed in chunks of how many; others one by one.
    """

    found: Taps
    expected: Taps
    config: PlainConfig
    weights: PlainWeights
    token_ids: Sequence[int]
    layers: Sequence[int]
    num_prompt: int
    chunk: int

    def layer(self, index: int) -> dict[str, Tensor]:
        """Return a layer's weights."""
        return self.weights.layer(index)

    def tap(self, layer: int, name: str) -> Tensor:
        """Return a layer's tensor as the oracle has it."""
        return self.expected[at(layer, name)].float()

    def input_of(self, layer: int) -> Tensor:
        """Return the residual stream that a layer begins with."""
        name = "embed" if layer == 0 else at(layer - 1, "residual")
        return self.expected[name].float()


Hypotheses = Iterator[Hypothesis]
# By the name of a tensor: the mistakes that would show in it.
Table = Mapping[str, Callable[[str, int, Evidence], Hypotheses]]
EPS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)


def observed_eps(found: Tensor, x: Tensor, weight: Tensor) -> float:
    """Return the eps that a norm's output shows, by its row of least values; 0 if it shows none.

    The eps is root² - mean square of that row, and must lie between 0 and 1.
    """
    squares = x.double().square().mean(-1)
    scaled = x.double() * weight
    ratios = (found.double() * scaled).sum(-1) / scaled.square().sum(-1)
    row = int(squares.flatten().argmin())
    eps = float((ratios.flatten()[row] ** -2 - squares.flatten()[row]).nan_to_num(0.0))
    return eps if 0 < eps < 1 else 0.0


def wrong_part(failed: Measure, evidence: Evidence) -> Tensor:
    """Mask the positions and heads that are off by too much, in the tensor's shape."""
    expected, name = evidence.expected[failed.tap], failed.tap.rpartition(".")[2]
    wrong = _by_position_and_head(_wrong(failed, evidence), name, evidence)
    rows, heads = wrong.any(2).any(1), wrong.any(2).any(0)
    part = (rows[:, None] & heads)[..., None].expand_as(wrong)
    return (part.transpose(0, 1) if name == "scores" else part).reshape(expected.shape)


def find_where(failed: Measure, evidence: Evidence) -> str | None:
    """Describe which positions, heads and experts are wrong, as far as that says something.

    Returns None where no value is off, and for sinks.
    """
    layer, _, name = failed.tap.rpartition(".")
    everywhere = _wrong(failed, evidence)
    if not everywhere.any() or name == "sinks":
        return None
    wrong = _by_position_and_head(everywhere, name, evidence)
    rows, heads = wrong.any(2).any(1), wrong.any(2).any(0)
    words = _positions(rows, evidence)
    if len(heads) > 1:
        words += f", in {_heads(heads)}"
    if name == "ffn_out" and (expert := _expert(int(layer), rows, evidence)) is not None:
        words += f": exactly those that use expert {expert}"
    return words


def _wrong(failed: Measure, evidence: Evidence) -> Tensor:
    """Mark values beyond what is allowed; if none is, those that stand out."""
    found, expected = (taps[failed.tap].double() for taps in (evidence.found, evidence.expected))
    allowed = failed.tolerance
    if not failed.is_far:
        allowed = _STANDS_OUT * failed.relative_tolerance * typical(expected)
    return ~((found == expected) | ((found - expected).abs() <= allowed))


def _by_position_and_head(wrong: Tensor, name: str, evidence: Evidence) -> Tensor:
    """Return [T, H, values], with one head where a tensor is not made of heads."""
    if name == "scores":
        return wrong.transpose(0, 1)
    if name == "mixed":
        return wrong.view(len(wrong), evidence.config.num_heads, -1)
    return wrong if wrong.dim() == 3 else wrong.view(len(wrong), 1, -1)


def _positions(rows: Tensor, evidence: Evidence) -> str:
    wrong, total, prompt = rows.nonzero().flatten().tolist(), len(rows), evidence.num_prompt
    if len(wrong) == total:
        return f"all {total} positions"
    if wrong == list(range(prompt, total)):
        return f"positions {prompt} to {total - 1}, those computed one by one after the prompt"
    first, is_rest = wrong[0], wrong == list(range(wrong[0], total))
    if is_rest and first == evidence.chunk:
        return f"all positions from {first} on, where the second chunk of the prompt begins"
    if is_rest:
        return f"all positions from {first} on"
    return f"{len(wrong)} of {total} positions: {_listed(wrong)}"


def _heads(heads: Tensor) -> str:
    wrong = heads.nonzero().flatten().tolist()
    if len(wrong) == len(heads):
        return "all heads"
    return f"{len(wrong)} of {len(heads)} heads: {_listed(wrong)}"


def _expert(layer: int, rows: Tensor, evidence: Evidence) -> int | None:
    """Return the expert whose tokens are those that are wrong, or None."""
    chosen = evidence.found.get(at(layer, "experts"))
    if chosen is None or len(chosen) != len(rows) or rows.all():
        return None
    same = torch.eq(chosen > 0, rows[:, None]).all(0).nonzero().flatten().tolist()
    return int(same[0]) if same else None


def _listed(items: Sequence[int]) -> str:
    """Write numbers as people do: 3 to 8 where they follow each other."""
    first, last = items[0], items[-1]
    if len(items) > 2 and list(items) == list(range(first, last + 1)):
        return f"{first} to {last}"
    shown = ", ".join(map(str, items[:_MOST_LISTED]))
    return shown + (", ..." if len(items) > _MOST_LISTED else "")
