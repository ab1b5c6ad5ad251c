"""Read a repository's config and the headers of its weights, by requests for ranges alone.

All answers are bounded, and parsed as the files' own readers parse. The listing is one round trip,
config and headers come together in the next, and what is left of long headers in one or two more.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from inferno.errors import CheckpointError, ConfigError, DownloadError, ModelError
from inferno.gguf.config import config_of, most_type
from inferno.gguf.file import GgufModel, is_later_shard, read_gguf, split_files
from inferno.gguf.header import GgufHeader, parse_header
from inferno.hub.client import MOST_AT_ONCE, HubClient, Interrupted, pieces
from inferno.hub.facts import Tensor, tensors_of
from inferno.hub.kinds import refuse_config, refuse_gguf, refuse_listing
from inferno.hub.names import Listing, RemoteFile
from inferno.json_file import INDEX_FILE, MAX_HEADER_BYTES, MAX_JSON_BYTES, SINGLE_FILE
from inferno.untrusted_json import Malformed, parse_object, quoted

# Most headers of shards have less. A GGUF model's begins with its vocabulary: that of 150,000
# tokens, with its merges, takes 6 MB.
_FIRST_BYTES, _FIRST_GGUF_BYTES = 256 << 10, 8 << 20
_MOST_BYTES = 128 << 20  # of all headers together
_MOST_FILES = 512  # the largest published models have 200 shards
_SHARD = re.compile(r"model-[0-9]{5}-of-([0-9]{5})\.safetensors")
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteModel:
    """A model's config and tensors as a hub gives them, not verified."""

    commit: str
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    tokenizer_bytes: int
    is_gguf: bool


def read_remote(
    client: HubClient, name: str, revision: str | None, include: str | None
) -> RemoteModel:
    """Return the config and the tensors that the headers of a repository's files list.

    include  the GGUF file, or a pattern of weights, where there are several.

    Raises ModelError for kinds of models that we don't run, and for missing or damaged files.
    """
    listing = client.listing(name, revision or "main", include)
    refuse_listing(name, listing, include)
    weights = [file for file in listing.files if file.is_weights]
    if len(weights) > _MOST_FILES:
        raise DownloadError(
            f"{name} has {len(weights):,} files of weights, and the headers of {_MOST_FILES} are "
            "read at most: download it, then plan"
        )
    files = _Files(client, name, listing)
    ggufs = [file for file in weights if file.name.endswith(".gguf")]
    if ggufs:
        return _of_gguf(name, files, listing, ggufs)
    config = next((file for file in listing.files if file.name == "config.json"), None)
    if config is None or config.size > MAX_JSON_BYTES:
        raise ConfigError(f"{name} has no config.json, so it is not a Hugging Face model")
    weights = _loaded(files, listing, {file.name: file for file in weights})
    with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        text = threads.submit(files.json, config, ConfigError)
        headers = list(threads.map(files.safetensors, weights))
        values = text.result()
    refuse_config(name, values)
    return RemoteModel(
        commit=listing.commit,
        config=values,
        tensors=tuple(tensor for each in headers for tensor in each),
        tokenizer_bytes=sum(one.size for one in listing.files if one.name == "tokenizer.json"),
        is_gguf=False,
    )


def _loaded(files: _Files, listing: Listing, weights: Mapping[str, RemoteFile]) -> list[RemoteFile]:
    """Return the files that are loaded: one, or the shards of an index.

    The index is read only where names and numbers don't tell.
    """
    if SINGLE_FILE in weights:
        return [weights[SINGLE_FILE]]
    index = next((file for file in listing.files if file.name == INDEX_FILE), None)
    numbers = [_SHARD.fullmatch(name) for name in weights]
    if index is None or all(one and int(one[1]) == len(weights) for one in numbers):
        return list(weights.values())
    shards = files.json(index, CheckpointError).get("weight_map")
    names = shards.values() if isinstance(shards, dict) else ()  # loading refuses all else
    loaded = {name for name in names if isinstance(name, str)}
    if absent := sorted(loaded - {*weights}):
        raise CheckpointError(
            f"{files.name} lacks {quoted(absent[0])}, which its {index.name} names"
        )
    return [file for name, file in weights.items() if name in loaded]


def check_remote_ggufs(
    client: HubClient, name: str, listing: Listing, chosen: Collection[str]
) -> None:
    """Raise ModelError where the headers of chosen GGUF files are of no model for us.

    Only large files are looked at: others are as soon fetched. So are those of sites that send no
    parts of files.
    """
    files = _Files(client, name, listing)
    by_path = {Path(file.name): file for file in listing.files if file.name.endswith(".gguf")}
    for path, file in by_path.items():
        is_large = file.name in chosen and file.size > _FIRST_GGUF_BYTES
        if is_large and not is_later_shard(path):
            with suppress(DownloadError):
                refuse_gguf(name, _read_gguf(name, files, by_path, path))


def _read_gguf(
    name: str, files: _Files, by_path: Mapping[Path, RemoteFile], first: Path
) -> GgufModel:
    with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        headers = {
            path: threads.submit(files.gguf, by_path[path])
            for path in split_files(first)
            if path in by_path
        }

        def read(path: Path) -> GgufHeader:
            if path not in headers:
                raise CheckpointError(f"{name} lacks {path}, a file of its model")
            return headers[path].result()

        try:
            return read_gguf(first, read)
        finally:
            threads.shutdown(cancel_futures=True)


