"""Check all that a hub says of a model, value by value: names, hashes and sizes.

A revision and a file's name become parts of paths, so nothing but what is known to be harmless
passes: https://nvd.nist.gov/vuln/detail/CVE-2024-37032 was a digest that became a path unchecked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeGuard

from inferno.errors import DownloadError
from inferno.json_file import INDEX_FILE, MAX_JSON_BYTES, SINGLE_FILE, TEMPLATE_FILES
from inferno.untrusted_json import quoted

MAX_FILE_BYTES = 1 << 42
MAX_SMALL_BYTES = 1 << 28  # of what is no weights: the largest published tokenizer.json has 35 MB
_MAX_FILES = 100_000
_MAX_CHOSEN = 10_000
_RECORD_BYTES = 500  # that a store's manifest has of a file beside its name, at the most

_SHARD = re.compile(r"-[0-9]{5}-of-(?=[0-9]{5}\.gguf$)")
# A pattern that `split_file` makes of the end of a name, and what it puts into brackets.
_OF_END = re.compile(r"\*(.+)\[\.-\]\*gguf")
_IN_BRACKETS = re.compile(r"\[(?:[a-z]([A-Z])|([*?\[]))\]")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][\w./-]{0,199}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[A-Za-z0-9_][\w.+-]{0,199}", re.ASCII)
_MAX_DEPTH = 4
_VERSION = re.compile(r"[ -~]{1,200}")
_LICENCE = re.compile(r"[\w.+-]{1,64}", re.ASCII)

# Weights, tokenizer, configs and templates; never code, never pickles.
WEIGHTS = (".safetensors", ".gguf")
_SUFFIXES = (*WEIGHTS, ".json", ".jinja")
# What is read of a folder, beside the shards that an index names.
SMALL_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", *TEMPLATE_FILES.values()),
)
READ_FILES = (*SMALL_FILES, SINGLE_FILE, INDEX_FILE)
# The same weights again in their makers' own formats, in folders such as original/ or beside ours.
_DUPLICATES = ("*/*.safetensors", "*/*.json", "consolidated*.safetensors")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as a hub lists it: a checked name, its size, and the hash that its content must have.

    sha256      of large files, which Git LFS keeps.
    git_oid     of other files: sha1 of "blob SIZE", a NUL and the content, as git computes it.

    A file from the web, without a hub, has neither hash, but perhaps a `version`: what its site
    says to tell it from what it was before a change.
    """

    name: str
    size: int
    sha256: str | None = None
    git_oid: str | None = None
    version: str | None = None

    @property
    def has_hash(self) -> bool:
        """Return whether a hash is known, so that the file's content can be verified."""
        return self.digest is not None

    @property
    def digest(self) -> str | None:
        """Return the hash of the content, which also names it in Hugging Face's cache."""
        return self.sha256 or self.git_oid

    @property
    def is_weights(self) -> bool:
        """Return whether the file holds tensors."""
        return self.name.endswith(WEIGHTS)

    @property
    def is_gguf(self) -> bool:
        """Return whether the file is a GGUF file."""
        return self.name.endswith(".gguf")


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository as of one commit; `others` are names of files that were not chosen."""

    commit: str
    files: tuple[RemoteFile, ...]
    others: tuple[str, ...] = ()
    licence: str | None = None

    @property
    def num_bytes(self) -> int:
        """Return how many bytes all files have."""
        return sum(file.size for file in self.files)


def is_repository(name: str) -> bool:
    """Return whether a name is spelled as a Hugging Face id: OWNER/NAME."""
    is_plain = _REPOSITORY.fullmatch(name) is not None
    return is_plain and not any(odd in name for odd in ("..", "--", "-/", "./"))


def split_file(name: str) -> tuple[str, str | None]:
    """Split OWNER/NAME:FILE into the repository and a pattern for its weights; without FILE, None.

    FILE is the name of a GGUF file, or the end of one, such as Q4_K_M in any case. The name of a
    split model's file means all of them.
    """
    repository, colon, file = name.partition(":")
    if not colon or not file or not is_repository(repository):
        return name, None
    literal = [f"[{one}]" if one in "*?[" else one for one in file]
    if file.endswith(".gguf"):
        return repository, _SHARD.sub("-?????-of-", "".join(literal))
    either = (
        f"[{one.lower()}{one.upper()}]" if one.isascii() and one.isalpha() else one
        for one in literal
    )
    return repository, f"*{''.join(either)}[.-]*gguf"


def asked_end(include: str) -> str | None:
    """Return the end of a name that a pattern of `split_file` was made of; None: another
    pattern.
    """
    made = _OF_END.fullmatch(include)
    return made and _IN_BRACKETS.sub(lambda one: one[1] or one[2], made[1])


def is_revision(name: str) -> bool:
    """Return whether a name may be that of a branch, a tag or a commit."""
    return _REVISION.fullmatch(name) is not None and ".." not in name and "//" not in name


def is_commit(name: object) -> bool:
    """Return whether a text is the full hash of a commit."""
    return isinstance(name, str) and _COMMIT.fullmatch(name) is not None


def is_sha256(text: object) -> bool:
    """Return whether a text is a SHA-256 in lower-case hexadecimal digits."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


