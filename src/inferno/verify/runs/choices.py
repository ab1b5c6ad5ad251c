"""Observe from outside what tokens are chosen by, on whatever device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from inferno.engine.execution.runner import Runner
from inferno.engine.sampling.device_draws import DeviceDraws, Drawn, DrawRows
from inferno.engine.sampling.logits_processors import LogitsRow
from inferno.engine.sampling.sampler import ProcessedRows, Sampler


@contextlib.contextmanager
def observing_choices(see: Callable[[Tensor, bool], None]) -> Iterator[None]:
    """Tell, for as long as it lasts, of the logits that the tokens of each step are chosen by.

    see     gets them before anything changes them, float32 [R, V], and whether they are bit for
            bit what the model made.

    A device that computes on its own draws most tokens past the sampler, which is then asked for
    no more than to change the logits of some.
    """
    made: list[Tensor] = []
    drawing: list[DrawRows] = []
    logits_of, logits_at = Runner.logits, Runner.logits_at
    process, draw = Sampler.process, DeviceDraws.draw

    def logits_observed(self: Runner, hidden_TE: Tensor, rows: Sequence[int]) -> Tensor:
        logits = logits_of(self, hidden_TE, rows)
        made[:] = [_plain(logits)]
        return logits

    def logits_at_observed(
        self: Runner, hidden_TE: Tensor, rows_N: Tensor | None, num_rows: int
    ) -> Tensor:
        logits = logits_at(self, hidden_TE, rows_N, num_rows)
        made[:] = [_plain(logits)]
        return logits

    def process_observed(
        self: Sampler,
        logits_RV: Tensor,
        rows: Sequence[LogitsRow],
        drawn_N: Tensor | None = None,
    ) -> ProcessedRows:
        if not drawing:
            tell(logits_RV)
        return process(self, logits_RV, rows, drawn_N)

    def draw_observed(
        self: DeviceDraws, logits_RV: Tensor, rows: DrawRows, uniform_R: Tensor
    ) -> Drawn:
        tell(logits_RV)
        drawing.append(rows)
        try:
            return draw(self, logits_RV, rows, uniform_R)
        finally:
            drawing.clear()

    def tell(logits: Tensor) -> None:
        given = _plain(logits)
        see(given, len(made) == 1 and torch.equal(given, made[0]))

    Runner.logits = logits_observed  # type: ignore[method-assign]
    Runner.logits_at = logits_at_observed  # type: ignore[method-assign]
    Sampler.process = process_observed  # type: ignore[method-assign]
    DeviceDraws.draw = draw_observed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Runner.logits = logits_of  # type: ignore[method-assign]
        Runner.logits_at = logits_at  # type: ignore[method-assign]
        Sampler.process = process  # type: ignore[method-assign]
        DeviceDraws.draw = draw  # type: ignore[method-assign]


def _plain(logits: Tensor) -> Tensor:
    return logits.detach().float().to("cpu", copy=True)
