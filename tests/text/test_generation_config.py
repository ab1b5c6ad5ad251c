"""Tests of inferno.text.generation_config: recommended sampling values, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferno.errors import ConfigError
from inferno.model_files import FolderFiles
from inferno.text.generation_config import default_params
from tests.data import data_path


def test_a_real_models_recommendation_is_read() -> None:
    params = default_params(FolderFiles(data_path("hf", "Qwen3-0.6B")))
    assert params == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


def test_what_does_not_choose_tokens_is_left_alone(tmp_path: Path) -> None:
    config = {
        "max_new_tokens": 9,
        "min_p": 0.1,
        "do_sample": False,
        "eos_token_id": 1,
        "top_k": None,
    }
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert default_params(FolderFiles(tmp_path)) == {"max_tokens": 9, "min_p": 0.1}


def test_no_file_is_no_recommendation(tmp_path: Path) -> None:
    assert default_params(FolderFiles(tmp_path)) == {}


@pytest.mark.parametrize(
    "content",
    [
        '{"temperature": -1}',
        '{"temperature": NaN}',
        '{"temperature": "hot"}',
        '{"top_p": -1}',
        '{"top_p": 1e999}',
        '{"top_k": 1.5}',
        '{"top_k": true}',
        '{"repetition_penalty": 0}',
        '{"max_new_tokens": 1e3}',
        '{"min_p": [0]}',
        "[]",
        "{",
    ],
)
def test_a_value_out_of_range_is_refused_by_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"generation_config\.json"):
        default_params(FolderFiles(tmp_path))
