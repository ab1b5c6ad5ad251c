"""Penalties in Triton: to the bit the reference's, whose definitions the engine's tests hold."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from inferno.engine.sampling.logits_processors import LogitsProcessors, LogitsRow
from inferno.engine.step_plan import SequenceId
from inferno.ops import Penalties, reference
from inferno.ops.cuda import logits_processing
from inferno.requests import SamplingParams

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

WIDTH = 700


def random_penalties(rng: random.Random, num_tokens: int) -> Penalties:
    return Penalties(
        repetition=rng.choice([1.0, 1.3, 0.7, 3.0, 1e-300, 1e30]),
        frequency=rng.choice([0.0, 0.1, -2.0, 0.37]),
        presence=rng.choice([0.0, 0.3, -1.7]),
        token_ids=rng.sample(range(WIDTH), num_tokens),
        in_output=[rng.choice([0, 0, 1, 2, 77]) for _ in range(num_tokens)],
    )


def _with_one_more(penalties: Penalties, drawn_N: torch.Tensor | None) -> Penalties:
    """Say of a row in its list what its pending token would."""
    if penalties.pending_row is None or drawn_N is None:
        return penalties
    token_id = int(drawn_N[penalties.pending_row])
    ids, in_output = list(penalties.token_ids), list(penalties.in_output)
    if token_id not in ids:
        ids.append(token_id)
        in_output.append(0)
    in_output[ids.index(token_id)] += 1
    return penalties._replace(token_ids=ids, in_output=in_output, pending_row=None)


@pytest.mark.parametrize("has_drawn", [False, True])
def test_penalties_are_the_references(device: torch.device, has_drawn: bool) -> None:
    """Tokens that were drawn last stand in a list, in no list, or are left out."""
    rng = random.Random(1)
    logits_RV = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(1)) * 10
    logits_RV[0, :100], logits_RV[1, :100], logits_RV[2, ::2] = 3e38, 1e-40, -torch.inf
    logits_RV[3, ::3], logits_RV[4, ::2], logits_RV[5, ::2] = torch.nan, -0.0, 0.0
    logits_RV = logits_RV.to(device)
    rows = [0, 1, 2, 3, 4, 5, 7]
    # More tokens than a program takes, none, one.
    penalties = [random_penalties(rng, count) for count in (600, 513, 512, 300, 1, 0, 40)]
    penalties[0] = penalties[0]._replace(repetition=1e-300)  # which would overflow
    drawn_N = None
    if has_drawn:
        known, new = (
            [token_id for token_id in range(WIDTH) if (token_id in row.token_ids) is is_known]
            for row, is_known in ((penalties[0], True), (penalties[3], False))
        )
        drawn_N = torch.tensor([known[-1], new[5], 7, 8, 699, penalties[4].token_ids[0]])
        pending = [0, None, 2, 1, 5, 4, None]
        penalties = [
            each._replace(pending_row=row) for each, row in zip(penalties, pending, strict=True)
        ]
    expected_RV = logits_RV.cpu().clone()
    expected = [_with_one_more(each, drawn_N) for each in penalties]
    reference.penalize(expected_RV, rows, expected)
    again_RV = logits_RV.cpu().clone()
    reference.penalize(again_RV, rows, penalties, drawn_N)
    assert torch.equal(again_RV.view(torch.int32), expected_RV.view(torch.int32))
    wide_RV = torch.full((9, WIDTH + 5), torch.nan, device=device)
    wide_RV[:, 3:-2] = logits_RV
    if drawn_N is not None:
        drawn_N = drawn_N.to(device)
    logits_processing.penalize(wide_RV[:, 3:-2], rows, penalties, drawn_N)
    found_RV = wide_RV[:, 3:-2].contiguous().cpu()
    assert torch.equal(found_RV.isnan(), expected_RV.isnan())
    for each_RV in (found_RV, expected_RV):
        each_RV.masked_fill_(each_RV.isnan(), 0.0)
    assert torch.equal(found_RV.view(torch.int32), expected_RV.view(torch.int32))
    assert wide_RV[:, :3].isnan().all()


def test_a_step_sends_each_distinct_token_of_a_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a text is, its vocabulary bounds what goes to the device."""
    sizes: list[int] = []

    def penalize(logits_RV: torch.Tensor, rows: list[int], penalties: list[Penalties]) -> None:
        lengths_R = np.array([len(each.token_ids) for each in penalties], np.int32)
        sizes.append(logits_processing._staged(rows, penalties, lengths_R).nbytes)

    monkeypatch.setattr("inferno.ops.penalize", lambda *given: penalize(*given[:3]))
    rng = random.Random(2)
    texts = [[rng.randrange(WIDTH) for _ in range(5000)] for _ in range(3)]
    processors = LogitsProcessors(WIDTH, torch.device("cpu"))
    params = SamplingParams(frequency_penalty=0.5)
    lengths = (1, 40, 1000, 1001, 5000)
    for length in lengths:
        rows = {
            i: LogitsRow(SequenceId(str(i), 0), params, 0, length, text[:length], 1)
            for i, text in enumerate(texts)
        }
        processors.penalize(torch.zeros(3, WIDTH), rows)
    distinct = [sum(len({*text[:length]}) for text in texts) for length in lengths]
    assert sizes == [3 * 28 + 8 * count for count in distinct]
    assert max(sizes) <= 3 * (28 + 8 * WIDTH)


def test_nothing_to_penalise_changes_nothing(device: torch.device) -> None:
    logits_RV = torch.ones(2, 5, device=device)
    logits_processing.penalize(logits_RV, [1], [Penalties(2.0, 1.0, 1.0, [], [])])
    logits_processing.penalize(logits_RV, [], [])
    assert (logits_RV == 1.0).all()
