"""Read the API keys that an operator configures, and find the key that a request brings."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from inferno.errors import InvalidRequest

ENVIRONMENT = "INFERNO_API_KEY"
MAX_KEYS = 1024
_MAX_FILE_BYTES = 1 << 20
_KEY = re.compile(r"[\x21-\x7e]{1,512}")


class KeyScope(StrEnum):
    """A group of routes that an API key may call."""

    INFERENCE = "inference"  # everything that the two others don't
    METRICS = "metrics"
    ADMIN = "admin"  # the state of things, and all that the others open


_DEFAULT_SCOPES = frozenset({KeyScope.INFERENCE, KeyScope.METRICS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A configured API key, of which only the digest is kept.

    key_id  names it in logs: its place among the configured keys, which tells nothing about it.
    """

    key_id: str
    digest: bytes = field(repr=False)
    scopes: frozenset[KeyScope]

    def opens(self, scope: KeyScope) -> bool:
        return scope in self.scopes or KeyScope.ADMIN in self.scopes


_NOBODY = ApiKey(key_id="", digest=bytes(32), scopes=frozenset())  # no key has this digest


def read_keys(
    given: Sequence[str], file: Path | None, environment: Mapping[str, str]
) -> tuple[ApiKey, ...]:
    """Return the keys of --api-key, --api-key-file and INFERNO_API_KEY, in this order.

    Each is `KEY` or `SCOPE[,SCOPE]:KEY`; without scopes a key opens inference and metrics. A file
    has a key on each line; empty lines and lines that begin with # are skipped. Raises
    InvalidRequest.
    """
    texts = [(text, "--api-key") for text in given]
    if file is not None:
        texts += [(line, f"--api-key-file {file}") for line in _lines(file)]
    if ENVIRONMENT in environment:
        texts.append((environment[ENVIRONMENT], ENVIRONMENT))
    if len(texts) > MAX_KEYS:
        raise InvalidRequest(
            f"{len(texts)} API keys are configured; at most {MAX_KEYS} are taken", param="api_key"
        )
    return tuple(
        _parse(text, source, f"key-{place}") for place, (text, source) in enumerate(texts, 1)
    )


def find_key(keys: Iterable[ApiKey], given: bytes) -> ApiKey | None:
    """Return the key that equals `given`, or None, in a time that reveals nothing of any key."""
    digest = hashlib.sha256(given).digest()
    found: ApiKey | None = None
    for key in (_NOBODY, *keys):  # as a loop's first turn has a time of its own
        # Neither an early end nor a branch, whose time depends on where in the list it is taken.
        found = (found, key)[hmac.compare_digest(key.digest, digest)]
    return found


def _parse(text: str, source: str, key_id: str) -> ApiKey:
    names, colon, rest = text.partition(":")
    scopes, key = _DEFAULT_SCOPES, text
    if colon and set(names.split(",")) <= set(KeyScope):
        scopes, key = frozenset(KeyScope(name) for name in names.split(",")), rest
    if not _KEY.fullmatch(key):  # the message doesn't show it: it may be nearly a key
        raise InvalidRequest(
            f"{source} gives {'an empty key' if not key else 'a key that can not be used'}; "
            "a key is 1 to 512 visible ASCII characters, without spaces",
            param="api_key",
        )
    return ApiKey(key_id=key_id, digest=hashlib.sha256(key.encode()).digest(), scopes=scopes)


def _lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_FILE_BYTES + 1)
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise _bad_file(file, f"can't be read: {reason}") from None
    if len(raw) > _MAX_FILE_BYTES:
        raise _bad_file(file, f"is larger than {_MAX_FILE_BYTES} bytes")
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise _bad_file(file, "holds no key; write one on each line")
    return keys


def _bad_file(file: Path, problem: str) -> InvalidRequest:
    return InvalidRequest(f"--api-key-file {file} {problem}", param="api_key_file")
