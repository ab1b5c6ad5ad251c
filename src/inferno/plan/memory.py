"""The memory of a model, a token and a step, from headers and config.json alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferno import quantization
from inferno.errors import CheckpointError, ConfigError, InvalidRequest
from inferno.gguf.names import ROPE_FACTORS, hf_name
from inferno.hub.facts import Tensor, read_tensors
from inferno.machine import has_bfloat16
from inferno.model_files import CONFIG, model_files
from inferno.options import EngineOptions
from inferno.plan.choices import asked_dtype, choose_dtype, choose_kv_dtype, choose_num_blocks
from inferno.quantization import FORMATS, MXFP4

# Python with PyTorch, before any model: measured as PSS on Linux, x86-64, Python 3.11, CPU alone.
BASE_BYTES = 175_000_000
_KEYS = re.compile(r".*\.self_attn\.k_proj\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The bytes that a model will take on a CPU, with the options that it was planned for.

    weights      bytes by the name of the format in which they are kept.
    token_bytes  of keys and values of a token, in all layers.
    workspace    of a full step's activations and logits: an estimate.
    """

    dtype: str
    kv_dtype: str
    weights: Mapping[str, int]
    token_bytes: int
    workspace: int
    context: int
    num_blocks: int
    block_size: int
    available: int | None

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of all weights."""
        return sum(self.weights.values())

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of the whole KV cache, with its scratch block; 0 where none fits."""
        return (self.num_blocks + 1) * self.block_size * self.token_bytes if self.num_blocks else 0

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all of it once each block of the cache was written."""
        return BASE_BYTES + self.weights_bytes + self.workspace + self.cache_bytes

    @property
    def fits(self) -> bool:
        """Return whether the plan fits in what can be allocated now; True where nobody can tell."""
        if not self.num_blocks:
            return False
        return self.available is None or self.total_bytes <= self.available

    def num_requests(self, context: int) -> int:
        """Return how many requests of so many tokens the cache holds at once."""
        return self.num_blocks // math.ceil(context / self.block_size)


def make_plan(path: Path, options: EngineOptions, available: int | None) -> Plan:
    """Return the plan of a model that is here, a folder or a GGUF file.

    available  the bytes that can be allocated now; None: nobody can tell.

    Raises ModelError where its files are missing or damaged.
    """
    config = model_files(path).json(CONFIG, error=ConfigError)
    tensors = list(_named(path, read_tensors(path), is_tied=_is_tied(config)))
    if not tensors:
        raise CheckpointError(f"{path} holds no weights; give a folder with safetensors or a GGUF")
    bfloat16 = has_bfloat16()
    dtype = choose_dtype(
        asked_dtype(options.dtype, options.quantize), config, is_cpu=True, has_bfloat16=bfloat16
    )
    is_quantized = options.quantize != "none"
    kv_dtype = choose_kv_dtype(
        options.kv_dtype, dtype, is_quantized=is_quantized, has_bfloat16=bfloat16
    )
    context = _context(config, options)
    weights = _kept_bytes(tensors, dtype, options.quantize if is_quantized else None)
    token_bytes = _token_bytes(tensors, config, kv_dtype)
    workspace = _workspace(config, options)
    after_weights = None
    if available is not None:
        after_weights = max(0, available - BASE_BYTES - sum(weights.values()))
    block_bytes = token_bytes * options.block_size
    num_blocks = options.num_blocks or 0
    if not num_blocks and (after_weights is None or after_weights >= 2 * block_bytes):
        num_blocks = choose_num_blocks(
            block_bytes,
            after_weights,
            block_size=options.block_size,
            num_groups=1,
            most_tokens=options.max_num_seqs * context,
        )
    return Plan(
        dtype=dtype,
        kv_dtype=kv_dtype,
        weights=weights,
        token_bytes=token_bytes,
        workspace=workspace,
        context=context,
        num_blocks=num_blocks,
        block_size=options.block_size,
        available=available,
    )


def _named(path: Path, tensors: Iterable[Tensor], *, is_tied: bool) -> Iterator[Tensor]:
    """Yield the tensors that become weights, by Hugging Face's names."""
    for tensor in tensors:
        name = hf_name(tensor.name) if path.is_file() else tensor.name
        is_left_out = name == ROPE_FACTORS or name.endswith("rotary_emb.inv_freq")
        if not is_left_out and not (is_tied and name == "lm_head.weight"):
            yield Tensor(name, tensor.dtype, tensor.shape, tensor.file)


def _kept_bytes(tensors: Iterable[Tensor], dtype: str, quantize: str | None) -> dict[str, int]:
    bits: Counter[str] = Counter()
    for tensor in tensors:
        if any(tensor.name.endswith(part.suffix) for part in MXFP4.parts):
            bits[MXFP4.name] += 8 * math.prod(tensor.shape)
            continue
        # Checkpoints call gate what models here call router.
        name = re.sub(r"\.gate\.weight$", ".router.weight", tensor.name)
        # Blocks stay what they are where kernels run, which compute in these two.
        stored = quantization.kept_blocks(tensor.dtype, has_kernels=dtype != "float16")
        kept = quantization.keep(name, len(tensor.shape), stored, FORMATS[dtype], quantize)
        bits[kept.name] += math.ceil(kept.bits * math.prod(tensor.shape))
    return {name: math.ceil(count / 8) for name, count in bits.items()}


def _token_bytes(tensors: Iterable[Tensor], config: Mapping[str, Any], kv_dtype: str) -> int:
    """Return the bytes of a token's keys and values: as many as the key products have outputs."""
    rows = [tensor.shape[0] for tensor in tensors if _KEYS.fullmatch(tensor.name) and tensor.shape]
    if not any(rows):
        raise CheckpointError("the files list no self_attn.k_proj.weight, so no cache is known")
    scales = 0
    if kv_dtype == "int8":
        head_dim = _size(config, "head_dim") or (
            _size(config, "hidden_size") // max(1, _size(config, "num_attention_heads"))
        )
        scales = 4 * sum(rows) // max(1, head_dim)
    return 2 * (sum(rows) * FORMATS[kv_dtype].code_bits // 8 + scales)


def _workspace(config: Mapping[str, Any], options: EngineOptions) -> int:
    """Return the bytes of a full step: residual, output and inputs of a layer, and logits."""
    widths = 4 * _size(config, "hidden_size") + 2 * _size(config, "intermediate_size")
    logits = 2 * options.max_num_seqs * _size(config, "vocab_size")
    return 4 * (options.max_num_batched_tokens * widths + logits)


def _context(config: Mapping[str, Any], options: EngineOptions) -> int:
    most = _size(config, "max_position_embeddings")
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if isinstance(scaling, dict) and "yarn" in (scaling.get("rope_type"), scaling.get("type")):
        factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
        if isinstance(factor, int | float) and isinstance(original, int):
            most = max(most, int(factor * original))
    if not most:
        raise ConfigError("config.json lacks max_position_embeddings, which this model needs")
    if options.max_model_len is not None and options.max_model_len > most:
        raise InvalidRequest(
            f"max_model_len must be at most the model's context of {most} tokens, "
            f"not {options.max_model_len}",
            param="max_model_len",
        )
    return options.max_model_len or most


def _is_tied(config: Mapping[str, Any]) -> bool:
    return config.get("tie_word_embeddings") is True


def _size(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0
