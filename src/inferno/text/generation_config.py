"""The sampling defaults that a model's authors recommend in generation_config.json."""

from __future__ import annotations

from pathlib import Path

from inferno.errors import ConfigError, InvalidRequest
from inferno.json_file import read_json
from inferno.requests import SamplingParams

_PARAM_OF_KEY = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}


def default_params(folder: Path) -> dict[str, float | int]:
    """Return values for SamplingParams where the caller gives none; empty without the file.

    `do_sample` is not read: temperature alone says whether to sample. ConfigError where a value is
    one that SamplingParams refuses.
    """
    path = folder / "generation_config.json"
    if not path.exists():
        return {}
    config = read_json(path, error=ConfigError)
    params = {
        param: config[key] for key, param in _PARAM_OF_KEY.items() if config.get(key) is not None
    }
    try:
        SamplingParams(**params)
    except InvalidRequest as problem:
        raise ConfigError(f"{path}: {problem}; correct the file") from None
    return params
