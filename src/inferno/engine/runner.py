"""Forward passes over a model and its cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inferno.engine.footprint import Footprint, measure
from inferno.layers.decoder import CausalLM
from inferno.ops import Batch, LayerKV


class Runner:
    """One model on one device, run eagerly."""

    def __init__(self, model: CausalLM, kv: Sequence[LayerKV]) -> None:
        self._model = model
        self._kv = kv

    @property
    def footprint(self) -> Footprint:
        """What model and cache take."""
        return measure(self._model, self._kv)

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [T, E]; the batch's keys and values go to the cache."""
        hidden_TE: Tensor = self._model(batch, self._kv)
        return hidden_TE

    def logits(self, hidden_TE: Tensor, rows: Sequence[int]) -> Tensor:
        """Float32 logits [N, V] of the given rows."""
        if len(rows) == len(hidden_TE):
            return self._model.logits(hidden_TE)
        return self._model.logits(hidden_TE[torch.tensor(rows, device=hidden_TE.device)])
