"""Another device as oracle: the same engine there, over the same text, as one prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from inferno.engine.assemble import build_engine
from inferno.options import EngineOptions
from inferno.text.tokenizer import load_tokenizer
from inferno.verify.oracle import Choices
from inferno.verify.subject import observe
from inferno.verify.taps import Taps


class DeviceOracle:
    """An oracle that is the engine with other options."""

    def __init__(self, options: EngineOptions) -> None:
        self.name = f"this engine on {options.device} in {options.dtype}"
        self._options = options

    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        return observe(self._options, token_ids, 1, layers).taps

    @torch.inference_mode()
    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        engine = build_engine(self._options)
        for token_ids in texts:
            yield engine.logits(token_ids)

    def encode(self, text: str) -> list[int] | None:
        folder = self._options.model
        return load_tokenizer(folder).encode(text) if (folder / "tokenizer.json").exists() else None
