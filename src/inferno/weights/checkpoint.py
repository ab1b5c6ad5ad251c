"""Keep a checkpoint's files open, and read tensors from them.

Files are read, not mapped: a mapped file that someone truncates kills the process, a read one
gives a short count. Tensors are read straight into the memory they'll be computed with.
"""

from __future__ import annotations

import math
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Self

import torch
from torch import Tensor

from inferno.errors import CheckpointError
from inferno.file_identity import FileIdentity
from inferno.gguf.file import OTHER_FILE
from inferno.json_file import missing_file, open_nonblocking
from inferno.ops import StoredRows
from inferno.ops.gguf_blocks import decode
from inferno.ops.gguf_repacking import repack
from inferno.quantization import FORMATS, FP8, KEPT_BLOCKS, WeightFormat
from inferno.untrusted_json import quoted
from inferno.weights.fp8 import scales_of_groups
from inferno.weights.staging import CHUNK_BYTES, Staging
from inferno.weights.tensor_info import RowCoding, TensorInfo

# Blocks are decoded so many values at a time, so that what comes of each step stays in the caches.
DECODED_VALUES = 1 << 19

FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}  # converted to each other

# The types of values that GGUF and we have in common, by GGUF's names.
PLAIN_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
}

# Hears a tensor's name, where in it some bytes begin, and the bytes.
Listener = Callable[[str, int, memoryview], None]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight in files: the shape of its values, and the format in which it can be kept.

    format  the format of the files or, for blocks that no kernel reads, the format that replaces
            it.
    parts   the tensors that hold the weight, with a row in each for one of its rows: several if
            packed.
    """

    format: WeightFormat
    shape: tuple[int, ...]
    parts: tuple[TensorInfo, ...]


class Checkpoint:
    """The tensors of an open checkpoint; its files stay open until it's closed.

    tensors  the tensors that the files list; stored the weights in them, packed ones as one each.
    scales   names of tensors that only have the scales of other tensors' values.

    Replacing or deleting an open file does no harm; changing it in place is noticed.
    """

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, TensorInfo],
        files: Iterable[WeightsFile],
        stack: ExitStack,
    ) -> None:
        self.path = path
        self.tensors = MappingProxyType(tensors)
        self.stored = MappingProxyType(_stored(tensors))
        self.scales = frozenset(
            info.scales.info.name for info in tensors.values() if info.scales is not None
        )
        self._files = {file.path: file for file in files}
        self._stack = stack
        self._staging = Staging()
        self._listener: Listener | None = None

    def tell(self, listener: Listener | None) -> None:
        """Tell a listener of all bytes that `read_into` and `read_rows_into` read from now on."""
        self._listener = listener

    def read_into(self, name: str, out: Tensor) -> None:
        """Fill `out`, a contiguous CPU tensor of the stored shape, converting between floats.

        Raises CheckpointError where the file has changed, or the type can't be converted.
        """
        info = self.tensors[name]
        assert tuple(out.shape) == info.shape
        self._read(info, out, first=0)

    def read_rows_into(self, name: str, first: int, out: Tensor) -> None:
        """Fill `out` as `read_into` does, with as many stored rows as it has, from `first` on."""
        info = self.tensors[name]
        assert tuple(out.shape[1:]) == info.shape[1:]
        assert first + out.shape[0] <= info.shape[0]
        self._read(info, out, first)

    def read_packed_into(self, name: str, first: int, out: StoredRows) -> None:
        """Fill rows packed in the format in which a weight can be kept, from its row `first` on.

        name  of the weight in `stored`. Raises CheckpointError where the file has changed.
        """
        stored = self.stored[name]
        assert stored.format == out.format
        [info, *_] = stored.parts
        if info.scales is not None:
            elements_NI, scale_bytes_NG4 = out.parts
            scales_NG = self._scales(info, first, len(elements_NI))
            scale_bytes_NG4.copy_(scales_NG.unsqueeze(-1).view(torch.uint8))
            self._read_elements(info, elements_NI, first)
            return
        if info.coding is None:
            for one, part in zip(stored.parts, out.parts, strict=True):
                self._read(one, part, first)
            return
        file = self._files[info.file]
        _read_blocks(file, info, info.coding, first, out, self._staging, self._listener)
        file.check_unchanged()

    def read_blocks(self, name: str, first: int, count: int) -> Tensor:
        """Return rows of GGUF's blocks as files hold them, uint8 [N, bytes of a row]."""
        info = self.tensors[name]
        assert info.coding is not None
        file = self._files[info.file]
        out = torch.empty((count, info.coding.type.num_bytes(info.shape[1])), dtype=torch.uint8)
        for rows, raw in _coded_rows(
            file, info, info.coding, first, count, self._staging, self._listener
        ):
            out[rows] = raw
        file.check_unchanged()
        return out

    def _read(self, info: TensorInfo, out: Tensor, first: int) -> None:
        """Fill `out` with the stored rows from `first` on."""
        assert out.is_cpu
        assert out.is_contiguous()
        file = self._files[info.file]
        skipped = first * math.prod(info.shape[1:])
        if info.scales is not None and out.dtype in FLOATS:
            self._read_scaled(info, out, first)
        elif info.coding is not None and out.dtype in FLOATS:
            _read_coded(file, info, info.coding, first, out, self._staging, self._listener)
        elif out.dtype == info.dtype:
            start = skipped * out.dtype.itemsize
            file.read_into(_bytes_of(out), info.start + start)
            if self._listener is not None:
                self._listener(info.name, start, _bytes_of(out))
        elif info.dtype in FLOATS and out.dtype in FLOATS:
            _read_converted(file, info, out, skipped, self._staging, self._listener)
        else:
            raise CheckpointError(
                f"{info.file}: tensor {quoted(info.name)} is {info.dtype}, which can't be read as "
                f"{out.dtype}; float32, float16 and bfloat16 weights can"
            )
        file.check_unchanged()

    def _read_scaled(self, info: TensorInfo, out: Tensor, first: int) -> None:
        """Fill `out` with the values of rows in FP8, some at a time."""
        num_rows, width = out.shape
        step = max(1, DECODED_VALUES // max(1, width))
        for start in range(0, num_rows, step):
            rows = out[start : start + step]
            part = StoredRows.empty(FP8, rows.shape)
            self._read_elements(info, part.parts[0], first + start)
            scales_NG = self._scales(info, first + start, len(rows))
            part.parts[1].copy_(scales_NG.unsqueeze(-1).view(torch.uint8))
            rows.copy_(part.unpack(torch.float32))

    def _read_elements(self, info: TensorInfo, out: Tensor, first: int) -> None:
        """Fill `out`, uint8 [N, I], with the elements of rows from `first` on, as they lie."""
        file, start = self._files[info.file], first * out.shape[1]
        file.read_into(_bytes_of(out), info.start + start)
        if self._listener is not None:
            self._listener(info.name, start, _bytes_of(out))
        file.check_unchanged()

    def _scales(self, info: TensorInfo, first: int, num_rows: int) -> Tensor:
        """Return the scale of each group of rows in FP8: [N, G] float32."""
        assert info.scales is not None
        values = torch.empty(info.scales.info.shape)
        self._read(info.scales.info, values, first=0)
        return scales_of_groups(values, info.scales, first, num_rows, info.shape[1])

    def signatures(self) -> dict[Path, tuple[int, int]]:
        """Return each file's size, and when it was last changed, in nanoseconds."""
        return {path: (file.size, file.mtime_ns) for path, file in self._files.items()}

    def identities(self) -> dict[Path, FileIdentity]:
        """Return the identity that each file had when it was opened."""
        return {path: file.identity for path, file in self._files.items()}

    def is_as_opened(self) -> bool:
        """Return whether no file has changed since it was opened, even with its time set back."""
        return all(file.is_as_opened() for file in self._files.values())

    def headers(self) -> dict[Path, bytes]:
        """Return the bytes of each file before its tensors."""
        starts = {info.file: info.start for info in reversed(self._by_place())}
        return {
            path: file.read(0, starts.get(path, file.size)) for path, file in self._files.items()
        }

    def raw_pieces(self, name: str) -> Iterator[memoryview]:
        """Yield a tensor's bytes as they are stored, some at a time, each valid until the next."""
        info = self.tensors[name]
        for start in range(info.start, info.stop, CHUNK_BYTES):
            size = min(CHUNK_BYTES, info.stop - start)
            piece = _bytes_of(self._staging.take((size,), torch.uint8))
            self._files[info.file].read_into(piece, start)
            yield piece

    def samples(self, count: int, size: int) -> Iterator[bytes]:
        """Yield a few evenly spread pieces of each file."""
        for file in self._files.values():
            for index in range(count):
                start = index * file.size // count
                yield file.read(start, min(size, file.size - start))

    def coded_bytes(self, names: Iterable[str] | None = None) -> dict[str, int]:
        """Return the bytes of tensors in GGUF's blocks, and in FP8, by the name of their type.

        names   the tensors that are looked at; None: all.
        """
        sizes: Counter[str] = Counter()
        for info in map(self.tensors.__getitem__, self.tensors if names is None else names):
            if info.coding is not None and info.coding.type.block_values > 1:
                sizes[info.coding.type.name] += info.stop - info.start
            elif info.scales is not None:
                sizes[FP8.name] += info.stop - info.start
        return dict(sizes.most_common())

    def blocks(self) -> dict[str, WeightFormat]:
        """Return the formats in which kernels read GGUF's blocks and FP8, by name."""
        return {
            name: one.format
            for name, one in self.stored.items()
            if one.parts[0].is_coded and not one.format.is_float
        }

    def read_as_kept(self, name: str, format: WeightFormat) -> Tensor:
        """Return the values, in float32, that a weight has once its blocks are kept in a format."""
        rows = StoredRows.empty(format, self.stored[name].shape)
        self.read_packed_into(name, 0, rows)
        return rows.unpack(torch.float32)

    def is_taken_exactly(self, name: str, kind: str) -> bool:
        """Return whether a weight keeps all of its values in a format of that name."""
        stored = self.stored.get(name)
        return stored is not None and FORMATS[kind].takes_exactly(stored.format)

    def rounded_blocks(self) -> dict[str, WeightFormat]:
        """Return the formats of `blocks` that don't hold all of their values exactly."""
        return {
            name: format
            for name, format in self.blocks().items()
            if (coding := self.tensors[name].coding) and KEPT_BLOCKS[coding.type.name].error
        }

    def _by_place(self) -> list[TensorInfo]:
        return sorted(self.tensors.values(), key=lambda info: (str(info.file), info.start))

    def holds_twice(self, name: str, other: str) -> bool:
        """Return whether two tensors are stored as the same bytes of the same type."""
        first, second = self.tensors[name], self.tensors[other]
        if (first.dtype, first.shape, first.coding) != (second.dtype, second.shape, second.coding):
            return False
        if first.scales is not None or second.scales is not None:
            if first.scales is None or second.scales is None:
                return False
            if not self.holds_twice(first.scales.info.name, second.scales.info.name):
                return False
        size = first.stop - first.start
        pieces = (
            (position, min(CHUNK_BYTES, size - position))
            for position in range(0, size, CHUNK_BYTES)
        )
        return all(
            self._files[first.file].read(first.start + position, length)
            == self._files[second.file].read(second.start + position, length)
            for position, length in pieces
        )

    def close(self) -> None:
        """Close the files; no tensor can be read any more."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _stored(tensors: Mapping[str, TensorInfo]) -> dict[str, StoredTensor]:
    """Return the weights that can be read, by name."""
    floats = {
        info.name: StoredTensor(format, info.shape, (info,))
        for info in tensors.values()
        if info.dtype in FLOATS and (format := _format_of(info))
    }
    packed = [format for format in FORMATS.values() if format.parts]
    return floats | {name: one for format in packed for name, one in _packed(tensors, format)}


def _format_of(info: TensorInfo) -> WeightFormat | None:
    if info.scales is not None:
        return FP8
    if info.coding is not None and info.coding.type.name in KEPT_BLOCKS:
        return KEPT_BLOCKS[info.coding.type.name].format
    return FORMATS.get(str(info.dtype).removeprefix("torch."))


def _packed(
    tensors: Mapping[str, TensorInfo], format: WeightFormat
) -> Iterator[tuple[str, StoredTensor]]:
    """Yield weights of a packed format: those of which all tensors are there, and fit together."""
    suffixes = [part.suffix for part in format.parts]
    for first in tensors:
        name = first.removesuffix(suffixes[0])
        infos = [tensors[one] for suffix in suffixes if (one := f"{name}{suffix}") in tensors]
        if name == first or len(infos) < len(suffixes):
            continue
        *leading, num_groups = infos[-1].shape or (0,)
        shape = (*leading, num_groups * format.group)
        due = format.stored_shapes(shape)
        if all(one.dtype is torch.uint8 for one in infos) and [one.shape for one in infos] == due:
            yield name, StoredTensor(format, shape, tuple(infos))


class WeightsFile:
    """One open regular file, its size, and the means to notice that it changes."""

    def __init__(self, path: Path, file: FileIO) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path}: is not a regular file; weights are read from files")
        self.path = path
        self.identity = FileIdentity.of(status)
        self.size = status.st_size
        self._file = file
        self.mtime_ns = status.st_mtime_ns

    def read_all(self, limit: int) -> bytes:
        if self.size > limit:
            raise CheckpointError(f"{self.path}: has {self.size} bytes, at most {limit} are read")
        return self.read(0, self.size)

    def read_into(self, buffer: memoryview, start: int) -> None:
        while buffer:
            try:
                count = os.preadv(self._file.fileno(), [buffer[:CHUNK_BYTES]], start)
            except OSError as error:
                raise CheckpointError(f"{self.path}: can't be read: {error.strerror}") from None
            if count == 0:
                raise self._changed()
            buffer = buffer[count:]
            start += count

    def check_unchanged(self) -> None:
        status = os.fstat(self._file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self.size, self.mtime_ns):
            raise self._changed()

    def is_as_opened(self) -> bool:
        return FileIdentity.of(os.fstat(self._file.fileno())) == self.identity

    def read(self, start: int, length: int) -> bytes:
        content = bytearray(length)
        self.read_into(memoryview(content), start)
        return bytes(content)

    def _changed(self) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: changed while it was being read; wait for the download to finish, "
            "then load again"
        )


def open_file(path: Path, stack: ExitStack) -> WeightsFile:
    try:
        file = stack.enter_context(FileIO(path, "rb", opener=open_nonblocking))
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise CheckpointError(f"{path}: can't be opened: {error.strerror}") from None
    return WeightsFile(path, file)


def _read_converted(
    file: WeightsFile,
    info: TensorInfo,
    out: Tensor,
    skipped: int,
    staging: Staging,
    listener: Listener | None,
) -> None:
    """Read through a buffer of at most CHUNK_BYTES."""
    assert isinstance(info.dtype, torch.dtype)
    itemsize = info.dtype.itemsize
    length = CHUNK_BYTES // itemsize
    flat = out.detach().view(-1)
    chunk = staging.take((min(length, flat.numel()),), info.dtype)
    for first in range(0, flat.numel(), length):
        piece = flat[first : first + length]
        raw = chunk[: piece.numel()]
        offset = (skipped + first) * itemsize
        file.read_into(_bytes_of(raw), info.start + offset)
        if listener is not None:
            listener(info.name, offset, _bytes_of(raw))
        piece.copy_(raw)


def _read_coded(
    file: WeightsFile,
    info: TensorInfo,
    coding: RowCoding,
    first: int,
    out: Tensor,
    staging: Staging,
    listener: Listener | None,
) -> None:
    """Read rows from `first` on, and decode them."""
    row_values = math.prod(info.shape[1:])
    values = out.detach().view(-1, row_values)
    for rows, raw in _coded_rows(file, info, coding, first, len(values), staging, listener):
        if coding.type.name in PLAIN_TYPES:
            values[rows] = raw.view(PLAIN_TYPES[coding.type.name])
        else:
            blocks_NB = raw.view(-1, coding.type.block_bytes)
            values[rows] = decode(coding.type.name, blocks_NB).view(-1, row_values)


def _read_blocks(
    file: WeightsFile,
    info: TensorInfo,
    coding: RowCoding,
    first: int,
    out: StoredRows,
    staging: Staging,
    listener: Listener | None,
) -> None:
    """Read the blocks of rows from `first` on, and make them those of the format that is kept."""
    num_rows = out.shape[0]
    for rows, raw in _coded_rows(file, info, coding, first, num_rows, staging, listener):
        try:
            kept = repack(coding.type.name, raw.view(-1, coding.type.block_bytes))
        except OverflowError:
            raise CheckpointError(
                f"{info.file}: {quoted(info.name)} has blocks of {coding.type.name} whose scales "
                f"are beyond 65504, as in no model; {OTHER_FILE}"
            ) from None
        for part, found in zip(out.parts, kept, strict=True):
            part[rows] = found.view(part[rows].shape)


def _coded_rows(
    file: WeightsFile,
    info: TensorInfo,
    coding: RowCoding,
    first: int,
    num_rows: int,
    staging: Staging,
    listener: Listener | None,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield some rows at a time as stored, uint8 [N, row_bytes], and where they belong.

    They are in the order in which models compute with them: heads whose rows lie as rotary pairs
    are read whole. Each piece is valid until the next.
    """
    row_values = math.prod(info.shape[1:])
    row_bytes, head_rows = coding.type.num_bytes(row_values), coding.head_rows
    last = first + num_rows
    step = max(1, DECODED_VALUES // max(1, row_values * head_rows)) * head_rows
    for start in range(first - first % head_rows, last, step):
        stop = min(start + step, last + -last % head_rows)
        raw = staging.take((stop - start, row_bytes), torch.uint8)
        file.read_into(_bytes_of(raw), info.start + start * row_bytes)
        if listener is not None:
            listener(info.name, start * row_bytes, _bytes_of(raw))
        before, after = max(start, first), min(stop, last)
        rows = _reordered(coding, raw)[before - start : after - start]
        yield slice(before - first, after - first), rows


def _reordered(coding: RowCoding, rows: Tensor) -> Tensor:
    """Return whole heads of rows in the order in which models compute with them."""
    if coding.head_rows == 1:
        return rows
    pairs = rows.view(-1, coding.head_rows // 2, 2, rows.shape[1])
    return pairs.transpose(1, 2).reshape(-1, rows.shape[1])


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.detach().view(-1).view(torch.uint8).numpy().data
