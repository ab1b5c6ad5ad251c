"""Forward passes over a model and its cache: small and full ones recorded once and replayed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from inferno import ops
from inferno.engine.footprint import Footprint, measure
from inferno.layers.decoder import CausalLM
from inferno.ops import Batch, LayerKV, NotRecordable, Program, Recorder

_logger = logging.getLogger("inferno")


class Runner:
    """One model on one device.

    recorder        with one, a batch in fixed places is run by replaying the program of the first
                    batch of so many tokens.
    prefault_bytes  how much of the cache is made ready for its first writers, in the background.
    """

    def __init__(
        self,
        model: CausalLM,
        kv: Sequence[LayerKV],
        recorder: Recorder | None = None,
        prefault_bytes: int = 0,
    ) -> None:
        self._model = model
        self._kv = kv
        self._recorder = recorder
        self._programs: dict[int, Program] = {}
        self._prefault = ops.prefault(kv, prefault_bytes)

    @property
    def footprint(self) -> Footprint:
        """Return the memory that model and cache take."""
        return measure(self._model, self._kv)

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states, [T, E] or [N, E] of batch.rows_N; keys and values go to the cache.

        They last until the next call.
        """
        if not batch.is_fixed or self._recorder is None:
            return self._run(batch)
        program = self._programs.get(len(batch.token_ids_T))
        return self._record(self._recorder, batch) if program is None else program.run()

    def logits(self, hidden_TE: Tensor, rows: Sequence[int]) -> Tensor:
        """Float32 logits [N, V] of the given rows."""
        if len(rows) == len(hidden_TE):
            return self._model.logits(hidden_TE)
        return self._model.logits(hidden_TE[torch.tensor(rows, device=hidden_TE.device)])

    def _run(self, batch: Batch) -> Tensor:
        hidden_TE: Tensor = self._model(batch, self._kv)
        return hidden_TE

    def _record(self, recorder: Recorder, batch: Batch) -> Tensor:
        try:
            program, hidden_TE = recorder.record(lambda: self._run(batch))
        except NotRecordable as problem:
            _logger.info("steps are not recorded: %s", problem)
            self._recorder = None
            return self._run(batch)
        self._programs[len(batch.token_ids_T)] = program
        return hidden_TE
