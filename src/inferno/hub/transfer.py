"""Transfer one file: continue where it stopped, and name the file once its hash is right."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from inferno.errors import DownloadError, ModelError
from inferno.hub.client import HubClient, Interrupted, Patience, pieces
from inferno.hub.names import RemoteFile, is_version
from inferno.json_file import open_nonblocking

# Bytes that a connection must have brought to count as a success: a hub may send one byte each.
_WORTH_A_CONNECTION = 1 << 20
_ROUNDS = 2
_READ = 1 << 20
_MAX_WRONG_RANGES = 2  # in a row; then the whole file is asked for
FULL = (errno.ENOSPC, errno.EDQUOT)
_STRONG_ETAG = re.compile(r'"[!#-~]{1,200}"')
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)")
LENGTH = re.compile(r"[0-9]{1,15}")
_VERSION = ".version"
_MAX_VERSION_BYTES = 1000

Heard = Callable[[int], None]


def fetch_file(
    client: HubClient, repository: str, commit: str, file: RemoteFile, target: Path, heard: Heard
) -> str:
    """Fetch a file to `target`, and return its sha256.

    heard   is told how many bytes of the file are there.

    The file is written beside the target, as NAME.part, which a later call continues. NAME.version
    says of which content it is: by its hash, or else by its version. A file whose hash is wrong is
    removed and fetched once more. Raises DownloadError, or the error that the hub's status means.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(_ROUNDS):
        with contextlib.closing(_Part(target, file)) as part:
            if file.has_hash:
                part.note(file.digest)
            _receive(client, repository, commit, part, heard)
            if part.is_right():
                part.sync()
                os.replace(part.path, target)
                return part.sha256
        part.path.unlink()
        _version_path(target).unlink(missing_ok=True)
    raise DownloadError(
        f"{file.name} of {repository} does not match its hash, though it was fetched anew: nothing "
        "of it is used; try again later, or check HF_ENDPOINT"
    )


def disk_full(name: str, folder: Path) -> ModelError:
    """Return the error of a disk that has no room left."""
    return ModelError(
        f"the disk is full: {folder} has no room for {name}; remove models with `inferno rm`, or "
        "set INFERNO_HOME to a folder on a larger disk"
    )


def file_too_large(name: str, folder: Path) -> ModelError:
    """Return the error of a file of a model that is longer than a file may be there."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most == resource.RLIM_INFINITY:
        return ModelError(
            f"a file of {name} is larger than the file system of {folder} takes: set INFERNO_HOME "
            "to a folder on another one"
        )
    return ModelError(
        f"a file of {name} is larger than the {most:,} bytes that this process may write to a "
        "file: raise that limit, as by `ulimit -f unlimited`, then try again"
    )


def has_content(path: Path, file: RemoteFile) -> str | None:
    """Return the sha256 of a file if it has the listed content; else None.

    A file without a hash must be of the listed version.
    """
    if not file.has_hash and (file.version is None or version_at(path) != file.version):
        return None
    try:
        with open(path, "rb", opener=open_nonblocking) as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                return None
            hashes = _Hashes(file)
            while piece := opened.read(_READ):
                hashes.update(piece)
    except OSError:
        return None
    return hashes.sha256 if hashes.are_right() else None


def version_of(answer: httpx.Response) -> str | None:
    """Return what tells the versions of a file apart: its ETag, else when it was last changed."""
    heads = (answer.headers.get(name) for name in ("etag", "last-modified"))
    return next((head for head in heads if is_version(head)), None)


def version_at(target: Path) -> str | None:
    """Return of which version a file, or its part, was fetched, or its hash; None: not known."""
    with contextlib.suppress(OSError):
        with open(_version_path(target), "rb", opener=open_nonblocking) as file:
            version = file.read(_MAX_VERSION_BYTES).decode("ascii", errors="replace")
        return version if is_version(version) else None
    return None


def part_of(target: Path) -> Path:
    """Return the path of a file until it is fetched."""
    return target.with_name(f"{target.name}.part")


def begun_files(folder: Path, file: RemoteFile) -> Iterator[Path]:
    """Yield the targets in a download's folder that have, or will have, the content of a file."""
    for record in sorted(folder.rglob(f"*{_VERSION}") if not folder.is_symlink() else ()):
        target = record.with_name(record.name.removesuffix(_VERSION))
        is_link = target.is_symlink() or part_of(target).is_symlink()
        if not is_link and version_at(target) == file.digest:
            yield target


