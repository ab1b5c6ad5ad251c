"""Sections of config.json that tell of FP8: what is read, and what is refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from inferno.config.families import read_model_config
from inferno.errors import ConfigError, ModelError
from inferno.hub.kinds import refuse_config
from tests import fp8
from tests.models.test_config import llama


def test_sections_of_fp8_are_read() -> None:
    for section in (fp8.SECTION, fp8.compressed("tensor"), fp8.compressed("channel")):
        read_model_config(llama(quantization_config=section))
        refuse_config("a-model", {"quantization_config": section})
    of_blocks = fp8.compressed("block")
    weights = of_blocks["config_groups"]["group_0"]["weights"]
    weights["block_structure"] = [128, 128]
    read_model_config(llama(quantization_config=of_blocks))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"activation_scheme": "static"}, "activation_scheme"),
        ({"fmt": "e5m2"}, "fmt"),
        ({"scale_fmt": "ue8m0"}, "scale_fmt"),
        ({"weight_block_size": None}, "weight_block_size"),
        ({"weight_block_size": [64, 128]}, "weight_block_size"),
        ({"weight_block_size": "128"}, "weight_block_size"),
        ({"weight_per_tensor": True}, "weight_per_tensor"),
    ],
)
def test_other_kinds_of_fp8_are_refused_by_name_before_weights(
    changes: dict[str, Any], named: str
) -> None:
    section = {**fp8.SECTION, **changes}
    with pytest.raises(ConfigError, match=named):
        read_model_config(llama(quantization_config=section))
    with pytest.raises(ModelError, match=f"doesn't run it: .*{named}"):
        refuse_config("a-model", {"quantization_config": section})


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("format",), "int-quantized", "format"),
        (("kv_cache_scheme",), {"num_bits": 8}, "kv_cache_scheme"),
        (("sparsity_config",), {"format": "sparse-24"}, "sparsity_config"),
        (("unheard_of",), 1, "unheard_of"),
        (("config_groups",), {}, "config_groups"),
        (("config_groups", "group_0"), 3, "group_0"),
        (("config_groups", "group_0", "output_activations"), {"num_bits": 8}, "output_activations"),
        (("config_groups", "group_0", "weights"), None, "no weights"),
        (("config_groups", "group_0", "weights", "num_bits"), 4, "num_bits"),
        (("config_groups", "group_0", "weights", "type"), "int", "type"),
        (("config_groups", "group_0", "weights", "strategy"), "group", "strategy"),
        (("config_groups", "group_0", "weights", "symmetric"), False, "symmetric"),
        (("config_groups", "group_0", "input_activations", "dynamic"), False, "dynamic"),
        (("config_groups", "group_0", "input_activations", "num_bits"), 4, "num_bits"),
    ],
)
def test_other_kinds_of_compressed_tensors_are_refused_by_name(
    place: tuple[str, ...], value: object, named: str
) -> None:
    section = copy.deepcopy(fp8.compressed("channel"))
    inner = section
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(ConfigError, match=named):
        read_model_config(llama(quantization_config=section))
    with pytest.raises(ModelError, match=f"doesn't run it: .*{named}"):
        refuse_config("a-model", {"quantization_config": section})
