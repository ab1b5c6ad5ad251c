"""Loads for tests: few, short requests unless they are told otherwise."""

from __future__ import annotations

from typing import Any

from inferno.bench.load import Endpoint, Load
from inferno.http_post import parse_target

_USUAL: dict[str, Any] = {
    "headers": {},
    "endpoint": Endpoint.COMPLETIONS,
    "model": "m",
    "num_requests": 1,
    "request_rate": None,
    "concurrency": 1,
    "prompt_tokens": 4,
    "max_tokens": 3,
    "spread": 0.0,
    "vocab_size": None,
    "temperature": 0.0,
    "ignore_eos": False,
    "timeout": 10.0,
    "seed": 0,
    "first_token_bound": None,
    "between_tokens_bound": None,
}


def load_of(url: str = "http://127.0.0.1:9/v1/completions", **fields: Any) -> Load:
    return Load(**{**_USUAL, "target": parse_target(url, option="--x"), **fields})
