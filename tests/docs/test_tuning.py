"""docs/tuning.md: its table follows from the models' configs, and its sums are right."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from inferno.config.families import read_model_config
from inferno.models import find_model
from inferno.weights.allocate import num_bytes
from tests.data import data_path
from tests.docs.pages import rows, section

PAGE = "docs/tuning.md"
TABLE = [row for row in rows(section(PAGE, "## What a model takes")) if row[0] != "Model"]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_a_row_follows_from_the_config(row: list[str]) -> None:
    name, parameters, stored, int8, int4, cache, context = row
    hf_config: dict[str, Any] = json.loads(data_path("hf", name, "config.json").read_text())
    config = read_model_config(hf_config)
    module = find_model(hf_config)
    with torch.device("meta"):
        model = module.build(config)
    fused = module.fused_weights(config)
    assert f"{num_parameters(model) / 1e9:.2f} billion" == parameters
    assert f"{num_bytes(model, torch.bfloat16, None, fused) / 1e9:.2f}" == stored
    assert f"{num_bytes(model, torch.float32, 'int8', fused) / 1e9:.2f}" == int8
    assert f"{num_bytes(model, torch.float32, 'int4', fused) / 1e9:.2f}" == int4
    per_layer = 2 * hf_config["num_key_value_heads"] * config.head_dim * 2
    assert f"{hf_config['num_hidden_layers'] * per_layer // 1024} KiB" == cache
    assert f"{config.max_model_len:,}" == context


def num_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_sums_for_seven_billion_parameters_are_right() -> None:
    text = " ".join(section(PAGE, "## What a model takes").split())
    [mistral] = [row for row in TABLE if row[0].startswith("Mistral-7B")]
    context_gb = 8192 * int(mistral[5].removesuffix(" KiB")) * 1024 / 1e9
    said = re.search(
        r"takes ([\d.]+) GB\*\*, and (\d+) GB with .* int8 needs ([\d.]+) GB and int4 ([\d.]+) GB",
        text,
    )
    assert said
    totals = [float(gb) + context_gb + 0.35 for gb in mistral[2:5]]
    assert float(said[1]) == float(mistral[2])
    assert [float(said[2]), float(said[3]), float(said[4])] == [
        round(totals[0]),
        round(totals[1], 1),
        round(totals[2], 1),
    ]
