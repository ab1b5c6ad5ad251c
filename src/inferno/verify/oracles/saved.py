"""A saved run in a file: one machine writes it, another compares itself with it.

The file is safetensors with its facts as metadata, so the loader that trusts nothing reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inferno.errors import CheckpointError, InvalidRequest
from inferno.json_file import read_file
from inferno.untrusted_json import Malformed, parse_object
from inferno.verify.options import MOST_TOKENS
from inferno.verify.oracles import Choices
from inferno.verify.runs.taps import Taps, first_positions
from inferno.weights.safetensors import LENGTH_BYTES, parse_header, parse_length

FORMAT = "inferno verify 1"
MAX_FILE_BYTES = 4 * 2**30
_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of a saved run, which its file holds as metadata.

    versions  of inferno and PyTorch; config, weights: SHA-256 of what was loaded.
    quantize  int8, int4 or none.
    prompt    its text, or None where ids were made up; token_ids: prompt and computed new tokens.
    encoded   the ids of the fixed text that tokenizers are compared on.
    """

    versions: str
    device: str
    dtype: str
    quantize: str
    config: str
    weights: str
    prompt: str | None
    num_prompt_tokens: int
    token_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    layers: tuple[int, ...]
    encoded: tuple[int, ...] | None


def check_writable(path: Path) -> None:
    """Raise InvalidRequest where no file can be written, before the work that it would hold."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidRequest(f"--save {path}: must be a file in a folder that exists", param="save")


def save(path: Path, facts: Facts, taps: Taps) -> None:
    """Write facts and tensors; raise InvalidRequest where the file can't be written."""
    contents = {name: tensor.contiguous() for name, tensor in sorted(taps.items())}
    header = json.dumps(_header(facts, contents)).encode()
    header += b" " * (-len(header) % 8)
    try:
        with open(path, "wb") as file:
            file.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
            for tensor in contents.values():
                file.write(tensor.view(-1).view(torch.uint8).numpy().data)
    except OSError as problem:
        raise InvalidRequest(f"--save {path}: can't be written: {problem.strerror}") from None


def _header(facts: Facts, contents: Mapping[str, Tensor]) -> dict[str, Any]:
    known = {name: getattr(facts, name) for name in Facts.__slots__}
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT, "facts": json.dumps(known)}}
    position = 0
    for name, tensor in contents.items():
        end = position + tensor.numel() * tensor.dtype.itemsize
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    return header


def load(path: Path) -> SavedOracle:
    """Load the oracle in a file; raise CheckpointError where it is damaged or no such file."""
    content = read_file(path, error=CheckpointError, max_bytes=MAX_FILE_BYTES)
    try:
        length = parse_length(content[:LENGTH_BYTES], len(content))
        header = content[LENGTH_BYTES : LENGTH_BYTES + length]
        tensors = parse_header(header, path, len(content))
        facts = _read_facts(parse_object(header).get("__metadata__", {}))
    except Malformed as problem:
        raise CheckpointError(f"{path}: {problem}; write it again with --save") from None
    taps = {}
    for name, info in tensors.items():
        if info.dtype not in _NAMES:
            raise CheckpointError(f"{path}: tensor {name!r} is of no type that --save writes")
        if len(info.shape) < (3 if name.endswith("scores") else 1):
            raise CheckpointError(
                f"{path}: tensor {name!r} has the shape {list(info.shape)}, which --save never "
                "writes; write it again with --save"
            )
        raw = bytearray(content[info.start : info.stop])
        flat = torch.frombuffer(raw, dtype=info.dtype) if raw else torch.empty(0, dtype=info.dtype)
        taps[name] = flat.view(info.shape)
    return SavedOracle(path, facts, taps)


def _read_facts(metadata: Mapping[str, str]) -> Facts:
    if metadata.get("format") != FORMAT:
        raise Malformed("it was not written by inferno verify --save")
    values = parse_object(metadata.get("facts", "").encode(errors="replace"))
    if values.keys() != set(Facts.__slots__):
        raise Malformed("its facts are not those that inferno verify writes")
    _check_types(values)
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Facts(**{**values, **lists})


def _check_types(values: Mapping[str, Any]) -> None:
    for name in ("versions", "device", "dtype", "quantize", "config", "weights"):
        if not isinstance(values[name], str):
            raise Malformed(f"its {name} is no text")
    if values["dtype"] not in (str(dtype).removeprefix("torch.") for dtype in _NAMES):
        raise Malformed("its dtype is none that inferno computes with")
    if not isinstance(values["prompt"], str | None):
        raise Malformed("its prompt is no text")
    for name in ("token_ids", "new_ids", "layers", "encoded"):
        is_missing = values[name] is None and name == "encoded"
        if not is_missing and not _is_ids(values[name]):
            raise Malformed(f"its {name} are no list of numbers")
    if type(values["num_prompt_tokens"]) is not int or not (
        1 <= values["num_prompt_tokens"] <= len(values["token_ids"])
    ):
        raise Malformed("its num_prompt_tokens is not within its token_ids")
    if len(values["token_ids"]) > MOST_TOKENS:
        raise Malformed(f"it has more than {MOST_TOKENS} tokens")
    if not values["new_ids"] or not values["layers"]:
        raise Malformed("it holds no new tokens or no layers")


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


class SavedOracle:
    """An oracle that is another machine's run of the same text."""

    def __init__(self, path: Path, facts: Facts, taps: Taps) -> None:
        self.facts = facts
        self._path = path
        weights = "" if facts.quantize == "none" else f" with {facts.quantize} weights"
        self.name = f"{path.name} ({facts.dtype}{weights} on {facts.device}, {facts.versions})"
        self._taps = taps

    def taps(self, token_ids: Sequence[int], layers: Sequence[int], choices: Choices) -> Taps:
        return self._taps

    def check_fits(self, found: Taps, length: int) -> None:
        """Raise CheckpointError where a tensor of the run is missing or has another shape."""
        ours, theirs = first_positions(found, length), first_positions(self._taps, length)
        for name, tensor in ours.items():
            if name not in theirs:
                raise CheckpointError(f"{self._path}: lacks the tensor {name}; save it again")
            if theirs[name].shape != tensor.shape:
                raise CheckpointError(
                    f"{self._path}: {name} has the shape {list(theirs[name].shape)}, here it has "
                    f"{list(tensor.shape)}; save it again from the same model"
                )

    def logits(self, texts: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        raise AssertionError("VerifyOptions refuses --quality with a file")

    def encode(self, text: str) -> list[int] | None:
        return None if self.facts.encoded is None else list(self.facts.encoded)

    def decode(self, token_ids: Sequence[int]) -> str | None:
        return None
