"""config.json, read key by key: what a model doesn't read must be known to be harmless."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from inferno.errors import ConfigError
from inferno.layers.moe import MixtureConfig
from inferno.layers.rope import (
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)

# Keys that change nothing about the forward pass: labels, training, the tokenizer, old generation
# defaults (the current ones live in generation_config.json).
# fmt: off
INERT = frozenset({
    "_name_or_path", "architectures", "model_type", "transformers_version", "auto_map",
    "torch_dtype", "dtype", "use_cache", "use_bfloat16", "torchscript", "tf_legacy_loss",
    "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout",
    "classifier_dropout", "initializer_range", "pretraining_tp", "gradient_checkpointing",
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "tokenizer_class",
    "prefix", "return_dict", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "output_router_logits", "finetuning_task",
    "task_specific_params", "problem_type", "id2label", "label2id", "num_labels",
    "chunk_size_feed_forward", "is_decoder", "tie_encoder_decoder", "add_cross_attention",
    "cross_attention_hidden_size", "pruned_heads", "max_length", "min_length", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k",
    "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    "remove_invalid_values", "_attn_implementation", "_attn_implementation_autoset",
    "attn_implementation", "_flash_attn_2_enabled", "use_flash_attention_2", "is_llama_config",
    "transformers.js_config", "max_sequence_length", "seq_length", "neftune_noise_alpha",
    "unsloth_version", "unsloth_fixed", "keys_to_ignore_at_inference", "router_aux_loss_coef",
    "router_jitter_noise",
})
# fmt: on
_INERT_ROPE = frozenset({"finetuned"})
_MAX_INT = 2**31 - 1


class _Required:
    """The default of a key that has none."""


REQUIRED = _Required()


class ConfigReader:
    """A reader of a config's keys, by type, that remembers which were read.

    A missing or null key takes its default; without one, and for values of the wrong type or range,
    ConfigError names the key.
    """

    def __init__(
        self, values: Mapping[str, Any], *, allow_unknown: bool = False, path: str = ""
    ) -> None:
        self._values = values
        self._allow_unknown = allow_unknown
        self._path = path
        self._read: set[str] = set()

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null."""
        return self._values.get(key) is not None

    def has_read(self, key: str) -> bool:
        """Return whether somebody asked for the key's value."""
        return key in self._read

    def integer(
        self, key: str, default: int | _Required = REQUIRED, *, low: int = 1, high: int = _MAX_INT
    ) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._refuse(key, value, f"an integer from {low} to {high}")
        return value

    def number(
        self,
        key: str,
        default: float | _Required = REQUIRED,
        *,
        low: float = 0.0,
        may_be_low: bool = False,
    ) -> float:
        """Return a finite number above `low`, or equal to it where it may be."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(key, value, "a number")
        is_inside = (low <= value if may_be_low else low < value) and value <= 1e30
        if not is_inside:
            raise self._refuse(key, value, f"a finite number above {low:g}")
        return float(value)

    def boolean(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._refuse(key, value, "true or false")
        return value

    def choice(
        self, key: str, choices: tuple[str, ...], default: str | _Required = REQUIRED
    ) -> str:
        value = self._get(key, default)
        if value not in choices:
            raise self._refuse(key, value, "one of " + ", ".join(choices))
        return str(value)

    def optional_integer(self, key: str, default: int | None = None) -> int | None:
        """Return an integer as `integer` does, but None for null even where there is a default."""
        self._read.add(key)
        if self._values.get(key, default) is None:
            return None
        return self.integer(key, REQUIRED if default is None else default)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, or None where the key is missing or null."""
        value = self._get(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._refuse(key, value, "a list of texts")
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """Return a list of integers, empty where the key is missing or null."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self._refuse(key, value, "a list of integers")
        return tuple(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of finite numbers above 0, which must be there."""
        value = self._get(key, REQUIRED)
        is_list = isinstance(value, list) and all(type(item) in (int, float) for item in value)
        if not is_list or not all(0 < item <= 1e30 for item in value):
            raise self._refuse(key, value, "a list of finite numbers above 0")
        return tuple(value)

    def section(self, *keys: str) -> ConfigReader | None:
        """Return the first of these keys that holds a non-empty object, as a reader of its own."""
        found = [key for key in keys if self._get(key, None)]
        if not found:
            return None
        value = self._values[found[0]]
        if not isinstance(value, dict):
            raise self._refuse(found[0], value, "an object")
        path = f"{self._path}{found[0]}."
        return ConfigReader(value, allow_unknown=self._allow_unknown, path=path)

    def must_be(self, key: str, *harmless: object) -> None:
        """Refuse a key whose other values would change the maths in a way we don't have."""
        value = self._get(key, harmless[0])
        if value not in harmless:
            expected = " or ".join(repr(choice) for choice in harmless)
            raise self._refuse(key, value, f"{expected}: inferno does not implement the others")

    def refuse_unread(self, *, inert: frozenset[str]) -> None:
        """Refuse keys that nobody read, that are not inert or null, unless all are allowed."""
        unread = sorted(
            key
            for key, value in self._values.items()
            if key not in self._read and key not in inert and value is not None
        )
        if unread and not self._allow_unknown:
            shown = ", ".join(f"{self._path}{key[:64]}" for key in unread[:20])
            raise ConfigError(
                f"config.json has keys that inferno doesn't know and that may change the result: "
                f"{shown}. If they are harmless, pass --allow-unknown-config."
            )

    def _get(self, key: str, default: object) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        value = default if value is None else value
        if isinstance(value, _Required):
            raise ConfigError(f"config.json lacks {self._path}{key}, which this model needs")
        return value

    def _refuse(self, key: str, value: object, expected: str) -> ConfigError:
        is_huge = isinstance(value, int) and value.bit_length() > 256
        shown = "a huge integer" if is_huge else repr(value)[:80]
        return ConfigError(f"config.json: {self._path}{key} must be {expected}, not {shown}")


def read_rope(config: ConfigReader, *, max_positions: int, theta: float) -> RopeConfig:
    """Read rotary parameters in both forms: rope_theta + rope_scaling, or rope_parameters."""
    outer_theta = config.number("rope_theta", theta, low=1.0)
    config.must_be("partial_rotary_factor", 1.0, 1)
    outer_original = config.optional_integer("original_max_position_embeddings")
    section = config.section("rope_scaling", "rope_parameters")
    if section is None:
        return RopeConfig(outer_theta)
    section.must_be("partial_rotary_factor", 1.0, 1)
    theta = section.number("rope_theta", outer_theta, low=1.0)
    scaling = _read_scaling(section, max_positions, outer_original)
    section.refuse_unread(inert=_INERT_ROPE)
    return RopeConfig(theta, scaling)


def _read_scaling(
    section: ConfigReader, max_positions: int, original: int | None
) -> RopeScaling | None:
    # "dynamic" (NTK) is left out on purpose: its base follows the current length, so the same
    # token would get other values under another schedule.
    kinds = ("default", "linear", "llama3", "yarn", "factors")
    older_name = section.choice("type", kinds, "default")
    kind = section.choice("rope_type", kinds, older_name)
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(factor=section.number("factor"))
    if kind == "factors":  # a GGUF file's: no config.json of Hugging Face's has it
        return FactorScaling(factors=section.numbers("factors"))
    inner_original = section.integer("original_max_position_embeddings", max_positions)
    original = inner_original if original is None else original
    if kind == "llama3":
        return _read_llama3(section, original)
    return _read_yarn(section, max_positions, original)


def _read_llama3(section: ConfigReader, original: int) -> Llama3Scaling:
    low = section.number("low_freq_factor")
    return Llama3Scaling(
        factor=section.number("factor"),
        low_freq_factor=low,
        high_freq_factor=section.number("high_freq_factor", low=low),
        original_max_positions=original,
    )


def _read_yarn(section: ConfigReader, max_positions: int, original: int) -> YarnScaling:
    factor = section.number("factor", max_positions / original)
    mscale = section.number("mscale", 0.0, may_be_low=True)
    mscale_all = section.number("mscale_all_dim", 0.0, may_be_low=True)
    default_factor = _yarn_temperature(factor, 1.0)
    if mscale > 0 and mscale_all > 0:
        default_factor = _yarn_temperature(factor, mscale) / _yarn_temperature(factor, mscale_all)
    return YarnScaling(
        factor=factor,
        original_max_positions=original,
        attention_factor=section.number("attention_factor", default_factor),
        beta_fast=section.number("beta_fast", 32.0),
        beta_slow=section.number("beta_slow", 1.0),
        truncate=section.boolean("truncate", True),
    )


def _yarn_temperature(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSpec:
    """The keys and values that one layer keeps of a token; a window of None sees all tokens."""

    num_kv_heads: int
    head_dim: int
    window: int | None
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes and switches of a decoder; windows[i] is layer i's window, None for none."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_model_len: int
    tie_word_embeddings: bool
    windows: tuple[int | None, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    mixture: MixtureConfig | None = None

    def kv_specs(self, dtype: torch.dtype) -> tuple[KVSpec, ...]:
        """Return what each layer keeps of a token, in that dtype."""
        return tuple(
            KVSpec(
                num_kv_heads=self.num_kv_heads, head_dim=self.head_dim, window=window, dtype=dtype
            )
            for window in self.windows
        )


def read_decoder(
    config: ConfigReader,
    *,
    windows: tuple[int | None, ...],
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    rope_theta: float = 10000.0,
    rms_norm_eps: float = 1e-6,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
) -> DecoderConfig:
    """Read the keys that every decoder has; what differs by family is given by its file.

    num_kv_heads to rms_norm_eps  what a config without the key means; None: as many as queries
                                  have, and the width shared among them.
    """
    config.must_be("hidden_act", "silu", "swish")
    config.must_be("activation", "swiglu")
    hidden_size, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    num_kv_heads = config.optional_integer("num_key_value_heads", num_kv_heads) or num_heads
    head_dim = config.integer("head_dim", head_dim or max(hidden_size // num_heads, 1))
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"config.json: num_attention_heads ({num_heads}) is not a multiple of "
            f"num_key_value_heads ({num_kv_heads})"
        )
    if head_dim % 2:
        raise ConfigError(f"config.json: head_dim ({head_dim}) must be even for rotary embedding")
    max_positions = config.integer("max_position_embeddings")
    rope = read_rope(config, max_positions=max_positions, theta=rope_theta)
    if isinstance(rope.scaling, FactorScaling) and len(rope.scaling.factors) != head_dim // 2:
        raise ConfigError(
            f"config.json: rope_scaling.factors must be {head_dim // 2}, one for each pair of a "
            f"head's {head_dim} dimensions, not {len(rope.scaling.factors)}"
        )
    return DecoderConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=len(windows),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=config.number("rms_norm_eps", rms_norm_eps),
        rope=rope,
        max_model_len=_context(rope, max_positions),
        tie_word_embeddings=config.boolean("tie_word_embeddings", False),
        windows=windows,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
    )


def _context(rope: RopeConfig, max_positions: int) -> int:
    """Return the tokens that positions reach, YaRN's stretch included in any case."""
    if not isinstance(rope.scaling, YarnScaling):
        return max_positions
    return max(max_positions, int(rope.scaling.factor * rope.scaling.original_max_positions))
