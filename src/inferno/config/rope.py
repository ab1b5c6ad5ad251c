"""Define rotary positions as configs have them: the base of frequencies, and the scaling.

`layers/rope.py` has the maths. A new kind of scaling also touches `verify/oracles/plain_config.py`,
which has it a second time; `_context` of `config/decoder.py`, if it reaches further positions; and
`gguf/config.py` and `convert/metadata.py`, if GGUF files have it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inferno.config.reader import ConfigReader
from inferno.errors import ConfigError

# DeepSeek-R1-0528-Qwen3-8B has an attn_factor, which transformers and llama.cpp don't read.
_INERT_ROPE = frozenset({"finetuned", "attn_factor"})
# Of a context of 256 tokens this makes 2**24, and further positions are none in float32, in which
# they are turned into angles. The longest contexts of published models take less than 10,000.
_MAX_FACTOR = 65536.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScaling:
    """The division of positions by a factor (kaiokendev, 2023)."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Scaling:
    """The stretching of long wavelengths; short ones stay, with a ramp (Llama 3.1's code)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnScaling:
    """NTK-by-parts interpolation with a temperature on attention (arXiv:2309.00071).

    attention_factor  multiplies cosines and sines, so attention's logits by its square.
    truncate          round the ramp's ends to whole dimensions, as the paper's code does.
    """

    factor: float
    original_max_positions: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorScaling:
    """The division of each frequency by a factor of its own, from fast to slow, as GGUF has it."""

    factors: tuple[float, ...]


RopeScaling = FactorScaling | LinearScaling | Llama3Scaling | YarnScaling


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The base of the rotary frequencies, and their scaling; None: no scaling."""

    theta: float = 10000.0
    scaling: RopeScaling | None = None


def read_rope(config: ConfigReader, *, max_positions: int, theta: float) -> RopeConfig:
    """Read rotary parameters in both forms: rope_theta + rope_scaling, or rope_parameters.

    Where a config has both, they must say the same: transformers reads rope_scaling alone then, so
    a rope_theta in rope_parameters is lost, and the model writes nonsense.
    """
    outer_theta = config.number("rope_theta", theta, low=1.0)
    config.must_be("partial_rotary_factor", 1.0, 1)
    original = config.optional_integer("original_max_position_embeddings")
    sections = (config.section("rope_scaling"), config.section("rope_parameters"))
    read = [
        _read_section(section, max_positions, outer_theta, original)
        for section in sections
        if section is not None
    ]
    if len(read) == 2 and read[0] != read[1]:
        raise ConfigError(
            "config.json has rope_scaling and rope_parameters, which don't say the same: leave one "
            "of them out, and write all of it, rope_theta too, into the other"
        )
    return read[0] if read else RopeConfig(outer_theta)


def _read_section(
    section: ConfigReader, max_positions: int, theta: float, original: int | None
) -> RopeConfig:
    """Read what rope_scaling or rope_parameters holds, beside what stands outside of it."""
    section.must_be("partial_rotary_factor", 1.0, 1)
    theta = section.number("rope_theta", theta, low=1.0)
    scaling = _read_scaling(section, max_positions, original)
    section.refuse_unread(inert=_INERT_ROPE)
    return RopeConfig(theta, scaling)


def _read_scaling(
    section: ConfigReader, max_positions: int, original: int | None
) -> RopeScaling | None:
    # "dynamic" (NTK) is left out on purpose: its base follows the current length, so the same
    # token would get other values under another schedule.
    kinds = ("default", "linear", "llama3", "yarn", "factors")
    older_name = section.choice("type", kinds, "default")
    kind = section.choice("rope_type", kinds, older_name)
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(factor=section.number("factor", high=_MAX_FACTOR))
    if kind == "factors":  # a GGUF file's: no config.json of Hugging Face's has it
        return FactorScaling(factors=section.numbers("factors", high=_MAX_FACTOR))
    inner_original = section.integer("original_max_position_embeddings", max_positions)
    original = inner_original if original is None else original
    if kind == "llama3":
        return _read_llama3(section, original)
    return _read_yarn(section, max_positions, original)


def _read_llama3(section: ConfigReader, original: int) -> Llama3Scaling:
    low = section.number("low_freq_factor", high=_MAX_FACTOR)
    return Llama3Scaling(
        factor=section.number("factor", high=_MAX_FACTOR),
        low_freq_factor=low,
        high_freq_factor=section.number("high_freq_factor", low=low, high=_MAX_FACTOR),
        original_max_positions=original,
    )


def _read_yarn(section: ConfigReader, max_positions: int, original: int) -> YarnScaling:
    factor = section.number("factor", max_positions / original, high=_MAX_FACTOR)
    mscale = section.number("mscale", 0.0, high=_MAX_FACTOR, may_be_low=True)
    mscale_all = section.number("mscale_all_dim", 0.0, high=_MAX_FACTOR, may_be_low=True)
    default_factor = yarn_temperature(factor)
    if mscale > 0 and mscale_all > 0:
        default_factor = yarn_temperature(factor, mscale) / yarn_temperature(factor, mscale_all)
    return YarnScaling(
        factor=factor,
        original_max_positions=original,
        attention_factor=section.number("attention_factor", default_factor, high=_MAX_FACTOR),
        beta_fast=section.number("beta_fast", 32.0, high=_MAX_FACTOR),
        beta_slow=section.number("beta_slow", 1.0, high=_MAX_FACTOR),
        truncate=section.boolean("truncate", True),
    )


def yarn_temperature(factor: float, mscale: float = 1.0) -> float:
    """Return what multiplies cosines and sines where positions are stretched by a factor."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
