"""Check the quantization sections of config.json for weights in FP8.

The tensors tell which weights are in FP8, not the section. Activations are never quantized by a
checkpoint's scales, so sections that need this are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inferno.config.reader import ConfigReader
from inferno.errors import ConfigError
from inferno.quantization import FP8

_BLOCK = (FP8.group, FP8.group)
_LONGEST_NAME = 64
# Notes of whoever made the checkpoint, and what only tells how scales were found.
_INERT_OF_COMPRESSED = frozenset(
    {"version", "global_compression_ratio", "quantization_status", "ignore"}
)
_INERT_OF_ARGUMENTS = frozenset({"observer", "observer_kwargs"})


def read_fp8(section: ConfigReader) -> None:
    """Check a section of `quant_method` fp8: blocks of 128 by 128, as Qwen and DeepSeek have them.

    Raises ConfigError where the section asks for anything else.
    """
    section.choice("quant_method", ("fp8",))
    section.must_be("fmt", "e4m3")
    section.must_be("scale_fmt", "float")
    section.must_be("activation_scheme", "dynamic")
    section.must_be("dequantize", False)
    if not section.has("weight_block_size"):
        raise ConfigError(
            "config.json: quantization_config of quant_method fp8 lacks weight_block_size, which "
            "must be [128, 128]; use a checkpoint of such blocks, of compressed-tensors, or the "
            "original one"
        )
    if section.integers("weight_block_size") != _BLOCK:
        section.must_be("weight_block_size", list(_BLOCK))
    for key in ("modules_to_not_convert", "ignored_layers"):
        section.texts(key)
    section.refuse_unread(inert=frozenset())


def read_compressed_tensors(section: ConfigReader) -> None:
    """Check a section of `quant_method` compressed-tensors: weights in FP8, nothing else.

    A weight has one scale, or one for each output or block; activations are quantized by scales of
    their own, or not at all. Raises ConfigError where the section asks for anything else.
    """
    section.choice("quant_method", ("compressed-tensors",))
    section.must_be("format", "float-quantized")
    for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
        _must_be_empty(section, key)
    groups = section.section("config_groups")
    if groups is None:
        raise ConfigError("config.json: quantization_config.config_groups is empty or missing")
    for name in groups.names():
        group = groups.section(name) if len(name) <= _LONGEST_NAME else None
        if group is None:
            raise ConfigError(
                f"config.json: quantization_config.config_groups.{name[:_LONGEST_NAME]} must be an "
                f"object, with a name of {_LONGEST_NAME} characters at most"
            )
        _read_group(group)
    section.refuse_unread(inert=_INERT_OF_COMPRESSED)


def _read_group(group: ConfigReader) -> None:
    group.texts("targets")
    group.must_be("format", "float-quantized")
    _must_be_empty(group, "output_activations")
    weights, inputs = group.section("weights"), group.section("input_activations")
    if weights is None:
        raise ConfigError("config.json: a group of quantization_config has no weights")
    weights.must_be("dynamic", False)
    strategy = weights.choice("strategy", ("tensor", "channel", "block"))
    if strategy == "block":
        weights.must_be("block_structure", list(_BLOCK), f"{FP8.group}x{FP8.group}")
    _read_arguments(weights)
    if inputs is not None:
        inputs.must_be("dynamic", True)
        if inputs.choice("strategy", ("token", "tensor", "group")) == "group":
            inputs.must_be("group_size", FP8.group)
        _read_arguments(inputs)
    group.refuse_unread(inert=frozenset())


def _read_arguments(arguments: ConfigReader) -> None:
    arguments.must_be("type", "float")
    arguments.must_be("num_bits", 8)
    arguments.must_be("symmetric", True)
    arguments.must_be("scale_dtype", None)
    arguments.must_be("zp_dtype", None)
    arguments.must_be("actorder", None)
    if not arguments.has_read("group_size"):
        arguments.must_be("group_size", None)
    if not arguments.has_read("block_structure"):
        arguments.must_be("block_structure", None)
    arguments.refuse_unread(inert=_INERT_OF_ARGUMENTS)


def _must_be_empty(section: ConfigReader, key: str) -> None:
    if section.section(key) is not None:
        section.must_be(key, None)


# How sections of FP8 are read, by their quant_method.
READERS: Mapping[str, Callable[[ConfigReader], None]] = {
    "fp8": read_fp8,
    "compressed-tensors": read_compressed_tensors,
}
