"""Kinds of models that inferno doesn't run, told by their names before weights are fetched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from inferno.config.fp8 import READERS
from inferno.config.reader import ConfigReader
from inferno.errors import ConfigError, ModelError
from inferno.gguf.config import kind_of
from inferno.gguf.file import GgufModel, is_gguf_name, split_files
from inferno.hub.names import Listing, asked_end, is_file_name, is_projector
from inferno.json_file import INDEX_FILE, SINGLE_FILE, read_json
from inferno.quantization import FORMATS, KEPT_BLOCKS, PACKED_HERE
from inferno.untrusted_json import quoted

_NAMES = {
    "awq": "AWQ",
    "gptq": "GPTQ",
    "fbgemm_fp8": "FP8",
    "bitsandbytes": "bitsandbytes",
}
# Files that older tools write beside weights of which config.json says nothing.
_OF_TOOLS = {
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
    "hf_quant_config.json": "ModelOpt",
}
_OF_OTHER_SENSES = {"vision_config": "images", "audio_config": "sound"}
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MOST_NAMED = 12


def refuse_listing(name: str, listing: Listing, include: str | None) -> None:
    """Raise ModelError where a repository's list of files shows that it has no model for us."""
    names = {file.name for file in listing.files}
    refuse_names(name, names)
    if any(file.is_weights for file in listing.files):
        _refuse_incomplete(name, names, is_whole=include is None)
        return
    if include is not None:
        raise _no_match(name, listing, include)
    if any(other.endswith(".gguf") for other in listing.others):
        raise ModelError(
            f"{name} holds GGUF files, of which one is to be chosen: give {name}:FILE, FILE being "
            f"one of {_some(listing, ('.gguf',))}"
        )
    if any(other.endswith(_PICKLES) for other in listing.others):
        raise _refusal(
            name, "pickled weights, which can run any code: look for a copy in safetensors"
        )
    raise ModelError(f"{name} has no weights in safetensors: check that it is a language model")


def refuse_names(name: str, names: Collection[str]) -> None:
    """Raise ModelError where the names of a model's files show that it is of no kind for us."""
    if "adapter_config.json" in names and not {SINGLE_FILE, INDEX_FILE} & {*names}:
        raise _refusal(name, "an adapter, not a model: merge it into its model with peft")
    for file, tool in _OF_TOOLS.items():
        if file in names:
            raise _refusal(name, f"a model quantized with {tool}: take the original")


def lacked_shard(names: Collection[str]) -> str | None:
    """Return the name of a file that a split GGUF model lacks; None where all are there."""
    shards = (one for name in names if is_gguf_name(Path(name)) for one in split_files(Path(name)))
    return next((one.as_posix() for one in shards if one.as_posix() not in names), None)


def _refuse_incomplete(name: str, names: Collection[str], *, is_whole: bool) -> None:
    """Refuse weights without what else is read of a model, or some files of a split one."""
    shard = lacked_shard(names)
    lacks = [shard] if shard is not None else []
    if is_whole and any(one.endswith(".safetensors") for one in names):
        lacks += [one for one in ("config.json", "tokenizer.json") if one not in names]
        if not {SINGLE_FILE, INDEX_FILE} & {*names}:
            lacks.append(f"{SINGLE_FILE} and {INDEX_FILE}")
    if lacks:
        raise ModelError(
            f"{name} is not downloaded, as it lacks {lacks[0]}, without which no model runs: look "
            "for a complete copy"
        )


def _no_match(name: str, listing: Listing, include: str) -> ModelError:
    """Return the error of a choice of weights that none can meet."""
    chosen = [other for other in listing.others if fnmatchcase(other, include)]
    if any(is_projector(other) for other in chosen):
        return _refusal(name, "a projector of images or sound, which no text comes from")
    if odd := next((other for other in chosen if not is_file_name(other)), None):
        return ModelError(
            f"{quoted(odd)} of {name} is not downloaded, as names of files have letters, digits, "
            "'.', '_', '+' and '-' only: download it by hand, and give its path"
        )
    end, there = asked_end(include), _some(listing, (".safetensors", ".gguf"))
    if end is None:
        return ModelError(
            f"{name} has no weights that match --include {quoted(include)}; it has {there}"
        )
    return ModelError(f"{name} has no GGUF file that ends in {quoted(end)}; it has {there}")


def refuse_gguf(name: str, model: GgufModel) -> None:
    """Raise ModelError where the headers of a GGUF model are of a kind that we don't run."""
    try:
        kind_of(model.metadata)
    except ModelError as problem:
        raise _refusal(name, f"a GGUF file of another kind: {problem}") from None
    for path, tensor in model.tensors.values():
        if tensor.type.block_values > 1 and tensor.type.name not in KEPT_BLOCKS:
            raise _refusal(name, f"a model in {tensor.type.name} ({path.name}): take another file")


def refuse_config_in(name: str, folder: Path) -> None:
    """Raise ModelError where the config.json of a folder is of a kind that we don't run."""
    path = folder / "config.json"
    if path.exists():
        refuse_config(name, read_json(path, error=ModelError))


def refuse_config(name: str, config: Mapping[str, Any]) -> None:
    """Raise ModelError where a config.json is of a kind that we don't run."""
    quantization = config.get("quantization_config")
    if quantization is not None and not isinstance(quantization, Mapping):
        raise _refusal(name, "a model whose quantization_config is no object: take the original")
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
    return ModelError(f"{name} is refused, as inferno doesn't run it: it is {what}")


def _some(listing: Listing, ends: tuple[str, ...]) -> str:
    names = sorted(
        name
        for name in (*listing.others, *(file.name for file in listing.files))
        if name.endswith(ends) and not is_projector(name)
    )
    shown = ", ".join(quoted(name, 100) for name in names[:_MOST_NAMED]) or "none"
    return shown + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
