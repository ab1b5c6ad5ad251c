"""Parse model.safetensors.index.json, which says in which shard each tensor lies."""

from __future__ import annotations

import re

from inferno.untrusted_json import Malformed, parse_object, quoted

# The largest published models list 140,000 tensors in about 14 MB.
MAX_INDEX_BYTES = 16 << 20

# A shard is a plain file beside the index. These characters are all that real ones use, and with
# them no path, drive, device or hidden file can be spelled.
_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,239}\.safetensors")


def parse_index(raw: bytes) -> dict[str, str]:
    """Return the weight map: tensor name to shard name. Other keys (sizes, metadata) aren't read.

    Raises Malformed.
    """
    weight_map = parse_object(raw).get("weight_map")
    if not isinstance(weight_map, dict):
        raise Malformed("it has no object `weight_map`")
    return {name: _shard(name, shard) for name, shard in weight_map.items()}


def _shard(name: str, shard: object) -> str:
    if not isinstance(shard, str):
        raise Malformed(f"the shard of tensor {quoted(name)} is not a string")
    if not _SHARD_NAME.fullmatch(shard):
        raise Malformed(
            f"the shard {quoted(shard)} of tensor {quoted(name)} is refused: a shard is a plain "
            "file name of letters, digits, `.`, `_`, `-` that ends with .safetensors"
        )
    return shard
