"""Turn a GGUF file's metadata into config.json, so that one strict reader reads both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno.config.rope import yarn_temperature
from inferno.errors import ConfigError, UnknownArchitecture
from inferno.gguf.header import GgufTensor, Value
from inferno.quantization import BLOCKS_OF_GGUF
from inferno.untrusted_json import quoted

# Blocks, and what is stored in bfloat16, are computed in that.
_FLOATS = {"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# config.json's key for each of a model's own, by what follows "ARCHITECTURE." in the metadata.
_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_DENSE_SIZES = {**_SIZES, "feed_forward_length": "intermediate_size"}
_MIXTURE_SIZES = {
    **_DENSE_SIZES,
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_MIXTRAL_SIZES = {
    **_DENSE_SIZES,
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
}
_GPT_OSS_SIZES = {
    **_SIZES,
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "intermediate_size",
    "attention.sliding_window": "sliding_window",
}
_OPTIONAL = {"attention.head_count_kv", "rope.freq_base"}

# What files that don't say mean; config.json's defaults, of key heads too, differ by family.
_USUAL_THETA, _USUAL_SCALING = 10000.0, 1.0
_MOST_LAYERS = 1024  # more is a damaged file, which the reader of config.json refuses

# Keys that change nothing about the forward pass, or that other parts read.
_INERT = {"vocab_size", "rope.scaling.finetuned"}
# What older converters write of rows that lie as rotary pairs, as they do in all files of the kind.
_PERMUTED_LAYOUT = "Meta AI original pth"


@dataclass(frozen=True, slots=True)
class _Family:
    """A GGUF architecture's name in config.json, and its keys.

    Files of Mixtral have Llama's architecture and a number of experts; here they are of a kind of
    their own.

    constants    keys of config.json that the architecture implies.
    yarn         likewise, of rope_scaling; None: models may do without YaRN.
    unused       keys that the architecture doesn't use, though files have them.
    zeros        keys that count what the architecture doesn't have.
    written_as   general.architecture, where the kind has another name.
    is_permuted  whether files hold the rows of each query and key head as rotary pairs.
    has_windows  whether some layers see only the last tokens.
    """

    hf_name: str
    model_type: str
    sizes: Mapping[str, str]
    constants: Mapping[str, Any]
    yarn: Mapping[str, Any] | None = None
    unused: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    written_as: str | None = None
    is_permuted: bool = False
    has_windows: bool = False


_FAMILIES = {
    "llama": _Family(
        "LlamaForCausalLM",
        "llama",
        _DENSE_SIZES,
        {},
        zeros=("expert_count", "expert_used_count"),
        is_permuted=True,
    ),
    "mixtral": _Family(
        "MixtralForCausalLM",
        "mixtral",
        _MIXTRAL_SIZES,
        {},
        written_as="llama",
        is_permuted=True,
    ),
    "qwen2": _Family("Qwen2ForCausalLM", "qwen2", _DENSE_SIZES, {"use_sliding_window": False}),
    "qwen3": _Family("Qwen3ForCausalLM", "qwen3", _DENSE_SIZES, {"use_sliding_window": False}),
    "qwen3moe": _Family(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        _MIXTURE_SIZES,
        {"norm_topk_prob": True, "decoder_sparse_step": 1, "use_sliding_window": False},
        zeros=("expert_shared_feed_forward_length", "expert_shared_count"),
    ),
    "gpt-oss": _Family(
        "GptOssForCausalLM",
        "gpt_oss",
        _GPT_OSS_SIZES,
        # The limit of its activation is in no file; llama.cpp has the same number in its code.
        {"swiglu_limit": 7.0, "quantization_config": {"quant_method": BLOCKS_OF_GGUF}},
        # Published so, and no key says it. llama.cpp rounds the ends of every model's ramp.
        yarn={"truncate": False},
        unused=("feed_forward_length",),
        has_windows=True,
    ),
}

# Architectures of config.json that GGUF files have as another's.
_KIND_OF_OTHERS = {"MistralForCausalLM": "llama"}


def kind_of(metadata: Mapping[str, Value]) -> str:
    """Return general.architecture, or mixtral for Llama's with experts.

    Raises UnknownArchitecture, which lists the known ones.
    """
    kind = metadata.get("general.type", "model")
    if kind != "model":
        raise UnknownArchitecture(
            f"general.type is {quoted(str(kind))}, and inferno runs models only: an adapter or a "
            "projector goes with a model, and can't be run by itself"
        )
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _FAMILIES or _FAMILIES[name].written_as:
        known = [kind for kind, family in _FAMILIES.items() if family.written_as is None]
        raise UnknownArchitecture(
            f"general.architecture is {quoted(str(name))}, which inferno doesn't read from GGUF. "
            f"It reads: {', '.join(known)}."
        )
    return "mixtral" if name == "llama" and metadata.get("llama.expert_count") else name


def kind_for(hf_name: str) -> str:
    """Return the kind of file for an architecture of config.json, or raise UnknownArchitecture."""
    names = {family.hf_name: name for name, family in _FAMILIES.items()} | _KIND_OF_OTHERS
    if hf_name not in names:
        raise UnknownArchitecture(
            f"config.json asks for {quoted(hf_name)}, which inferno doesn't write as GGUF. It "
            f"writes: {', '.join(names)}."
        )
    return names[hf_name]


def architecture_of(kind: str) -> str:
    """Return general.architecture of files of a kind."""
    return _FAMILIES[kind].written_as or kind


def sizes_of(kind: str) -> Mapping[str, str]:
    """Return the keys of a kind, after "ARCHITECTURE.", and config.json's for each."""
    return _FAMILIES[kind].sizes


