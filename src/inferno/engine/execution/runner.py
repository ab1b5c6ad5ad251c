"""Run forward passes over a model and its cache; record those in fixed places, and replay them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from inferno import ops
from inferno.engine.execution.footprint import Footprint, measure
from inferno.engine.execution.gpu import free_after
from inferno.layers.decoder import Hidden
from inferno.models import Model
from inferno.ops import (
    Batch,
    CapturedGraph,
    GraphCapture,
    LayerKV,
    NoRoomForGraph,
    NotCapturable,
)

_logger = logging.getLogger("inferno")


# What tells apart steps in fixed places: tokens, a table's width, the longest query, the layers.
_Shape = tuple[int, int, int | None, range | None]


class Runner:
    """A model on one device, and its KV cache.

    graph_capture   records graphs: a batch in fixed places is then run by replaying the graph of
                    the first batch with the same shapes and layers.
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
        self._graphs: dict[_Shape, CapturedGraph] = {}
        self._has_room = True  # for the graphs of more shapes
        self._prefault = ops.prefault(kv, prefault_bytes)

    @property
    def footprint(self) -> Footprint:
        """Return the memory that model and cache take."""
        return measure(self._model, self._kv)

    @property
    def num_layers(self) -> int:
        """Return how many layers the model has."""
        return self._model.num_layers

    def forward(
        self, batch: Batch, layers: range | None = None, stream_TE: Tensor | None = None
    ) -> Tensor:
        """Run a batch, and return hidden states [T, E], or [N, E] of the rows in batch.rows_N.

        Keys and values go to the cache. The returned states last until the next call.

        layers      a run of layers; None: all. If further layers follow the last of them, the
                    residual streams [T, E] of all tokens are returned.
        stream_TE   what the layers before these returned; for a batch in fixed places, in the same
                    memory each time.
        """
        if not batch.is_fixed or self._graph_capture is None:
            return self._run(batch, layers, stream_TE)
        graph = self._graphs.get(_shape(batch, layers))
        if graph is not None:
            return graph.replay()
        if self._has_room:
            output_TE = self._capture(self._graph_capture, batch, layers, stream_TE)
            if output_TE is not None:
                return output_TE
        return self._run(batch, layers, stream_TE)

    def logits(self, hidden_TE: Tensor, rows: Sequence[int]) -> Tensor:
        """Return float32 logits [N, V] of the given rows."""
        return self._model.logits(_chosen(hidden_TE, rows))

    def logits_at(self, hidden_TE: Tensor, rows_N: Tensor | None, num_rows: int) -> Tensor:
        """Return float32 logits [N, V] of rows that lie on the device; None: of the first."""
        hidden_NE = hidden_TE[:num_rows] if rows_N is None else hidden_TE[rows_N]
        return self._model.logits(hidden_NE)

    def early_logits(self, stream_TE: Tensor, rows: Sequence[int]) -> Tensor:
        """Return float32 logits [N, V] of residual streams, as if no layer followed."""
        return self._model.early_logits(_chosen(stream_TE, rows))

    def new_streams(self, num_rows: int) -> Tensor:
        """Return unfilled memory for residual streams, [num_rows, E]."""
        return self._model.new_streams(num_rows)

    def _run(self, batch: Batch, layers: range | None, stream_TE: Tensor | None) -> Tensor:
        if batch.drawn_N is not None:
            ops.fill_pending(batch.token_ids_T, batch.drawn_N)
        hidden = None if stream_TE is None else Hidden(stream_TE, None)
        output: Tensor | Hidden = self._model(batch, self._kv, layers, hidden)
        return self._model.stream(output) if isinstance(output, Hidden) else output

    def _capture(
        self,
        graph_capture: GraphCapture,
        batch: Batch,
        layers: range | None,
        stream_TE: Tensor | None,
    ) -> Tensor | None:
        """Return what the new graph of a shape computed first; None where it can't be made."""
        try:
            graph, output_TE = graph_capture.capture(lambda: self._run(batch, layers, stream_TE))
        except NotCapturable as problem:
            _logger.info("steps are not recorded: %s", problem)
            self._graph_capture = None
            return None
        except NoRoomForGraph as problem:
            # A graph takes memory of its own, the driver's too, and no step has to have one.
            _logger.warning(
                "memory ran out for the graph of a step after %d others, so steps of other sizes "
                "run without: lower --gpu-memory-utilization, or leave graphs out with --no-graphs",
                len(self._graphs),
            )
            self._has_room = False
            free_after(problem.__cause__ or problem)
            return None
        self._graphs[_shape(batch, layers)] = graph
        return output_TE


def _shape(batch: Batch, layers: range | None) -> _Shape:
    width = batch.groups[0].block_tables_RB.shape[1]
    return len(batch.token_ids_T), width, batch.longest_query, layers


def _chosen(x_TE: Tensor, rows: Sequence[int]) -> Tensor:
    if len(rows) == len(x_TE):
        return x_TE
    return x_TE[torch.tensor(rows, device=x_TE.device)]
