"""The types that a GGUF file's tensors get, by what was asked for: llama.cpp's choices.

No type suits all tensors of a model. Vectors are so small that they stay float32; so do routers,
where a wrong choice of experts costs more than these few bytes. The head, and the values and the
products down of some layers, get a wider type where the others get four bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inferno.errors import InvalidRequest
from inferno.gguf.tensor_types import BY_NAME, TensorType

# Types that take rows of any whole number of 32, in place of those that need one of 256.
_NARROWER_BLOCKS = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
_FOR_ANY_WIDTH = "F16"
_FLOAT_FILE_TYPES = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's place in a model.

    module          what stands in its name between its layer's number and its kind.
    layer           the layer's number, of `num_layers`; -1 outside of them.
    is_head         whether logits are its products.
    has_experts     whether the model is a mixture of experts.
    stays_mxfp4     whether blocks of MXFP4 stay what they are in files of any type.
    """

    module: str
    layer: int
    num_layers: int
    is_head: bool
    has_experts: bool
    stays_mxfp4: bool = False

    @property
    def is_wide(self) -> bool:
        """Return whether Q4_K_M has more bits for the layer: an eighth at each end, and a third."""
        first, last = self.num_layers // 8, 7 * self.num_layers // 8
        return self.layer < first or self.layer >= last or (self.layer - first) % 3 == 2


@dataclass(frozen=True, slots=True)
class FileType:
    """A choice of types for a file.

    number      general.file_type, as llama.cpp counts them.
    choose      the type of a matrix at its place.
    """

    name: str
    number: int
    choose: Callable[[Place], str]


def _throughout(name: str) -> Callable[[Place], str]:
    return lambda place: name


def _q4_0(place: Place) -> str:
    return "Q6_K" if place.is_head else "Q4_0"


def _q4_k(place: Place) -> str:
    is_precious = place.module in ("attn_v", "ffn_down", "ffn_down_exps") and place.is_wide
    return "Q6_K" if place.is_head or is_precious else "Q4_K"


def _mxfp4(place: Place) -> str:
    is_of_experts = place.module.endswith("_exps")
    is_in_layer = place.layer >= 0 and not place.has_experts
    return "MXFP4" if is_of_experts or is_in_layer else "Q8_0"


# The values of --type for GGUF files, by their names.
FILE_TYPES: Mapping[str, FileType] = {
    each.name: each
    for each in (
        FileType("f32", 0, _throughout("F32")),
        FileType("f16", 1, _throughout("F16")),
        FileType("bf16", 32, _throughout("BF16")),
        FileType("q8_0", 7, _throughout("Q8_0")),
        FileType("q4_0", 2, _q4_0),
        FileType("q4_k", 15, _q4_k),
        FileType("mxfp4", 38, _mxfp4),
    )
}


def place_of(
    name: str, *, num_layers: int, is_tied: bool, has_experts: bool, comes_packed: bool = False
) -> Place:
    """Return the place of a tensor by its name in GGUF.

    is_tied         whether the embedding is the head too.
    comes_packed    whether the model's experts are published in MXFP4.
    """
    parts = name.split(".")
    is_in_layer = parts[0] == "blk"
    module = parts[2] if is_in_layer else parts[0]
    return Place(
        module=module,
        layer=int(parts[1]) if is_in_layer else -1,
        num_layers=num_layers,
        is_head=name == ("token_embd.weight" if is_tied else "output.weight"),
        has_experts=has_experts,
        stays_mxfp4=comes_packed and module.endswith("_exps"),
    )


def number_of(type_name: str) -> int | None:
    """Return general.file_type of a file that is mostly of this type; None: nobody counts those."""
    named = {"Q4_K": "q4_k", "MXFP4": "mxfp4"}.get(type_name, type_name.lower())
    return FILE_TYPES[named].number if named in FILE_TYPES else None


def final_type(
    name: str,
    shape: tuple[int, ...],
    stored: str,
    file_type: FileType | None,
    place: Place,
) -> TensorType:
    """Return the type of a tensor of this name in GGUF, shape and stored type.

    file_type   None: it stays what it is, but for vectors, which become float32.

    Raises InvalidRequest where blocks would have to become others.
    """
    is_vector = len(shape) < 2 or name.endswith(".bias")
    if file_type is None:
        return BY_NAME["F32" if is_vector else stored]
    type = choose_type(file_type, name, shape, place)
    if BY_NAME[stored].block_values == 1 or type.name == stored:
        return type
    if stored == "MXFP4" and place.stays_mxfp4:
        return BY_NAME[stored]
    if type.name == "F32" or file_type.name in _FLOAT_FILE_TYPES:
        return type
    raise InvalidRequest(
        f"type must be one that leaves {name} what it is, {stored}, or one of floats "
        f"({', '.join(_FLOAT_FILE_TYPES)}): to quantize it once more, as {type.name}, would lose "
        "more; leave the type out, or give the model's original",
        param="type",
    )


def choose_type(file_type: FileType, name: str, shape: tuple[int, ...], place: Place) -> TensorType:
    """Return the type of a tensor of this name in GGUF and this shape."""
    is_vector = name.endswith(".bias") or len(shape) < 2
    if is_vector or place.module == "ffn_gate_inp":
        return BY_NAME["F32"]
    chosen = file_type.choose(place)
    if shape[-1] % BY_NAME[chosen].block_values:
        chosen = _NARROWER_BLOCKS.get(chosen, _FOR_ANY_WIDTH)
    if shape[-1] % BY_NAME[chosen].block_values:
        chosen = _FOR_ANY_WIDTH
    return BY_NAME[chosen]
