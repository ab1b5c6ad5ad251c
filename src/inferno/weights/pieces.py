"""Say which tensors of a checkpoint a parameter is made of, and where each lies in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from inferno.quantization import WeightFormat


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the checkpoint that fills a parameter, or a part of it.

    name    stands in the tensor's name where the parameter's has other segments.
    part    the parameter -> the view of it that the tensor fills, its elements in stored order. Of
            a tensor that holds all experts it takes any number of them, which are filled apart.
    joined  two neighbouring axes of that view that are a single one in the checkpoint.
    format  in which the checkpoint holds it packed; None: as floats. Packed rows move as they are,
            so `part` may change the order of rows only, whatever axes follow.
    """

    name: str
    part: Callable[[Tensor], Tensor]
    joined: tuple[int, int] | None = None
    format: WeightFormat | None = None

    def stored_shape(self, parameter: Tensor) -> tuple[int, ...]:
        """Return the tensor's shape in the checkpoint; the parameter is on the meta device."""
        assert parameter.is_meta, "flatten would copy"
        view = self.part(parameter)
        return tuple(view.shape if self.joined is None else view.flatten(*self.joined).shape)


# Segments of a parameter's path, such as "qkv_proj" or "experts.down_proj.weight", and the pieces
# that stand for them in the checkpoint.
FusedSpec = Mapping[str, tuple[Piece, ...]]


def whole(parameter: Tensor) -> Tensor:
    """Return the whole parameter as its part."""
    return parameter


def side_by_side(*names_and_rows: tuple[str, int]) -> tuple[Piece, ...]:
    """Return pieces of so many rows, one below the other: ("q_proj", 2048), ("k_proj", 256)."""
    pieces, first = [], 0
    for name, num_rows in names_and_rows:
        pieces.append(Piece(name, partial(_rows, first=first, num_rows=num_rows)))
        first += num_rows
    return tuple(pieces)


def stacked(count: int, *names_and_rows: tuple[str, int]) -> tuple[Piece, ...]:
    """Return `side_by_side` at each index of the first axis, which is "{}" in the names."""
    pieces = side_by_side(*names_and_rows)
    return tuple(
        Piece(piece.name.format(index), partial(_at, index=index, part=piece.part))
        for index in range(count)
        for piece in pieces
    )


def find_pieces(name: str, fused: FusedSpec) -> tuple[Piece, ...]:
    """Return the pieces of the parameter of that name, under the whole names that they have."""
    for segments, pieces in fused.items():
        before, found, after = f".{name}.".partition(f".{segments}.")
        if found:
            return tuple(
                replace(piece, name=f"{before}.{piece.name}.{after}".strip(".")) for piece in pieces
            )
    return (Piece(name, whole),)


def _rows(parameter: Tensor, first: int, num_rows: int) -> Tensor:
    return parameter.narrow(0, first, num_rows)


def _at(parameter: Tensor, index: int, part: Callable[[Tensor], Tensor]) -> Tensor:
    return part(parameter[index])
