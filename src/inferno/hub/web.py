"""Fetch a model's files from any HTTPS address, where no hub lists files or knows hashes."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from inferno.errors import DownloadError, InvalidRequest
from inferno.gguf.file import split_files
from inferno.hub.client import HubClient, Interrupted, pieces
from inferno.hub.fetch import Plan
from inferno.hub.kinds import refuse_listing
from inferno.hub.names import (
    MAX_FILE_BYTES,
    MAX_SMALL_BYTES,
    READ_FILES,
    SMALL_FILES,
    WEIGHTS,
    Listing,
    RemoteFile,
    is_file_name,
    is_repository,
)
from inferno.hub.reuse import num_missing
from inferno.hub.store import Store
from inferno.hub.stored_file import StoredFile
from inferno.hub.transfer import LENGTH, version_of
from inferno.json_file import INDEX_FILE, MAX_INDEX_BYTES, SINGLE_FILE
from inferno.untrusted_json import Malformed, parse_object, quoted

_logger = logging.getLogger("inferno")
_T = TypeVar("_T")

_MAY_LACK = {*READ_FILES} - {"config.json", "tokenizer.json"}
_PATH = re.compile(r"(?:[\w./~-]|%[0-9A-Fa-f]{2})+", re.ASCII)
_UNUSUAL = re.compile(r"[^\w.-]+", re.ASCII)
_MOST_KEPT = 80  # characters of a name that a hash is added to
_MAX_SHARDS = 1000  # each is asked for its size; the largest published models have 200


@dataclass(frozen=True, slots=True)
class WebAddress:
    """The address of a folder with a model's files, or of one; `name` is the model's name here."""

    name: str
    folder: str
    file: str | None

    @property
    def revision(self) -> str:
        """Return a hash of the address, in place of a commit."""
        return hashlib.sha256(f"{self.folder}/{self.file}".encode()).hexdigest()[:40]


def parse_address(text: str) -> WebAddress:
    """Return the address of a folder, or of one file of its: InvalidRequest for any other.

    Of a .gguf file, only that is meant, or all files of a split one; of another, its folder.
    """
    try:
        url = urlsplit(text)
        host = url.netloc.replace(":", "_")
        path = unquote(url.path, errors="strict").rstrip("/")
    except ValueError:
        raise _no_address(text) from None
    folder, _, last = path.rpartition("/")
    is_plain = _PATH.fullmatch(url.path) and path.isprintable()
    has_odd_parts = "\\" in path or any(part.strip(".") == "" for part in path.split("/")[1:])
    is_file = last.endswith(".gguf")
    if last in READ_FILES:
        path, last = folder, folder.rpartition("/")[2]
    name = f"{host}/{_UNUSUAL.sub('-', last.removesuffix('.gguf') if is_file else last)}"
    is_odd = not is_plain or has_odd_parts or (is_file and not is_file_name(last))
    if url.query or url.fragment or "@" in url.netloc or is_odd or not is_repository(name):
        raise _no_address(text)
    origin = f"{url.scheme}://{url.netloc}"
    if is_file:
        return WebAddress(name, origin + quote(folder), last)
    return WebAddress(name, origin + quote(path), None)


def plan_address(client: HubClient, store: Store, address: WebAddress) -> Plan:
    """Return the plan to fetch from an address: the files that are there, and their sizes.

    Where another address has its name in the store, it gets one of its own.

    The files' hashes aren't known beforehand. The hashes of the first download are kept, and later
    files are compared with them.
    """
    address = _named_apart(store, address)
    known = store.find(address.name, address.revision)
    before = {one.name: one for one in known.files} if known is not None else {}
    files = tuple(_with_hash(file, before.get(file.name)) for file in _files(client, address))
    listing = Listing(address.revision, files)
    refuse_listing(address.name, listing, None)
    partial = store.partial_folder(address.name, address.revision)
    missing = sum(0 if file.has_hash else num_missing(partial, file) for file in files)
    return Plan(address.name, None, listing, True, missing)


def _named_apart(store: Store, address: WebAddress) -> WebAddress:
    """Return an address by the name that it has in the store, or one that no other has there."""
    entries = store.entries()
    owner, _, last = address.name.partition("/")
    for entry in entries:
        if entry.revision == address.revision and entry.name.startswith(f"{owner}/"):
            return replace(address, name=entry.name)
    if all(entry.name != address.name for entry in entries):
        return address
    last = f"{last[:_MOST_KEPT].rstrip('-.')}-{address.revision[:12]}"
    return replace(address, name=f"{owner}/{last}")


def _with_hash(file: RemoteFile, before: StoredFile | None) -> RemoteFile:
    """Return a file with the hash that it had, unless its site tells that it is another now."""
    if before is None or before.size != file.size:
        return file
    is_other = None not in (before.version, file.version) and before.version != file.version
    return file if is_other else replace(file, sha256=before.sha256)


def _files(client: HubClient, address: WebAddress) -> Iterator[RemoteFile]:
    names = [*SMALL_FILES, SINGLE_FILE]
    if address.file is not None:
        names = [path.name for path in split_files(Path(address.file))]
    found = False
    forbidden: list[str] = []
    for name in names:
        file = _file(client, address, name, forbidden)
        if file is not None:
            found = found or file.is_weights
            yield file
        elif address.file is not None:
            raise DownloadError(f"{address.folder} lacks {name}: check the address")
    index = None if found or address.file else _file(client, address, INDEX_FILE, forbidden)
    if index is not None:
        yield index
        for shard in _shards(client, address):
            file = _file(client, address, shard)
            if file is None:
                raise DownloadError(f"{address.folder} lacks {shard}, which its {INDEX_FILE} names")
            yield file
    elif not found and SINGLE_FILE in forbidden:
        _file(client, address, SINGLE_FILE)
    if optional := [name for name in forbidden if name not in (SINGLE_FILE, INDEX_FILE)]:
        _logger.warning(
            "%s forbids %s (status 403), as storage does of files that aren't there: the model is "
            "downloaded without them",
            address.folder,
            ", ".join(optional),
        )


def _file(
    client: HubClient, address: WebAddress, name: str, forbidden: list[str] | None = None
) -> RemoteFile | None:
    """Return a file as its site tells of it; None where there is none.

    forbidden   is given the name where the answer is 403, for a file that need not be there: S3
                answers so of all files that don't exist, to those who may not list a bucket.
    """
    most = MAX_FILE_BYTES if name.endswith(WEIGHTS) else MAX_SMALL_BYTES
    url = client.file_url(address.name, address.revision, name)

    def ask() -> tuple[str, str | None] | None:
        with client.open(url) as answer:
            is_page = answer.headers.get("content-type", "").startswith("text/html")
            if answer.status_code in (404, 410) or (is_page and name in _MAY_LACK):
                return None
            if answer.status_code == 403 and forbidden is not None and name in _MAY_LACK:
                forbidden.append(name)
                return None
            client.check(answer, address.name, None)
            return answer.headers.get("content-length", ""), version_of(answer)

    found = _asked(client, url, ask)
    if found is None:
        return None
    length, version = found
    if not LENGTH.fullmatch(length) or int(length) > most:
        raise DownloadError(f"{url} has a size of {quoted(length, 40)}, not 0 to {most:,} bytes")
    return RemoteFile(name, int(length), version=version)


def _shards(client: HubClient, address: WebAddress) -> list[str]:
    url = client.file_url(address.name, address.revision, INDEX_FILE)

    def ask() -> bytes:
        with client.open(url) as answer:
            client.check(answer, address.name, None)
            return b"".join(pieces(answer, MAX_INDEX_BYTES, client.patience))

    try:
        index = parse_object(_asked(client, url, ask))
    except Malformed as problem:
        raise DownloadError(f"{url} can't be read: {problem}; check the address") from None
    weight_map = index.get("weight_map")
    named = list(weight_map.values()) if isinstance(weight_map, dict) else []
    shards = {one for one in named if is_file_name(one) and one.endswith(WEIGHTS)}
    if not shards or not all(isinstance(one, str) and one in shards for one in named):
        raise DownloadError(f"{url} names files that are no shards; check the address")
    if len(shards) > _MAX_SHARDS:
        raise DownloadError(
            f"{url} names {len(shards):,} shards, and a model may have {_MAX_SHARDS:,}; check the "
            "address"
        )
    return sorted(shards)


def _asked(client: HubClient, url: str, ask: Callable[[], _T]) -> _T:
    try:
        return client.patiently(ask)
    except Interrupted as problem:
        raise DownloadError(f"{url} can't be reached ({problem}); check the address") from None


def _no_address(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{quoted(text, 200)} is no address of a model: expected such as "
        "https://HOST/FOLDER with its config.json in it, or https://HOST/FILE.gguf"
    )
