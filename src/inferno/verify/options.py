"""The options of verification: model, oracle and tolerances, as frozen data, checked when built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferno.errors import InvalidRequest
from inferno.options import EngineOptions

ORACLES = ("reference", "transformers", "llama.cpp", "cpu")
MOST_SCHEDULES = 1000
# The longest prompt: scores of a layer take heads * tokens² numbers, logits tokens * vocabulary.
MOST_TOKENS = 1024

Tell = Callable[[str], None]  # says what is being done, for those who wait


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of `inferno verify`; bad values raise InvalidRequest.

    model       the checkpoint's folder; name: what the user calls it.
    against     one of ORACLES, or the path of a file that `save` wrote.
    layers      whose insides are compared; negative ones count from the last. None: the first two
                and the last.
    tolerance   the largest error allowed, as a share of a tensor's largest value; None: by dtype.
    save        where to write what was observed.
    quantize    the format in which the engine packs its weights; none: they stay what they are.
    quality     a text file on which perplexity is compared; threshold: the KL divergence allowed.
    invariance  how many random schedules to try.
    speculative     how many random schedules to try with proposals and without; the three after it
                are EngineOptions' and say who proposes, and how many tokens.
    limits      other options of EngineOptions, by name: how much memory the engine may take.
    """

    model: Path
    name: str = ""
    against: str = "reference"
    device: str = "cpu"
    dtype: str = "auto"
    quantize: str = "none"
    threads: int | None = None
    prompt: str | None = None
    layers: tuple[int, ...] | None = None
    tolerance: float | None = None
    save: Path | None = None
    quality: Path | None = None
    threshold: float | None = None
    invariance: int = 0
    speculative: int = 0
    num_speculative_tokens: int | str = "auto"
    speculative_model: Path | None = None
    speculative_early_layers: int | None = None
    allow_unknown_config: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("tolerance", self.tolerance), ("threshold", self.threshold)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise _refuse(name, value, "a finite number from 0 up")
        if self.threshold is not None and self.quality is None:
            raise InvalidRequest("--threshold goes with --quality", param="threshold")
        if self.quality is not None and self.saved_oracle is not None:
            raise InvalidRequest(
                "--quality needs an oracle that can run another text; a saved file can't",
                param="quality",
            )
        for name in ("invariance", "speculative"):
            if not 0 <= getattr(self, name) <= MOST_SCHEDULES:
                raise _refuse(name, getattr(self, name), f"an integer from 0 to {MOST_SCHEDULES}")
        for name, default in (
            ("num_speculative_tokens", "auto"),
            ("speculative_model", None),
            ("speculative_early_layers", None),
        ):
            if getattr(self, name) != default and not self.speculative:
                flag = "--" + name.replace("_", "-")
                raise InvalidRequest(f"{flag} goes with --speculative", param=name)
        EngineOptions(  # refuses what is out of range, before anything is run
            model=self.model,
            num_speculative_tokens=self.num_speculative_tokens,
            speculative_model=self.speculative_model,
            speculative_early_layers=self.speculative_early_layers,
            device=self.device,
            **self.limits,
        )

    @property
    def saved_oracle(self) -> Path | None:
        """Return the path of the saved run to compare with, or None."""
        return None if self.against in ORACLES else Path(self.against)


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {expected}, not {value!r}", param=name)
