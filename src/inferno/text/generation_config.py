"""Read a model's defaults of sampling, and the tokens that end its texts, from its files."""

from __future__ import annotations

from typing import Any

from inferno.errors import ConfigError, InvalidRequest
from inferno.model_files import CONFIG, GENERATION_CONFIG, ModelFiles
from inferno.requests import SamplingParams
from inferno.text.tokenizer import Tokenizer

_PARAM_OF_KEY = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}


def default_params(files: ModelFiles) -> dict[str, float | int]:
    """Return the model's own defaults for SamplingParams; empty without generation_config.json.

    `do_sample` is not read: temperature alone says whether to sample. ConfigError where a value is
    one that SamplingParams refuses.
    """
    config = _read(files, GENERATION_CONFIG)
    params = {
        param: config[key] for key, param in _PARAM_OF_KEY.items() if config.get(key) is not None
    }
    try:
        SamplingParams(**params)
    except InvalidRequest as problem:
        place = files.place(GENERATION_CONFIG)
        raise ConfigError(f"{place}: {problem}; correct the file") from None
    return params


def eos_token_ids(files: ModelFiles, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the end-of-sequence ids of config.json, generation_config.json and the tokenizer.

    Chat models end a turn with one token and a document with another, and often no single file
    names both. Raises ConfigError where a value is no id of the vocabulary.
    """
    config, generation_config = _read(files, CONFIG), _read(files, GENERATION_CONFIG)
    vocab_size = max(tokenizer.vocab_size, _vocab_size(config))
    return frozenset(
        [
            *_ids(config, files.place(CONFIG), vocab_size),
            *_ids(generation_config, files.place(GENERATION_CONFIG), vocab_size),
            *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]),
        ]
    )


def _read(files: ModelFiles, name: str) -> dict[str, Any]:
    return files.json(name, error=ConfigError) if files.has(name) else {}


def _vocab_size(config: dict[str, Any]) -> int:
    # The model's own size, padded or not, is the model's to check.
    size = config.get("vocab_size")
    return size if isinstance(size, int) else 0


def _ids(config: dict[str, Any], place: str, vocab_size: int) -> list[int]:
    declared = config.get("eos_token_id")
    if declared is None:
        return []
    ids = declared if isinstance(declared, list) else [declared]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise ConfigError(
                f"eos_token_id in {place} must be a token id from 0 to {vocab_size - 1} or a list "
                f"of them, not {declared!r:.80}; correct the file"
            )
    return ids
