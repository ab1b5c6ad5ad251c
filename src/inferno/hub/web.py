"""Fetch a model's files from any HTTPS address, where no hub lists files or knows hashes."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from inferno.errors import DownloadError, InvalidRequest
from inferno.hub.client import HubClient, Interrupted, pieces
from inferno.hub.fetch import Plan
from inferno.hub.kinds import refuse_listing
from inferno.hub.names import (
    MAX_FILE_BYTES,
    MAX_SMALL_BYTES,
    WEIGHTS,
    Listing,
    RemoteFile,
    is_file_name,
    is_repository,
)
from inferno.hub.store import Store
from inferno.json_file import INDEX_FILE, MAX_INDEX_BYTES, SINGLE_FILE, TEMPLATE_FILES
from inferno.untrusted_json import Malformed, parse_object, quoted

_logger = logging.getLogger("inferno")

_SMALL = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", *TEMPLATE_FILES.values()),
)
_MAY_LACK = {*_SMALL, SINGLE_FILE, INDEX_FILE} - {"config.json", "tokenizer.json"}
_LENGTH = re.compile(r"[0-9]{1,15}")


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
    """Return the address of a folder or a .gguf file; raise InvalidRequest for any other."""
    try:
        url = urlsplit(text)
        host = url.netloc.replace(":", "_")
    except ValueError:
        raise _no_address(text) from None
    path, _, last = url.path.rstrip("/").rpartition("/")
    is_file = last.endswith(".gguf")
    name = f"{host}/{last.removesuffix('.gguf') if is_file else last}"
    is_plain = re.fullmatch(r"[\w./~-]+", url.path, re.ASCII) and "//" not in url.path
    if url.query or url.fragment or "@" in url.netloc or not is_plain or not is_repository(name):
        raise _no_address(text)
    origin = f"{url.scheme}://{url.netloc}"
    if is_file and is_file_name(last):
        return WebAddress(name, origin + path, last)
    return WebAddress(name, f"{origin}{path}/{last}", None)


def plan_address(client: HubClient, store: Store, address: WebAddress) -> Plan:
    """Return the plan to fetch from an address: the files that are there, and their sizes.

    The files' hashes aren't known beforehand. The hashes of the first download are kept, and later
    files are compared with them.
    """
    known = store.find(address.name, address.revision)
    hashes = {(one.name, one.size): one.sha256 for one in known.files} if known is not None else {}
    files = tuple(
        RemoteFile(name, size, sha256=hashes.get((name, size)))
        for name, size in _sizes(client, address)
    )
    listing = Listing(address.revision, files)
    refuse_listing(address.name, listing, None)
    return Plan(address.name, None, listing, False, listing.num_bytes)


def _sizes(client: HubClient, address: WebAddress) -> Iterator[tuple[str, int]]:
    names = [address.file] if address.file is not None else [*_SMALL, SINGLE_FILE]
    found = False
    forbidden: list[str] = []
    for name in names:
        size = _size(client, address, name, forbidden)
        if size is not None:
            found = found or name.endswith(WEIGHTS)
            yield name, size
    index_size = None if found or address.file else _size(client, address, INDEX_FILE, forbidden)
    if index_size is not None:
        yield INDEX_FILE, index_size
        for shard in _shards(client, address):
            size = _size(client, address, shard)
            if size is None:
                raise DownloadError(f"{address.folder} lacks {shard}, which its {INDEX_FILE} names")
            yield shard, size
    elif not found and SINGLE_FILE in forbidden:
        _size(client, address, SINGLE_FILE)
    if optional := [name for name in forbidden if name not in (SINGLE_FILE, INDEX_FILE)]:
        _logger.warning(
            "%s forbids %s (status 403), as storage does of files that aren't there: the model is "
            "downloaded without them",
            address.folder,
            ", ".join(optional),
        )


def _size(
    client: HubClient, address: WebAddress, name: str, forbidden: list[str] | None = None
) -> int | None:
    """Return how large a file is; None where there is none.

    forbidden   is given the name where the answer is 403, for a file that need not be there: S3
                answers so of all files that don't exist, to those who may not list a bucket.
    """
    most = MAX_FILE_BYTES if name.endswith(WEIGHTS) else MAX_SMALL_BYTES
    url = client.file_url(address.name, address.revision, name)
    try:
        with client.open(url) as answer:
            if answer.status_code in (404, 410):
                return None
            if answer.status_code == 403 and forbidden is not None and name in _MAY_LACK:
                forbidden.append(name)
                return None
            client.check(answer, address.name, None)
            length = answer.headers.get("content-length", "")
    except Interrupted as problem:
        raise DownloadError(f"{url} can't be reached ({problem}); check the address") from None
    if not _LENGTH.fullmatch(length) or int(length) > most:
        raise DownloadError(f"{url} has a size of {quoted(length, 40)}, not 0 to {most:,} bytes")
    return int(length)


def _shards(client: HubClient, address: WebAddress) -> list[str]:
    url = client.file_url(address.name, address.revision, INDEX_FILE)
    try:
        with client.open(url) as answer:
            client.check(answer, address.name, None)
            index = parse_object(b"".join(pieces(answer, MAX_INDEX_BYTES, client.patience)))
    except Interrupted as problem:
        raise DownloadError(f"{url} can't be reached ({problem}); check the address") from None
    except Malformed as problem:
        raise DownloadError(f"{url} can't be read: {problem}; check the address") from None
    weight_map = index.get("weight_map")
    named = list(weight_map.values()) if isinstance(weight_map, dict) else []
    shards = {one for one in named if is_file_name(one) and one.endswith(WEIGHTS)}
    if not shards or not all(isinstance(one, str) and one in shards for one in named):
        raise DownloadError(f"{url} names files that are no shards; check the address")
    return sorted(shards)


def _no_address(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{quoted(text, 200)} is no address of a model: expected such as "
        "https://HOST/FOLDER with its config.json in it, or https://HOST/FILE.gguf"
    )
