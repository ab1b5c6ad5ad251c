"""A model opened for verification: its config, checkpoint, tokenizer, and what follows of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inferno.engine.assemble import read_hf_config
from inferno.errors import InvalidRequest
from inferno.models import ARCHITECTURES, find_model, read_model_config
from inferno.models.config import DecoderConfig
from inferno.options import EngineOptions
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from inferno.verify.options import Tell, VerifyOptions
from inferno.verify.plain_config import PlainConfig, read_plain_config
from inferno.verify.plain_weights import PlainWeights
from inferno.verify.prompts import Prompt, choose_prompt
from inferno.verify.saved import SavedOracle
from inferno.weights.checkpoint import Checkpoint, open_checkpoint
from inferno.weights.pieces import FusedSpec

_USUAL_LAYERS = (0, 1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The facts of a verified model that do not depend on who runs it."""

    options: VerifyOptions
    tell: Tell
    hf_config: dict[str, Any]
    config: DecoderConfig
    plain: PlainConfig
    fused: FusedSpec
    checkpoint: Checkpoint
    tokenizer: Tokenizer | None
    engine: EngineOptions

    @property
    def model_file(self) -> str:
        """Return the path of the model's own code, for those who look for a mistake."""
        return f"models/{ARCHITECTURES[self.plain.architecture]}.py"

    @property
    def quantize(self) -> str | None:
        """Return the type that the engine packs its weights in; None: they stay as they are."""
        return None if self.engine.quantize == "none" else self.engine.quantize

    @property
    def weights(self) -> PlainWeights:
        """Return the checkpoint's weights in float32."""
        return PlainWeights(self.checkpoint, torch.float32)

    def prompt(self, saved: SavedOracle | None) -> Prompt:
        """Return the engine's prompt: the saved run's, the user's, or a fixed one."""
        if saved is None:
            return choose_prompt(
                self.options.prompt,
                self.tokenizer,
                windows=self.config.windows,
                vocab_size=self.config.vocab_size,
                max_model_len=self.config.max_model_len,
            )
        if self.options.prompt not in (None, saved.facts.prompt):
            raise InvalidRequest(
                "--prompt differs from the saved run's, whose prompt is used; leave it out",
                param="prompt",
            )
        ids = saved.facts.token_ids[: saved.facts.num_prompt_tokens]
        return Prompt(text=saved.facts.prompt, token_ids=ids)

    def layers(self, saved: SavedOracle | None) -> tuple[int, ...]:
        """Return the numbers from 0, in order, of the layers that are looked into."""
        count = self.config.num_layers
        asked = self.options.layers
        if asked is None:
            if saved is not None:
                return saved.facts.layers
            return tuple(sorted({layer % count for layer in _USUAL_LAYERS if layer < count}))
        if not asked or any(not -count <= layer < count for layer in asked):
            raise InvalidRequest(
                f"--layers must name layers from 0 to {count - 1}, or from -1 to {-count}, not "
                f"{','.join(map(str, asked))}",
                param="layers",
            )
        layers = tuple(sorted({layer % count for layer in asked}))
        if saved is not None and not set(layers) <= set(saved.facts.layers):
            raise InvalidRequest(
                f"the saved run holds the layers {','.join(map(str, saved.facts.layers))} only; "
                f"leave --layers out",
                param="layers",
            )
        return layers

    def encode(self, text: str) -> list[int] | None:
        return None if self.tokenizer is None else self.tokenizer.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of new tokens, or their ids where there is no tokenizer."""
        return str(list(token_ids)) if self.tokenizer is None else self.tokenizer.decode(token_ids)


@contextlib.contextmanager
def opened(options: VerifyOptions, tell: Tell) -> Iterator[Case]:
    """Open a model for verification; raise ModelError where it can't be read."""
    hf_config = read_hf_config(options.model)
    config = read_model_config(hf_config, allow_unknown=options.allow_unknown_config)
    has_tokenizer = (options.model / "tokenizer.json").exists()
    engine = EngineOptions(
        model=options.model,
        device=options.device,
        dtype=options.dtype,
        quantize=options.quantize,
        threads=options.threads,
        allow_unknown_config=options.allow_unknown_config,
    )
    with open_checkpoint(options.model) as checkpoint:
        yield Case(
            options=options,
            tell=tell,
            hf_config=hf_config,
            config=config,
            plain=read_plain_config(hf_config),
            fused=find_model(hf_config).fused_weights(config),
            checkpoint=checkpoint,
            tokenizer=load_tokenizer(options.model) if has_tokenizer else None,
            engine=engine,
        )
