"""Kinds of models that inferno doesn't run, told by their names before weights are fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferno.config.fp8 import READERS
from inferno.config.reader import ConfigReader
from inferno.errors import ConfigError, ModelError
from inferno.hub.names import Listing, asked_end
from inferno.json_file import read_json
from inferno.quantization import FORMATS, PACKED_HERE
from inferno.untrusted_json import quoted

_NAMES = {
    "awq": "AWQ",
    "gptq": "GPTQ",
    "fbgemm_fp8": "FP8",
    "bitsandbytes": "bitsandbytes",
}
_OF_OTHER_SENSES = {"vision_config": "images", "audio_config": "sound"}
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MOST_NAMED = 12


def refuse_listing(name: str, listing: Listing, include: str | None) -> None:
    """Raise ModelError where a repository's list of files shows that it has no model for us."""
    names = {file.name for file in listing.files}
    if "adapter_config.json" in names and "config.json" not in names:
        raise _refusal(name, "an adapter, not a model: merge it into its model with peft")
    if any(file.is_weights for file in listing.files):
        return
    if include is not None:
        end, there = asked_end(include), _some(listing, (".safetensors", ".gguf"))
        if end is None:
            raise ModelError(
                f"{name} has no weights that match --include {quoted(include)}; it has {there}"
            )
        raise ModelError(f"{name} has no GGUF file that ends in {quoted(end)}; it has {there}")
    if any(other.endswith(".gguf") for other in listing.others):
        raise ModelError(
            f"{name} holds GGUF files, of which one is to be chosen: give --include with one of "
            f"{_some(listing, ('.gguf',))}"
        )
    if any(other.endswith(_PICKLES) for other in listing.others):
        raise _refusal(
            name, "pickled weights, which can run any code: look for a copy in safetensors"
        )
    raise ModelError(f"{name} has no weights in safetensors: check that it is a language model")


def refuse_config_in(name: str, folder: Path) -> None:
    """Raise ModelError where the config.json of a folder is of a kind that we don't run."""
    path = folder / "config.json"
    if path.exists():
        refuse_config(name, read_json(path, error=ModelError))


def refuse_config(name: str, config: Mapping[str, Any]) -> None:
    """Raise ModelError where a config.json is of a kind that we don't run."""
    quantization = config.get("quantization_config")
    if isinstance(quantization, Mapping):
        method = quantization.get("quant_method")
        if isinstance(method, str) and method in READERS:
            try:
                READERS[method](ConfigReader(quantization, path="quantization_config."))
            except ConfigError as problem:
                raise _refusal(name, f"a model quantized in a way of its own: {problem}") from None
        elif method not in (*FORMATS, PACKED_HERE):
            raise _refusal(name, f"a model quantized with {_method(method)}: take the original")
    for key, sense in _OF_OTHER_SENSES.items():
        if key in config:
            raise _refusal(name, f"a model of {sense} and text: take one of text alone")


def _method(method: Any) -> str:
    return _NAMES.get(method, quoted(method, 40)) if isinstance(method, str) else "nothing known"


def _refusal(name: str, what: str) -> ModelError:
    return ModelError(f"{name} is not downloaded, as inferno doesn't run it: it is {what}")


def _some(listing: Listing, ends: tuple[str, ...]) -> str:
    names = sorted(
        name
        for name in (*listing.others, *(file.name for file in listing.files))
        if name.endswith(ends)
    )
    shown = ", ".join(quoted(name, 100) for name in names[:_MOST_NAMED]) or "none"
    return shown + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