def move_part(target: Path, to: Path) -> None:
    """Have what is there of a file go on at another place. Raises OSError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    os.replace(_version_path(target), _version_path(to))
    os.replace(part_of(target), part_of(to))


def _version_path(target: Path) -> Path:
    return target.with_name(f"{target.name}{_VERSION}")


class _Hashes:
    """The hashes of a content that comes in pieces, beside those that it must have."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        head = f"blob {file.size}\0".encode()
        self._git = hashlib.sha1(head, usedforsecurity=False) if file.git_oid else None

    def update(self, piece: bytes) -> None:
        self._sha256.update(piece)
        if self._git is not None:
            self._git.update(piece)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def are_right(self) -> bool:
        if self._file.sha256 is not None:
            return self.sha256 == self._file.sha256
        return self._git is None or self._git.hexdigest() == self._file.git_oid


class _Part:
    """A file that is being written, with the hashes of what is there so far."""

    def __init__(self, target: Path, file: RemoteFile) -> None:
        self.file = file
        self.path = part_of(target)
        self._target = target
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._opened = io.FileIO(os.open(self.path, flags, 0o644), "r+")
        self._hashes = _Hashes(file)
        self.size = 0
        is_known = file.has_hash or self.etag is not None  # of which version it is
        size = os.fstat(self._opened.fileno()).st_size
        self.cut(size if size <= file.size and is_known else 0)

    def write(self, piece: bytes) -> None:
        self._hashes.update(piece)
        view = memoryview(piece)
        while view:
            view = view[self._opened.write(view) :]
        self.size += len(piece)

    def cut(self, size: int) -> None:
        """Keep the first bytes, and go on behind them."""
        self._opened.truncate(size)
        self._opened.seek(0)
        self._hashes = _Hashes(self.file)
        self.size = 0
        while piece := self._opened.read(_READ):
            self._hashes.update(piece)
            self.size += len(piece)

    def has_at(self, start: int, piece: bytes) -> bool:
        """Return whether the bytes from `start` are those of a piece, as far as they go."""
        here = os.pread(self._opened.fileno(), len(piece), start)
        return here == piece[: len(here)]

    @property
    def etag(self) -> str | None:
        """The strong ETag of what is there; None where it has none, and where the hash is known."""
        version = None if self.file.has_hash else version_at(self._target)
        return version if version is not None and _STRONG_ETAG.fullmatch(version) else None

    def note(self, version: str | None) -> None:
        """Keep by which hash or version the content is told from others, if anything tells."""
        path = _version_path(self._target)
        path.unlink(missing_ok=True)  # it may be a link
        if version is not None:
            path.write_text(version, encoding="ascii")

    def is_right(self) -> bool:
        return self.size == self.file.size and self._hashes.are_right()

    @property
    def can_go_on(self) -> bool:
        """Return whether a later call continues what is there."""
        return self.size > 0 and (self.file.has_hash or self.etag is not None)

    @property
    def sha256(self) -> str:
        return self._hashes.sha256

    def sync(self) -> None:
        """Have the content on the disk before the name is: a power cut may not swap them."""
        os.fsync(self._opened.fileno())

    def close(self) -> None:
        self._opened.close()


class _Refused(Interrupted):
    """The error of an answer that can't be the file's, of which nothing is kept.

    wrong_ranges    how many wrong parts it counts for.
    """

    def __init__(self, reason: str, *, wrong_ranges: int = 0) -> None:
        super().__init__(reason)
        self.wrong_ranges = wrong_ranges


def _receive(client: HubClient, repository: str, commit: str, part: _Part, heard: Heard) -> None:
    """Ask for what is missing, again and again, until it is there or there is no hope."""
    url = client.file_url(repository, commit, part.file.name)
    patience, failures, most, wrong_ranges = client.patience, 0, part.size, 0
    heard(part.size)
    while part.size < part.file.size:
        try:
            _ask(client, url, repository, part, heard, whole=wrong_ranges >= _MAX_WRONG_RANGES)
            continue
        except Interrupted as problem:
            reason = problem
        wrong_ranges += reason.wrong_ranges if isinstance(reason, _Refused) else 0
        failures += 1
        if part.size - most >= _WORTH_A_CONNECTION:
            failures, wrong_ranges = 1, 0
            client.note_progress()
        most = max(most, part.size)
        if failures >= patience.attempts:
            raise _stalled(repository, part, failures, reason)
        client.pause(failures, reason)


