"""List the architectures, and read each family's config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from inferno.config.decoder import DecoderConfig, read_decoder
from inferno.config.fp8 import READERS
from inferno.config.gpt_oss import read_gpt_oss
from inferno.config.mixture import MixtureConfig, PlainSwiGLU, read_num_chosen, read_num_experts
from inferno.config.reader import INERT, ConfigReader
from inferno.config.windows import num_layers, read_layer_windows, refuse_windows
from inferno.errors import ConfigError, UnknownArchitecture
from inferno.quantization import BLOCKS_OF_GGUF, PACKED_HERE

_CONFIG = "config.json"  # with which messages of this package begin

# The sections that say how weights are packed.
QUANTIZATION_KEYS = ("quantization_config", "compression_config")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models by its name, and how its config.json is read."""

    name: str
    read: Callable[[ConfigReader], DecoderConfig]


def find_family(hf_config: Mapping[str, Any]) -> Family:
    """Return the family for config.json's `architectures`; UnknownArchitecture lists ours."""
    names = hf_config.get("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ConfigError('config.json lacks "architectures", a list with the model\'s class name')
    for name in names:
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise UnknownArchitecture(
        f"config.json asks for {', '.join(name[:64] for name in names[:4])}, which inferno doesn't "
        f"have. It has: {', '.join(ARCHITECTURES)}."
    )


def read_model_config(
    hf_config: Mapping[str, Any], *, allow_unknown: bool = False, place: str = _CONFIG
) -> DecoderConfig:
    """Read config.json as the model's own config; every key is read, inert, or refused.

    place  the name of what the config was made of, in messages.
    """
    try:
        return _read_model_config(hf_config, allow_unknown=allow_unknown)
    except ConfigError as problem:
        if place == _CONFIG:
            raise
        raise ConfigError(place + str(problem).removeprefix(_CONFIG)) from None


def _read_model_config(hf_config: Mapping[str, Any], *, allow_unknown: bool) -> DecoderConfig:
    family = find_family(hf_config)
    reader = ConfigReader(hf_config, allow_unknown=allow_unknown)
    reader.must_be("is_encoder_decoder", False)
    config = family.read(reader)
    _refuse_quantized(hf_config, reader)
    reader.refuse_unread(inert=INERT)
    return config


def _refuse_quantized(hf_config: Mapping[str, Any], reader: ConfigReader) -> None:
    """Refuse, by name, weights that need unpacking, unless the model's file has read how."""
    for key in QUANTIZATION_KEYS:
        section = hf_config.get(key)
        if not section or reader.has_read(key):
            continue
        method = section.get("quant_method") if isinstance(section, dict) else None
        if method in (PACKED_HERE, BLOCKS_OF_GGUF):  # then each tensor says how it is packed
            packing = reader.section(key)
            assert packing is not None
            packing.choice("quant_method", (PACKED_HERE, BLOCKS_OF_GGUF))
            packing.refuse_unread(inert=frozenset())
            continue
        if isinstance(method, str) and method in READERS:
            packing = reader.section(key)
            assert packing is not None
            READERS[method](packing)
            continue
        raise ConfigError(
            f"this checkpoint is quantized ({key}: {str(method or section)[:64]}), which inferno "
            f"doesn't read yet; use the model's original, unquantized checkpoint"
        )


def _read_llama(config: ConfigReader) -> DecoderConfig:
    """Read a LlamaForCausalLM config.json: attention biases on all products or none, no windows."""
    config.must_be("rope_interleaved", False)
    refuse_windows(config)
    has_bias = config.boolean("attention_bias", False)
    return read_decoder(
        config,
        windows=(None,) * num_layers(config),
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=config.boolean("mlp_bias", False),
    )


def _read_mistral(config: ConfigReader) -> DecoderConfig:
    """Read a MistralForCausalLM config.json: null means none, a missing key the first release's."""
    config.must_be("attention_bias", False)
    window = config.optional_integer("sliding_window", 4096)
    return read_decoder(config, windows=(window,) * num_layers(config), num_kv_heads=8)


def _read_qwen2(config: ConfigReader) -> DecoderConfig:
    """Read a Qwen2ForCausalLM config.json; num_key_value_heads is 32 where it isn't given."""
    config.must_be("use_mrope", False)
    config.must_be("attention_bias", True, False)  # q, k and v have biases whatever it says
    windows = read_layer_windows(config)
    return read_decoder(config, windows=windows, num_kv_heads=32, qkv_bias=True)


def _read_qwen3(config: ConfigReader) -> DecoderConfig:
    """Read a Qwen3ForCausalLM config.json; without the keys, 32 key heads, and heads of 128."""
    windows = read_layer_windows(config)
    has_bias = config.boolean("attention_bias", False)
    return read_decoder(
        config,
        windows=windows,
        num_kv_heads=32,
        head_dim=128,
        qkv_bias=has_bias,
        output_bias=has_bias,
    )


def _read_qwen3_moe(config: ConfigReader) -> DecoderConfig:
    """Read a Qwen3MoeForCausalLM config.json; windows, which no model has, are refused."""
    refuse_windows(config)
    # Qwen3-Coder's config has these of its forerunners, which had shared experts.
    config.must_be("shared_expert_intermediate_size", 0)
    config.must_be("qkv_bias", False)
    config.must_be("use_qk_norm", True)
    has_bias = config.boolean("attention_bias", False)
    decoder = read_decoder(
        config,
        windows=read_layer_windows(config),
        num_kv_heads=4,
        qkv_bias=has_bias,
        output_bias=has_bias,
    )
    return replace(decoder, mixture=_read_qwen3_mixture(config))


def _read_qwen3_mixture(config: ConfigReader) -> MixtureConfig:
    """Read the mixtures: every decoder_sparse_step-th layer has one, but for mlp_only_layers."""
    count = num_layers(config)
    step, dense = config.integer("decoder_sparse_step", 1), config.integers("mlp_only_layers")
    num_experts = read_num_experts(config, count)
    return MixtureConfig(
        layers=tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(count)),
        num_experts=num_experts,
        num_chosen=read_num_chosen(config, num_experts),
        size=config.integer("moe_intermediate_size"),
        renormalize=config.boolean("norm_topk_prob", False),
        activation=PlainSwiGLU(),
    )


def _read_mixtral(config: ConfigReader) -> DecoderConfig:
    """Read a MixtralForCausalLM config.json; a sliding_window holds in all layers."""
    config.must_be("attention_bias", False)
    count = num_layers(config)
    decoder = read_decoder(
        config,
        windows=(config.optional_integer("sliding_window"),) * count,
        num_kv_heads=8,
        rope_theta=1e6,
        rms_norm_eps=1e-5,
    )
    num_experts = read_num_experts(config, count)
    mixture = MixtureConfig(
        layers=(True,) * count,
        num_experts=num_experts,
        num_chosen=read_num_chosen(config, num_experts),
        size=decoder.intermediate_size,
        renormalize=True,
        activation=PlainSwiGLU(),
    )
    return replace(decoder, mixture=mixture)


# By the name of the class in `transformers`.
ARCHITECTURES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family("llama", _read_llama),
    "MistralForCausalLM": Family("mistral", _read_mistral),
    "Qwen2ForCausalLM": Family("qwen2", _read_qwen2),
    "Qwen3ForCausalLM": Family("qwen3", _read_qwen3),
    "Qwen3MoeForCausalLM": Family("qwen3_moe", _read_qwen3_moe),
    "MixtralForCausalLM": Family("mixtral", _read_mixtral),
    "GptOssForCausalLM": Family("gpt_oss", read_gpt_oss),
}
