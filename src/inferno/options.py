"""How an engine is built: plain frozen data, checked when it is built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from inferno.errors import InvalidRequest

DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTION_KINDS = ("auto", "naive", "flash")
KV_DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")
QUANTIZATIONS = ("none", "int8", "int4")
LOAD_FORMATS = ("safetensors", "dummy")
_DEVICE = re.compile(r"cpu|mps|cuda(:\d{1,3})?")
_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Everything that shapes an engine; bad values raise InvalidRequest.

    model           the checkpoint's folder.
    device          cpu, cuda, cuda:N or mps.
    dtype           what is computed with; auto is the checkpoint's, or float32 on a CPU that has no
                    bfloat16 arithmetic.
    threads         CPU threads; None is the physical cores that affinity and cgroup allow.
    block_size      tokens per block of the KV cache.
    num_blocks      blocks in the KV cache; None sizes it from free memory.
    max_model_len   context in tokens; None is the model's own.
    max_num_seqs    requests computed at once; max_num_batched_tokens: tokens computed per step.
    priority_aging  levels of priority that a request gains per second of waiting; 0 keeps them
                    strict.
    step_target_ms  how long a step should take at most while a stream waits for its next token;
                    auto is 250 ms, or four times what the streams alone take, and 0 sets no bound.
    attention       the reference's attention algorithm: flash, naive, or auto by length.
    quantize        int8 or int4 packs the weights so while they are loaded; activations are then
                    float32 unless dtype says otherwise.
    kv_dtype        what keys and values are kept in; auto is dtype. If quantized, it is bfloat16 on
                    a CPU with bfloat16 arithmetic, else float16.
    load_format     safetensors, or dummy: random weights in the config's real shapes.
    prefix_cache    keep computed blocks of ended requests for those that begin alike.
    eager           run every op of every step from Python, for those who watch a model from
                    outside; otherwise small steps are recorded and replayed.
    allow_unknown_config  go on when config.json has keys that inferno doesn't know.
    """

    model: Path
    device: str = "cpu"
    dtype: str = "auto"
    threads: int | None = None
    block_size: int = 16
    num_blocks: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    priority_aging: float = 0.1
    step_target_ms: float | str = "auto"
    attention: str = "auto"
    quantize: str = "none"
    kv_dtype: str = "auto"
    load_format: str = "safetensors"
    prefix_cache: bool = True
    eager: bool = False
    allow_unknown_config: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.device, str) or not _DEVICE.fullmatch(self.device):
            raise _refuse("device", self.device, "cpu, cuda, cuda:N or mps")
        self._check_choice("dtype", DTYPES)
        self._check_choice("attention", ATTENTION_KINDS)
        self._check_choice("quantize", QUANTIZATIONS)
        self._check_choice("kv_dtype", KV_DTYPES)
        self._check_choice("load_format", LOAD_FORMATS)
        self._check_count("block_size", high=1024)
        self._check_count("max_num_seqs", high=4096)
        self._check_count("max_num_batched_tokens")
        for name, high in (("threads", 1024), ("num_blocks", 2**24), ("max_model_len", _MAX)):
            if getattr(self, name) is not None:
                self._check_count(name, high)
        if not _is_number(self.priority_aging, 0, 1e6):
            raise _refuse("priority_aging", self.priority_aging, "a number from 0 to 1,000,000")
        if self.step_target_ms != "auto" and not _is_number(self.step_target_ms, 0, _MAX):
            raise _refuse(
                "step_target_ms", self.step_target_ms, f"auto, or a number from 0 to {_MAX}"
            )
        for name in ("prefix_cache", "eager", "allow_unknown_config"):
            if not isinstance(getattr(self, name), bool):
                raise _refuse(name, getattr(self, name), "true or false")

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        if getattr(self, name) not in choices:
            raise _refuse(name, getattr(self, name), "one of " + ", ".join(choices))

    def _check_count(self, name: str, high: int = _MAX) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
            raise _refuse(name, value, f"an integer from 1 to {high}")


def _is_number(value: object, low: float, high: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return low <= value <= high


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {expected}, not {value!r}", param=name)
