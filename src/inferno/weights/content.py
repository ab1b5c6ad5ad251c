"""Name the content of weights by hashes, made while weights are read, without slowing that down.

A publisher must not be able to make a model pass for another one, or its packed weights would be
used for the other. A cryptographic hash would prevent that, and take half as long as packing. So
the bulk of the work is a universal hash under a key of this user's own, which nobody else can know
or aim at: sums of products with random numbers (Carter and Wegman, 1979). SHA-256 then takes the
sums, 16 bytes of each block.

The two sums of a block are made modulo 2^64, of its 64-bit words and of their upper halves. Two
blocks that differ have words that differ in the lower half, and then the first sums agree with a
probability of 2^-33 at most, or upper halves that differ, and then the second ones do.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from inferno.json_file import open_nonblocking
from inferno.weights.checkpoint import Checkpoint
from inferno.whole_file import whole_file

_SECRET_BYTES = 32
_WORD = 8
_BLOCK_BYTES = 128 << 10  # a block, its key and the halves of its words stay in a core's L2 cache
_BLOCK_WORDS = _BLOCK_BYTES // _WORD
_SAMPLE_BYTES, _NUM_SAMPLES = 4 << 10, 32  # of each file


class HashKey:
    """A secret, and the random numbers made of it; name: a public name of the secret.

    One thread at a time makes hashes by it.
    """

    def __init__(self, secret: bytes) -> None:
        numbers = hashlib.shake_256(secret).digest(2 * _BLOCK_BYTES)
        self.words, self.halves = np.frombuffer(numbers, dtype=np.uint64).reshape(2, -1)
        self.scratch = np.empty(_BLOCK_WORDS, dtype=np.uint64)  # of the hash that is being made
        self.name = hashlib.sha256(b"name" + secret).hexdigest()[:16]
        self._secret = secret

    @classmethod
    def of_user(cls, path: Path) -> HashKey:
        """Return the key in a file, which is made if missing; raise OSError where that fails."""
        with contextlib.suppress(FileNotFoundError):
            if len(secret := _read_small(path)) == _SECRET_BYTES:
                return cls(secret)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, prefix=".key-") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
        secret = _read_small(path)  # another process may have made one meanwhile
        if len(secret) != _SECRET_BYTES:
            raise OSError(f"{path} can't be written whole")
        return cls(secret)

    def digest(self) -> hashlib._Hash:
        """Return the SHA-256 of the secret followed by data."""
        return hashlib.sha256(self._secret)


def _read_small(path: Path) -> bytes:
    with open(path, "rb", opener=open_nonblocking) as file:
        return file.read(_SECRET_BYTES + 1)


class BlockHash:
    """A hash of bytes, which may come in any pieces."""

    def __init__(self, key: HashKey) -> None:
        self._key = key
        self._digest = key.digest()
        self._rest = bytearray()
        self.num_bytes = 0

    def update(self, data: memoryview) -> None:
        """Add bytes."""
        self.num_bytes += len(data)
        if self._rest:
            missing = _BLOCK_BYTES - len(self._rest)
            self._rest += data[:missing]
            data = data[missing:]
            if len(self._rest) < _BLOCK_BYTES:
                return
            self._add_block(self._rest)
            self._rest = bytearray()
        whole = len(data) - len(data) % _BLOCK_BYTES
        for start in range(0, whole, _BLOCK_BYTES):
            self._add_block(data[start : start + _BLOCK_BYTES])
        self._rest += data[whole:]

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far; no more may come."""
        if self._rest:
            self._add_block(self._rest + bytes(-len(self._rest) % _WORD))
        self._digest.update(self.num_bytes.to_bytes(8, "little"))
        return self._digest.hexdigest()

    def _add_block(self, block: memoryview | bytearray) -> None:
        words = np.frombuffer(block, dtype=np.uint64)
        count = len(words)
        halves = np.right_shift(words, np.uint64(32), out=self._key.scratch[:count])
        sums = np.dot(words, self._key.words[:count]), np.dot(halves, self._key.halves[:count])
        self._digest.update(np.array(sums, dtype=np.uint64).tobytes())


class ContentHash:
    """The content of an open checkpoint's files, as its tensors are read."""

    def __init__(self, key: HashKey, checkpoint: Checkpoint) -> None:
        self._key = key
        self._checkpoint = checkpoint
        self._tensors: dict[str, BlockHash] = {}  # that are being read: each keeps part of a block
        self._digests: dict[str, str] = {}

    def see(self, name: str, offset: int, data: memoryview) -> None:
        """Hash bytes of a tensor from a position on; a tensor begun anew is read once more."""
        if offset == 0:
            self._digests.pop(name, None)
            self._tensors[name] = BlockHash(self._key)
        known = self._tensors.get(name)
        if known is None or known.num_bytes != offset:  # it is read when all is done
            self._tensors.pop(name, None)
            return
        known.update(data)
        if known.num_bytes == self._size(name):
            self._digests[name] = self._tensors.pop(name).hexdigest()

    def digests(self, beat: Callable[[], None]) -> Mapping[Path, str]:
        """Return each file's hash, of its header and its tensors, also of those not read so far.

        beat    is called between the pieces that are read.
        """
        result = {}
        for path, header in self._checkpoint.headers().items():
            digest = self._key.digest()
            digest.update(hashlib.sha256(header).digest())
            infos = (info for info in self._checkpoint.tensors.values() if info.file == path)
            for info in sorted(infos, key=lambda info: info.start):
                if info.name not in self._digests:
                    self._digests[info.name] = self._read(info.name, beat)
                digest.update(f"{info.name} {self._digests[info.name]} ".encode())
            result[path] = digest.hexdigest()
        return result

    def _size(self, name: str) -> int:
        info = self._checkpoint.tensors[name]
        return info.stop - info.start

    def _read(self, name: str, beat: Callable[[], None]) -> str:
        hash_of = BlockHash(self._key)
        for piece in self._checkpoint.raw_pieces(name):
            hash_of.update(piece)
            beat()
        return hash_of.hexdigest()


def sketch(key: HashKey, checkpoint: Checkpoint) -> str:
    """Return a name of the content by a few pieces of each file, which other content seldom has.

    Equal sketches are worth the time to compare contents.
    """
    digest = key.digest()
    for header in checkpoint.headers().values():
        digest.update(hashlib.sha256(header).digest())
    for piece in checkpoint.samples(_NUM_SAMPLES, _SAMPLE_BYTES):
        digest.update(piece)
    return digest.hexdigest()[:16]