def has_permuted_heads(kind: str) -> bool:
    """Return whether a kind of file has the rows of q and k as rotary pairs: 0, D/2, 1, D/2 + 1."""
    return _FAMILIES[kind].is_permuted


def head_dim(metadata: Mapping[str, Value]) -> int:
    """Return the size of a head, on which keys, values and rotation must agree.

    Raises ConfigError.
    """
    keys = _Keys(metadata, kind_of(metadata))
    num_heads = keys.count("attention.head_count")
    shared = keys.count("embedding_length") // num_heads
    size = keys.count("attention.key_length", shared)
    for key in ("attention.value_length", "rope.dimension_count"):
        other = keys.count(key, size)
        if other != size:
            raise ConfigError(
                f"{keys.name_of(key)} is {other}, and heads have a size of {size}: inferno does "
                "not implement heads of which only a part is rotated, or of two sizes"
            )
    if size < 2 or size % 2:
        raise ConfigError(f"heads have a size of {size}, expected an even number")
    return size


def config_of(
    metadata: Mapping[str, Value],
    tensor_names: Sequence[str],
    *,
    stored: str,
    rope_factors: Sequence[float] | None,
) -> dict[str, Any]:
    """Return what config.json would say of a GGUF file's model.

    stored        GGUF's name of the type that most values have.
    rope_factors  the divisor of each rotary frequency, if the file has a tensor of them.

    Unknown keys of the architecture are there by their own names, for the reader of config.json to
    refuse: they may change the result.

    Raises ConfigError where a key is missing, or of the wrong type.
    """
    kind = kind_of(metadata)
    family = _FAMILIES[kind]
    keys = _Keys(metadata, kind)
    values: dict[str, Any] = {
        "architectures": [family.hf_name],
        "model_type": family.model_type,
        "torch_dtype": _FLOATS.get(stored, "bfloat16"),
        "vocab_size": _vocab_size(metadata, keys),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensor_names,
        "attention_bias": "blk.0.attn_output.bias" in tensor_names,
        **family.constants,
    }
    if "blk.0.ffn_gate.bias" in tensor_names:
        values["mlp_bias"] = True
    if stored not in _FLOATS:
        values["quantization_config"] = {"quant_method": BLOCKS_OF_GGUF}
    for key, hf_key in family.sizes.items():
        value = keys.number(key, is_optional=key in _OPTIONAL)
        if value is not None:
            values[hf_key] = value
    values.setdefault("rope_theta", _USUAL_THETA)
    values.setdefault("num_key_value_heads", values["num_attention_heads"])
    values["head_dim"] = head_dim(metadata)
    keys.ignore("attention.key_length", "attention.value_length", "rope.dimension_count")
    scaling = _rope_scaling(keys, values, rope_factors, family.yarn)
    if scaling is not None:
        values["rope_scaling"] = scaling
    if family.has_windows:
        values["layer_types"] = _layer_types(keys, keys.count("block_count"))
    for key in family.zeros:
        keys.must_be(key, 0)
    keys.ignore(*family.unused)
    if family.is_permuted:
        keys.ignore_text("tensor_data_layout", _PERMUTED_LAYOUT)
    return values | keys.unread()


