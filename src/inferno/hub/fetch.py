"""Fetch a model from the Hugging Face hub into the cache that other tools share."""

from __future__ import annotations

import errno
import textwrap
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from inferno.errors import ModelError, ModelNotFound

# Weights, tokenizer, configs and templates; never code, never pickles.
_FILES = ["*.safetensors", "*.json", "*.jinja"]
# The same weights again in their makers' own formats, in folders such as original/ or beside ours.
_DUPLICATES = ["*/*.safetensors", "*/*.json", "consolidated*.safetensors"]
_LONGEST_REASON = 200
_FULL = (errno.ENOSPC, errno.EDQUOT)


def fetch_model(name: str, revision: str | None) -> Path:
    """Return the folder of a model, downloaded where the cache lacks it.

    ModelNotFound and ModelError say why not.
    """
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=_FILES, ignore_patterns=_DUPLICATES
        )
    except Exception as problem:  # the library passes on what its HTTP clients raise, of any kind
        raise _explained(problem, name, revision) from problem
    return Path(folder)


def _explained(problem: Exception, name: str, revision: str | None) -> ModelError:
    causes = list(_causes(problem))
    if any(_is_disk_full(cause) for cause in causes):
        return ModelError(
            f"the disk is full: {constants.HF_HUB_CACHE} has no room for {name}; delete models you "
            "don't need, or set HF_HOME to a folder on a larger disk"
        )
    if constants.HF_HUB_OFFLINE or any(isinstance(one, OfflineModeIsEnabled) for one in causes):
        return ModelNotFound(
            f"{name} is not completely on this machine, and HF_HUB_OFFLINE forbids to download it; "
            "unset HF_HUB_OFFLINE, or give a folder"
        )
    for cause in causes:
        match cause:
            case GatedRepoError():
                return ModelNotFound(
                    f"{name} is for those who accepted its licence: do so at "
                    f"{constants.ENDPOINT}/{name}, and set HF_TOKEN to a token of yours"
                )
            case RevisionNotFoundError():
                return ModelNotFound(
                    f"{name} has no revision {revision or 'main'!r}: give a branch, tag or commit"
                )
            case RepositoryNotFoundError():
                return ModelNotFound(
                    f"there is no folder {name!r}, and the Hugging Face hub has no such model, or "
                    "shows it to its owners only; check the name, or set HF_TOKEN"
                )
    if any(_is_timeout(cause) for cause in causes) and not isinstance(
        problem, LocalEntryNotFoundError
    ):
        return ModelError(
            f"the download of {name} stalled: the hub sent nothing for "
            f"{constants.HF_HUB_DOWNLOAD_TIMEOUT} seconds, again and again; try again, and it goes "
            "on where it stopped, or set HF_HUB_DOWNLOAD_TIMEOUT"
        )
    if isinstance(problem, LocalEntryNotFoundError) or _is_unreachable(causes):
        return ModelNotFound(
            f"{name} is not completely on this machine, and the Hugging Face hub can't be reached "
            f"({_reason(causes)}); check the connection, or give a folder"
        )
    return ModelNotFound(
        f"there is no folder {name!r}, and the Hugging Face hub did not give the model "
        f"({_reason(causes)}); check the name and the connection, or give a folder"
    )


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, and those that led to it."""
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        yield problem
        problem = problem.__cause__ or problem.__context__


def _is_disk_full(problem: BaseException) -> bool:
    is_system = isinstance(problem, OSError) and problem.errno in _FULL
    return is_system or "no space left on device" in str(problem).lower()


def _is_timeout(problem: BaseException) -> bool:
    return isinstance(problem, TimeoutError) or type(problem).__name__.endswith("Timeout")


def _is_unreachable(causes: list[BaseException]) -> bool:
    """Return whether no answer came at all; an answer that refuses is an HfHubHTTPError."""
    names = {type(cause).__name__ for cause in causes}
    has_answer = any(isinstance(cause, HfHubHTTPError) for cause in causes)
    return not has_answer and bool(names & {"ConnectError", "ConnectionError", "ReadError"})


def _reason(causes: list[BaseException]) -> str:
    """Return the first line of what was said at the root, whole words of it."""
    said = [str(cause).strip().splitlines() for cause in causes]
    lines = [lines[0] for lines in said if lines] or [type(causes[0]).__name__]
    line = lines[-1] if len(lines[-1]) > 3 else lines[0]
    return textwrap.shorten(line, _LONGEST_REASON, placeholder=" …")
