"""Forward passes over a model and its cache: small and full ones recorded once and replayed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from inferno import ops
from inferno.engine.execution.footprint import Footprint, measure
from inferno.models import Model
from inferno.ops import Batch, CapturedGraph, GraphCapture, LayerKV, NotCapturable

_logger = logging.getLogger("inferno")


class Runner:
    """One model on one device.

    graph_capture   with one, a batch in fixed places is run by replaying the graph of the
                    first batch of so many tokens.
    prefault_bytes  how much of the cache is made ready for its first writers, in the background.
    """

    def __init__(
        self,
        model: Model,
        kv: Sequence[LayerKV],
        graph_capture: GraphCapture | None = None,
        prefault_bytes: int = 0,
    ) -> None:
        self._model = model
        self._kv = kv
        self._graph_capture = graph_capture
        self._graphs: dict[int, CapturedGraph] = {}
        self._prefault = ops.prefault(kv, prefault_bytes)

    @property
    def footprint(self) -> Footprint:
        """Return the memory that model and cache take."""
        return measure(self._model, self._kv)

    def forward(self, batch: Batch) -> Tensor:
        """Return hidden states, [T, E] or [N, E] of batch.rows_N; keys and values go to the cache.

        They last until the next call.
        """
        if not batch.is_fixed or self._graph_capture is None:
            return self._run(batch)
        graph = self._graphs.get(len(batch.token_ids_T))
        return self._capture(self._graph_capture, batch) if graph is None else graph.replay()

    def logits(self, hidden_TE: Tensor, rows: Sequence[int]) -> Tensor:
        """Return float32 logits [N, V] of the given rows."""
        if len(rows) == len(hidden_TE):
            return self._model.logits(hidden_TE)
        return self._model.logits(hidden_TE[torch.tensor(rows, device=hidden_TE.device)])

    def _run(self, batch: Batch) -> Tensor:
        hidden_TE: Tensor = self._model(batch, self._kv)
        return hidden_TE

    def _capture(self, graph_capture: GraphCapture, batch: Batch) -> Tensor:
        try:
            graph, hidden_TE = graph_capture.capture(lambda: self._run(batch))
        except NotCapturable as problem:
            _logger.info("steps are not recorded: %s", problem)
            self._graph_capture = None
            return self._run(batch)
        self._graphs[len(batch.token_ids_T)] = graph
        return hidden_TE