def is_version(text: object) -> TypeGuard[str]:
    """Return whether a value may be an ETag or a time, as sites tell versions of files by."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


def is_licence(text: object) -> bool:
    """Return whether a value is the short name of a licence, or None for no licence."""
    return text is None or (isinstance(text, str) and _LICENCE.fullmatch(text) is not None)


def is_file_name(name: object) -> bool:
    """Return whether a text names a file within a folder, on any system."""
    if not isinstance(name, str):
        return False
    parts = name.split("/")
    return len(parts) <= _MAX_DEPTH and all(
        _PART.fullmatch(part) and ".." not in part and not part.endswith((".", ".part", ".version"))
        for part in parts
    )


def is_wanted(name: str, include: str | None = None) -> bool:
    """Return whether a file of this name is fetched; `include` chooses among weights.

    Files with odd names, such as hidden files, are not fetched: no model needs them.
    """
    if not name.endswith(_SUFFIXES) or not is_file_name(name) or is_projector(name):
        return False
    if name.endswith(WEIGHTS) and include is not None:
        return fnmatchcase(name, include)
    if name.endswith(".gguf"):
        return False
    return not any(fnmatchcase(name, pattern) for pattern in _DUPLICATES)


def is_projector(name: str) -> bool:
    """Return whether a GGUF file is by its name what turns images or sound into embeddings."""
    return name.endswith(".gguf") and "mmproj" in name.lower()


def read_listing(answer: dict[str, Any], repository: str, include: str | None = None) -> Listing:
    """Return the listing in a hub's answer; raise DownloadError where it can't be trusted."""
    commit, siblings = answer.get("sha"), answer.get("siblings")
    if not is_commit(commit):
        raise _refused(repository, f"a commit named {_shown(commit)}, not 40 hexadecimal digits")
    if not isinstance(siblings, list) or not 0 < len(siblings) <= _MAX_FILES:
        raise _refused(repository, "no list of files")
    chosen, others = [], []
    for sibling in siblings:
        name = sibling.get("rfilename") if isinstance(sibling, dict) else None
        if not isinstance(name, str) or _could_lie_outside(name):
            raise _refused(repository, f"a file named {_shown(name)}, which could lie outside")
        if is_wanted(name, include):
            chosen.append(_read_file(sibling, name, repository))
        else:
            others.append(name)
    _check_together(chosen, repository)
    files = tuple(sorted(chosen, key=lambda file: (file.is_weights, file.name)))
    return Listing(str(commit), files, tuple(others), _licence(answer))


def _read_file(sibling: dict[str, Any], name: str, repository: str) -> RemoteFile:
    lfs = sibling.get("lfs")
    size = lfs.get("size") if isinstance(lfs, dict) else sibling.get("size")
    most = MAX_FILE_BYTES if name.endswith(WEIGHTS) else MAX_SMALL_BYTES
    if type(size) is not int or not 0 <= size <= most:
        raise _refused(repository, f"{name} with a size of {_shown(size)}, not 0 to {most:,} bytes")
    if isinstance(lfs, dict):
        sha256 = lfs.get("sha256")
        if not is_sha256(sha256):
            raise _refused(repository, f"{name} with {_shown(sha256)} as its sha256")
        return RemoteFile(name, size, sha256=sha256)
    oid = sibling.get("blobId")
    if not is_commit(oid):
        raise _refused(repository, f"{name} with {_shown(oid)} as the hash of its content")
    return RemoteFile(name, size, git_oid=oid)


def _check_together(files: Iterable[RemoteFile], repository: str) -> None:
    """Refuse names that some file systems take for the same, or for a folder of another."""
    names = [file.name.casefold() for file in files]
    if len(names) > _MAX_CHOSEN:
        raise _refused(repository, f"{len(names):,} files of a model")
    folders = {name[:at] for name in names for at, one in enumerate(name) if one == "/"}
    if sum(_RECORD_BYTES + len(name) for name in names) > MAX_JSON_BYTES:
        raise _refused(repository, f"{len(names):,} files with names too long for a manifest")
    twice = [name for name, times in Counter(names).items() if times > 1 or name in folders]
    if twice:
        raise _refused(repository, f"two files named {_shown(twice[0])}")


def _could_lie_outside(name: str) -> bool:
    parts = re.split(r"[/\\]", name)
    # Of files that nobody wants git takes names with odd spaces, emoji and colons.
    is_odd = not name.isprintable() or "\\" in name or ":" in name
    is_path = len(name) > 1024 or not all(part.strip(".") for part in parts)
    return is_path or (is_odd and name.endswith(_SUFFIXES))


def _licence(answer: dict[str, Any]) -> str | None:
    card = answer.get("cardData")
    licence = card.get("license") if isinstance(card, dict) else None
    return licence if is_licence(licence) else None


def _shown(value: object) -> str:
    if isinstance(value, str):
        return quoted(value, 60)
    return "nothing" if value is None else quoted(str(value)[:1000], 60)


def _refused(repository: str, what: str) -> DownloadError:
    return DownloadError(
        f"{repository} is not downloaded, as its hub lists {what}: no true hub does; check "
        "HF_ENDPOINT, and report it to who runs the hub"
    )
