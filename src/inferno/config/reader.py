"""Read config.json key by key: keys that a model doesn't read must be known to be harmless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.errors import ConfigError

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
_MAX_INT = 2**31 - 1
_MAX_NUMBER = 1e30


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

    def names(self) -> tuple[str, ...]:
        """Return the keys that are there."""
        return tuple(self._values)

    def has_read(self, key: str) -> bool:
        """Return whether the key's value was read."""
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
        high: float = _MAX_NUMBER,
        may_be_low: bool = False,
    ) -> float:
        """Return a number above `low`, or at least `low` where that is allowed, up to `high`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(key, value, "a number")
        is_inside = (low <= value if may_be_low else low < value) and value <= high
        if not is_inside:
            raise self._refuse(key, value, _numbers("a finite number", low, high))
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

    def numbers(self, key: str, *, high: float = _MAX_NUMBER) -> tuple[float, ...]:
        """Return a list of numbers above 0, up to `high`, which must be there."""
        value = self._get(key, REQUIRED)
        is_list = isinstance(value, list) and all(type(item) in (int, float) for item in value)
        if not is_list or not all(0 < item <= high for item in value):
            raise self._refuse(key, value, _numbers("a list of finite numbers", 0, high))
        return tuple(value)

    def section(self, *keys: str) -> ConfigReader | None:
        """Return a reader of the first of some keys that has a non-empty object."""
        found = [key for key in keys if self._get(key, None)]
        if not found:
            return None
        value = self._values[found[0]]
        if not isinstance(value, dict):
            raise self._refuse(found[0], value, "an object")
        path = f"{self._path}{found[0]}."
        return ConfigReader(value, allow_unknown=self._allow_unknown, path=path)

    def must_be(self, key: str, *harmless: object) -> None:
        """Refuse other values of a key, which would change the maths in a way we don't have."""
        value = self._get(key, harmless[0])
        if value not in harmless:
            expected = " or ".join(repr(choice) for choice in harmless)
            raise self._refuse(key, value, f"{expected}: inferno does not implement the others")

    def refuse_unread(self, *, inert: frozenset[str]) -> None:
        """Refuse keys that were not read, unless they are harmless or null, or all are allowed."""
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


def _numbers(what: str, low: float, high: float) -> str:
    """Return in words what numbers must be."""
    return f"{what} above {low:g}" + (f", at most {high:g}" if high < _MAX_NUMBER else "")