# What generation_config.json calls the authors' recommendations, by what follows
# "general.sampling.".
SAMPLING_KEYS: Mapping[str, str] = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def sampling_defaults(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """Return what generation_config.json would say of sampling: the authors' recommendations.

    llama.cpp takes a top_k below 1 for "off", which is 0 there.
    """
    found = {
        hf_name: metadata.get(f"general.sampling.{name}") for name, hf_name in SAMPLING_KEYS.items()
    }
    if type(top_k := found["top_k"]) is int:
        found["top_k"] = max(top_k, 0)
    return {name: value for name, value in found.items() if value is not None}


class _Keys:
    """The keys of a file's architecture, which remembers those that were read."""

    def __init__(self, metadata: Mapping[str, Value], kind: str) -> None:
        self._prefix = f"{architecture_of(kind)}."
        self._values = {
            key.removeprefix(self._prefix): value
            for key, value in metadata.items()
            if key.startswith(self._prefix)
        }
        self._read: set[str] = set()

    def number(self, key: str, *, is_optional: bool = False) -> int | float | None:
        """Return a number; None where it is missing and may be."""
        value: int | float | None = self._get(
            key,
            is_optional,
            lambda value: isinstance(value, int | float) and not isinstance(value, bool),
            "a number",
        )
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """Return an integer of at least 1; without a default it must be there."""
        value: int | None = self._get(
            key,
            default is not None,
            lambda value: type(value) is int and value > 0,
            "an integer of at least 1",
        )
        if value is not None:
            return value
        assert default is not None
        return default

    def name_of(self, key: str) -> str:
        """Return the whole name of a key."""
        return f"{self._prefix}{key}"

    def ignore(self, *keys: str) -> None:
        """Take keys as read, for others read them."""
        self._read.update(keys)

    def must_be(self, key: str, *harmless: float) -> None:
        """Refuse a key whose other values would change the maths in a way we don't have."""
        value = self.number(key, is_optional=True)
        if value is not None and value not in harmless:
            expected = " or ".join(f"{one:g}" for one in harmless)
            raise ConfigError(
                f"{self.name_of(key)} is {value:g}, expected {expected}: inferno does not "
                "implement the others"
            )

    def count_or_flags(self, key: str, default: int) -> int | list[bool]:
        """Return an integer of at least 1, or a list of truth values."""
        value: int | list[bool] | None = self._get(
            key,
            True,
            lambda value: (
                (type(value) is int and value > 0)
                or (isinstance(value, list) and all(type(one) is bool for one in value))
            ),
            "an integer of at least 1, or truth values",
        )
        return default if value is None else value

    def text(self, key: str) -> str | None:
        """Return a text, None where it is missing."""
        value: str | None = self._get(key, True, lambda value: isinstance(value, str), "a text")
        return value

    def ignore_text(self, key: str, harmless: str) -> None:
        """Take a key as read where it has this value."""
        if self._values.get(key) == harmless:
            self.ignore(key)

    def unread(self) -> dict[str, Value]:
        """Return what nobody asked for, by whole names."""
        left = self._values.keys() - self._read - _INERT
        return {self.name_of(key): self._values[key] for key in sorted(left)}

    def _get(
        self, key: str, is_optional: bool, is_right: Callable[[object], bool], expected: str
    ) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        if value is None and is_optional:
            return None
        if value is None:
            raise ConfigError(
                f"its metadata lacks {self._prefix}{key}, which this model needs; download the "
                "file again, or make it anew"
            )
        if not is_right(value):
            # Of a long list the text would take seconds.
            shown = f"{len(value)} values" if isinstance(value, list) else str(value)[:80]
            raise ConfigError(f"{self._prefix}{key} must be {expected}, not {shown}")
        return value


def _vocab_size(metadata: Mapping[str, Value], keys: _Keys) -> Any:
    """Return the number of tokens, which older files only list."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    return keys.number("vocab_size", is_optional=True) or (
        len(tokens) if isinstance(tokens, list) else None
    )


def _rope_scaling(
    keys: _Keys,
    values: Mapping[str, Any],
    factors: Sequence[float] | None,
    yarn: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    newer, older = "rope.scaling.factor", "rope.scale_linear"
    factor, older_factor = (keys.number(key, is_optional=True) for key in (newer, older))
    factor = older_factor if factor is None else factor
    # A factor without a type divides positions, as in llama.cpp.
    kind = keys.text("rope.scaling.type") or ("none" if factor is None else "linear")
    original = keys.number("rope.scaling.original_context_length", is_optional=True)
    if kind not in ("none", "linear", "yarn"):
        raise ConfigError(
            f"rope.scaling.type is {quoted(kind)}, expected none, linear or yarn: inferno does not "
            "implement the others"
        )
    if yarn is not None and kind != "yarn":
        raise ConfigError(
            f"{keys.name_of('rope.scaling.type')} is {quoted(kind)}, expected yarn, with which "
            "this model was trained"
        )
    if kind != "yarn":
        keys.must_be("rope.scaling.attn_factor", 1)
    keys.must_be("rope.freq_base_swa", values["rope_theta"])
    if factors is not None:
        if kind != "none":
            raise ConfigError(
                f"the file has both rope_freqs.weight and a rope.scaling.type, {quoted(kind)}; "
                "inferno reads either"
            )
        return {"rope_type": "factors", "factors": list(factors)}
    if kind == "none":
        return None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": factor or _USUAL_SCALING}
    if kind == "yarn":
        # Which llama.cpp doesn't read for these architectures. Converters write two things there:
        # attention_factor of config.json, which is the whole, and attn_factor, a part of it.
        keys.ignore("rope.scaling.yarn_attn_factor")
        if (part := keys.number("rope.scaling.attn_factor", is_optional=True)) is not None:
            scaling["attention_factor"] = part * yarn_temperature(scaling["factor"])
        keys.must_be("rope.scaling.yarn_ext_factor", 1, -1)  # -1: as the type has it
        scaling["original_max_position_embeddings"] = original or values["max_position_embeddings"]
        for name in ("beta_fast", "beta_slow"):  # llama.cpp doesn't read them here either
            if (beta := keys.number(f"rope.scaling.yarn_{name}", is_optional=True)) is not None:
                scaling[name] = beta
        scaling |= yarn or {}
    return scaling


def _layer_types(keys: _Keys, num_layers: int) -> list[str]:
    """Return the kind of attention of each layer: by default every other layer has a window.

    A pattern is the number of layers of which the last one sees all tokens, or a flag by layer.
    """
    pattern = keys.count_or_flags("attention.sliding_window_pattern", 2)
    if isinstance(pattern, list):
        flags = pattern
    else:
        flags = [layer % pattern < pattern - 1 for layer in range(min(num_layers, _MOST_LAYERS))]
    return ["sliding_attention" if flag else "full_attention" for flag in flags]


def most_type(tensors: Iterable[GgufTensor]) -> str:
    """Return GGUF's name of the type that most values have."""
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[tensor.type.name] += math.prod(tensor.shape)
    ((name, _),) = counts.most_common(1) or [("F32", 0)]
    return name