def _stalled(repository: str, part: _Part, failures: int, reason: Interrupted) -> DownloadError:
    name = part.file.name
    advice = "try again" + (", and it goes on where it stopped" if part.can_go_on else " later")
    if isinstance(reason, _Refused):
        return DownloadError(
            f"the download of {repository} stalled: {name} was answered wrongly, {failures} times "
            f"without success ({reason}): look for a proxy in between, or check HF_ENDPOINT; then "
            f"{advice}"
        )
    return DownloadError(
        f"the download of {repository} stalled: {name} broke off {failures} times ({reason}); "
        f"{advice}"
    )


def _ask(
    client: HubClient, url: str, repository: str, part: _Part, heard: Heard, *, whole: bool
) -> None:
    """Ask once, for what is missing or for the whole file, and write what comes of it.

    What is there is only given up for what is certainly the file: one answer of a proxy, or of a
    site that is on the blink, may not cost what took hours.
    """
    etag = part.etag
    if part.size and not part.can_go_on:
        part.cut(0)
    asked = {"Range": f"bytes={part.size}-"} if part.size and not whole else {}
    if asked and etag is not None:
        asked["If-Range"] = etag
    with client.open(url, asked) as answer:
        if answer.status_code == 416:
            raise _Refused("the hub has no such part of it", wrong_ranges=1)
        client.check(answer, repository, commit_of(url))
        version, length = version_of(answer), _length(answer)
        is_other = not part.file.has_hash and version != etag
        if answer.status_code == 200:
            if length not in (None, part.file.size):
                raise _Refused(f"{length:,} bytes were sent in place of its {part.file.size:,}")
            if part.size and is_other and length is not None:
                part.cut(0)
        elif (part.size and not asked) or not _goes_on(answer, part):
            raise _Refused("the hub sent another part than it was asked for", wrong_ranges=1)
        if part.size and is_other:
            # Of a commit's file, bytes of another version would be told by the hash.
            raise _Refused(
                "the site sent a part of another version than it was asked for",
                wrong_ranges=_MAX_WRONG_RANGES,
            )
        if not part.size and not part.file.has_hash:
            part.note(version)
        if answer.status_code == 200:
            _take_whole(answer, part, heard, client.patience, is_sure=length is not None)
        else:
            for piece in pieces(answer, part.file.size - part.size, client.patience):
                part.write(piece)
                heard(part.size)
    if part.size < part.file.size:
        raise Interrupted("the connection was closed too early")


def _take_whole(
    answer: httpx.Response, part: _Part, heard: Heard, patience: Patience, *, is_sure: bool
) -> None:
    """Write a body that begins at the file's first byte, behind what is there already of it.

    is_sure     whether its length was told, and is the file's: it takes the place of what is there
                if that differs. Else it may be a page: it is refused, or cut away if it ends.
    """
    at, is_new = 0, part.size == 0
    try:
        for piece in pieces(answer, part.file.size, patience):
            if at < part.size and not part.has_at(at, piece):
                if not is_sure:
                    raise _Refused("something else was sent than what is there of it")
                part.cut(at)
            if rest := piece[max(0, part.size - at) :]:
                part.write(rest)
            at += len(piece)
            heard(part.size)
    except DownloadError:  # it is too long
        if is_new:
            part.cut(0)
        raise
    if at < part.file.size:  # and nothing says that it broke off
        if is_new and not is_sure:
            part.cut(0)
        raise _Refused(f"{at:,} bytes were sent in place of its {part.file.size:,}")


def commit_of(url: str) -> str | None:
    """Return the commit that a file's URL has."""
    found = re.search(r"/resolve/([0-9a-f]{40})/", url)
    return found[1] if found else None


def _length(answer: httpx.Response) -> int | None:
    """Return how long an answer's body is to be; None where its head doesn't tell."""
    text = answer.headers.get("content-length", "")
    if "transfer-encoding" in answer.headers or not LENGTH.fullmatch(text):
        return None
    return int(text)


def _goes_on(answer: httpx.Response, part: _Part) -> bool:
    """Return whether an answer is of the bytes that follow those that are there."""
    found = _RANGE.fullmatch(answer.headers.get("content-range", ""))
    if found is None or int(found[1]) != part.size or int(found[2]) >= part.file.size:
        return False
    is_whole = _length(answer) in (None, int(found[2]) + 1 - part.size)
    return is_whole and found[3] in ("*", str(part.file.size))
