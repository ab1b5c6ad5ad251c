"""Placeholder until the tokenizer's conversion is merged."""

from collections.abc import Mapping
from typing import Any


def tokenizer_files(metadata: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    return {}
