"""The subject of a verification: a model opened from its folder, and the text for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from inferno.config.decoder import DecoderConfig
from inferno.config.families import ARCHITECTURES
from inferno.engine.build import read_hf_config
from inferno.errors import CheckpointError, InvalidRequest
from inferno.model_files import TOKENIZER, model_config, model_files
from inferno.models import MODULES, find_model
from inferno.options import EngineOptions
from inferno.text.tokenizer import Tokenizer, load_tokenizer
from inferno.verify.options import MOST_TOKENS, Tell, VerifyOptions
from inferno.verify.oracles.plain_config import PlainConfig, read_plain_config
from inferno.verify.oracles.plain_weights import PlainWeights
from inferno.verify.oracles.saved import SavedOracle
from inferno.weights.allocate import keeps_blocks
from inferno.weights.checkpoint import Checkpoint
from inferno.weights.open import open_checkpoint
from inferno.weights.pieces import FusedSpec

_USUAL_LAYERS = (0, 1, -1)
_NUM_NEW = 16
_LEAST_TOKENS = 48
_PAST_WINDOW = 24
_LONGEST_WINDOW = 512
_TEXT = (
    "Once upon a time there was a little dog named Max. He lived in a small house by the river, "
    "and every morning he ran 3 miles to the old bridge. One day, the bridge was gone! Max sat "
    'down and thought: "What shall I do?" '
)
# Text that tokenizers are compared on: letters, digits, spaces, signs, and more than one script.
TOKENIZER_TEXT = "The quick brown fox, aged 12,345: don't\n\tdef f(x): return x**2  # café 你好 🙂"


def engine_keeps_blocks(engine: EngineOptions) -> bool:
    """Return whether an engine of these options keeps GGUF's blocks packed."""
    dtype = torch.float16 if engine.dtype == "float16" else torch.float32
    quantize = None if engine.quantize == "none" else engine.quantize
    return keeps_blocks(torch.device(engine.device), dtype, quantize)


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
        return f"models/{MODULES[ARCHITECTURES[self.plain.architecture].name]}.py"

    @property
    def max_model_len(self) -> int:
        """Return the context of the engine, in tokens."""
        return self.engine.max_model_len or self.config.max_model_len

    @property
    def quantize(self) -> str | None:
        """Return the type that the engine packs its weights in; None: they stay as they are."""
        return None if self.engine.quantize == "none" else self.engine.quantize

    @property
    def speculating(self) -> EngineOptions:
        """Return the options of an engine that proposes tokens, as was asked."""
        return replace(
            self.engine,
            speculative="auto",
            num_speculative_tokens=self.options.num_speculative_tokens,
            speculative_model=self.options.speculative_model,
            speculative_early_layers=self.options.speculative_early_layers,
        )

    @property
    def weights(self) -> PlainWeights:
        """Return the checkpoint's weights in float32."""
        return PlainWeights(self.checkpoint, torch.float32, as_kept=self.keeps_blocks)

    @property
    def keeps_blocks(self) -> bool:
        """Return whether the engine keeps GGUF's blocks packed."""
        return engine_keeps_blocks(self.engine)

    def prompt(self, saved: SavedOracle | None) -> Prompt:
        """Return the engine's prompt: the saved run's, the user's, or a fixed one."""
        if saved is None:
            return choose_prompt(
                self.options.prompt,
                self.tokenizer,
                windows=self.config.windows,
                vocab_size=self.config.vocab_size,
                max_model_len=self.max_model_len,
            )
        if self.options.prompt not in (None, saved.facts.prompt):
            raise InvalidRequest(
                "--prompt differs from the saved run's, whose prompt is used; leave it out",
                param="prompt",
            )
        ids = saved.facts.token_ids[: saved.facts.num_prompt_tokens]
        return Prompt(text=saved.facts.prompt, token_ids=ids)

    def layers(self, saved: SavedOracle | None) -> tuple[int, ...]:
        """Return the numbers from 0, in order, of the layers whose insides are compared."""
        count = self.config.num_layers
        asked = self.options.layers
        if saved is not None and max(saved.facts.layers) >= count:
            raise CheckpointError(
                f"{self.options.against}: was saved with a look into layer "
                f"{max(saved.facts.layers)}, and this model has {count} layers; save it again from "
                "the same model"
            )
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
def open_case(options: VerifyOptions, tell: Tell) -> Iterator[Case]:
    """Open a model for verification; raise ModelError where it can't be read."""
    hf_config = read_hf_config(options.model)
    config = model_config(options.model, hf_config, allow_unknown=options.allow_unknown_config)
    files = model_files(options.model)
    has_tokenizer = files.has(TOKENIZER)
    engine = EngineOptions(
        model=options.model,
        device=options.device,
        dtype=options.dtype,
        quantize=options.quantize,
        threads=options.threads,
        allow_unknown_config=options.allow_unknown_config,
        speculative="off",  # one row for each new token is what other checks observe
        **options.limits,
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
            tokenizer=load_tokenizer(files) if has_tokenizer else None,
            engine=engine,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt's text and ids; text is None where the ids were made up.

    The ids are made up without a tokenizer, or with one of other texts.
    """

    text: str | None
    token_ids: tuple[int, ...]


def choose_prompt(
    text: str | None,
    tokenizer: Tokenizer | None,
    *,
    windows: Sequence[int | None],
    vocab_size: int,
    max_model_len: int,
) -> Prompt:
    """Return the ids to compute; raise InvalidRequest for a text that can't be encoded or fit."""
    most = max(1, min(MOST_TOKENS, max_model_len) - num_new_tokens(max_model_len))
    if text is not None:
        return _given(text, tokenizer, most)
    length = min(_needed(windows), most)
    if tokenizer is not None and (fixed := _fixed(tokenizer, length)) is not None:
        return fixed
    return Prompt(text=None, token_ids=_made_up(length, vocab_size))


def num_new_tokens(max_model_len: int) -> int:
    """Return how many tokens are generated after the prompt; a short context is shared."""
    return max(1, min(_NUM_NEW, max_model_len // 2))


def unreached(windows: Sequence[int | None], num_tokens: int) -> tuple[int, ...]:
    """Return the windows that hide nothing, as so many tokens don't reach beyond them."""
    return tuple(sorted({window for window in windows if window and window >= num_tokens}))


def _needed(windows: Sequence[int | None]) -> int:
    """Return how many tokens reach beyond every window that is not too long for it."""
    short = [window for window in windows if window and window <= _LONGEST_WINDOW]
    return max([_LEAST_TOKENS, *(window + _PAST_WINDOW for window in short)])


def _fixed(tokenizer: Tokenizer, length: int) -> Prompt | None:
    """Repeat the fixed text until it is long enough; None if more copies give no more tokens.

    So it is where a tokenizer knows no character of it: each text is nothing, or one unknown token.
    """
    copies, ids = 1, tokenizer.encode(_TEXT)
    while len(ids) < length:
        num_before, copies = len(ids), 2 * copies
        ids = tokenizer.encode(_TEXT * copies)
        if len(ids) < num_before + copies // 2:
            return None
    return Prompt(text=_TEXT * copies, token_ids=tuple(ids[:length]))


def _given(text: str, tokenizer: Tokenizer | None, most: int) -> Prompt:
    if tokenizer is None:
        raise InvalidRequest(
            "--prompt needs a tokenizer.json in the model's folder; without it ids are made up",
            param="prompt",
        )
    ids = tuple(tokenizer.encode(text))
    if not 1 <= len(ids) <= most:
        raise InvalidRequest(
            f"--prompt has {len(ids)} tokens, expected 1 to {most}", param="prompt"
        )
    return Prompt(text=text, token_ids=ids)


def _made_up(length: int, vocab_size: int) -> tuple[int, ...]:
    """Return ids that look like no pattern and are the same everywhere."""
    return tuple((7919 * i * i + 104729 * i + 13) % vocab_size for i in range(length))