def _of_gguf(name: str, files: _Files, listing: Listing, weights: list[RemoteFile]) -> RemoteModel:
    by_path = {Path(file.name): file for file in weights}
    firsts = [path for path in by_path if not is_later_shard(path)]
    if len(firsts) != 1:
        shown = ", ".join(str(path) for path in sorted(firsts)[:12])
        raise ModelError(f"{name} has several GGUF models: choose one of {shown}, as {name}:FILE")
    model = _read_gguf(name, files, by_path, firsts[0])
    refuse_gguf(name, model)
    config = config_of(
        model.metadata,
        tuple(model.tensors),
        stored=most_type(tensor for _, tensor in model.tensors.values()),
        rope_factors=None,
    )
    tensors = tuple(
        Tensor(tensor.name, tensor.type.name, tensor.shape, path.name)
        for path, tensor in model.tensors.values()
    )
    return RemoteModel(
        commit=listing.commit, config=config, tensors=tensors, tokenizer_bytes=0, is_gguf=True
    )


class _Files:
    """The beginnings of a commit's files; together they may have so many bytes only."""

    def __init__(self, client: HubClient, name: str, listing: Listing) -> None:
        self._client = client
        self.name = name
        self._commit = listing.commit
        self._left = _MOST_BYTES
        self._counting = threading.Lock()
        self._targets: dict[str, str] = {}  # where the hub redirected to, by the files' names

    def read(self, file: RemoteFile, start: int, size: int) -> bytes:
        """Return a range of a file; it may ask several times."""
        with self._counting:
            self._left -= size
            if self._left < 0:
                raise DownloadError(
                    f"the headers of {self.name} have more than the {_MOST_BYTES:,} bytes that "
                    "are read of them: download it, then plan"
                )
        if size == 0:
            return b""
        try:
            return self._client.patiently(lambda: self._ask(file, start, size))
        except Interrupted as reason:
            raise DownloadError(
                f"{file.name} of {self.name} can't be read ({reason}); try again"
            ) from None

    def json(self, file: RemoteFile, error: type[ModelError]) -> dict[str, Any]:
        """Return the JSON object that a file holds, as a folder's is read."""
        try:
            return parse_object(self.read(file, 0, file.size), may_repeat=True)
        except Malformed as problem:
            raise error(f"{file.name} of {self.name} can't be read: {problem}") from None

    def safetensors(self, file: RemoteFile) -> list[Tensor]:
        """Return the tensors that a safetensors file lists."""
        place = f"{file.name} of {self.name}"
        content = self.read(file, 0, min(file.size, _FIRST_BYTES))
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or not 0 < length <= min(MAX_HEADER_BYTES, file.size - 8):
            raise CheckpointError(f"{place}: its header can't be read")
        if len(content) < 8 + length:
            content += self.read(file, len(content), 8 + length - len(content))
        try:
            return list(tensors_of(parse_object(content[8 : 8 + length]), file.name, place))
        except Malformed:
            raise CheckpointError(f"{place}: its header can't be read") from None

    def gguf(self, file: RemoteFile) -> GgufHeader:
        """Return the header of a GGUF file; each request is for thrice what is there."""
        content = bytearray()
        # Later files of a split model have no vocabulary.
        least = _FIRST_BYTES if is_later_shard(Path(file.name)) else _FIRST_GGUF_BYTES

        def read(start: int, size: int) -> bytes:
            if start + size > len(content):
                wanted = max(least, 3 * len(content), start + size - len(content))
                content.extend(self.read(file, len(content), min(wanted, file.size - len(content))))
            return bytes(content[start : start + size])

        try:
            return parse_header(read, file.size)
        except Malformed as problem:
            raise CheckpointError(f"{file.name} of {self.name}: {problem}") from None

    def _ask(self, file: RemoteFile, start: int, size: int) -> bytes:
        # A target is used once: the hub is asked again if that fails.
        target = self._targets.pop(file.name, None)
        url = target or self._client.file_url(self.name, self._commit, file.name)
        whole = start == 0 and size == file.size
        asked = {} if whole else {"Range": f"bytes={start}-{start + size - 1}"}
        with self._client.open(url, asked) as answer:
            if target is not None and answer.status_code != 206:  # such as a signature's end
                raise Interrupted(f"status {answer.status_code}")
            self._client.check(answer, self.name, self._commit)
            if answer.status_code == 206:
                found = _RANGE.fullmatch(answer.headers.get("content-range", ""))
                if found is None or [int(one) for one in found.groups()] != [
                    *(start, start + size - 1, file.size),
                ]:
                    raise Interrupted("the hub sent another part than it was asked for")
                self._targets[file.name] = str(answer.url)
            elif start:
                raise DownloadError(
                    f"{self._client.endpoint} sends no parts of files: download {self.name}, then "
                    "plan"
                )
            return self._first(answer, size, file.size)

    def _first(self, answer: httpx.Response, size: int, most: int) -> bytes:
        """Return the first bytes of a body, however long it is; the rest is never read."""
        content = bytearray()
        for piece in pieces(answer, most, self._client.patience):
            content += piece
            if len(content) >= size:
                return bytes(content[:size])
        raise Interrupted("the connection was closed too early")
