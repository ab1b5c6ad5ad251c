"""Turn a model's id, or the URL of its page, into a repository and a revision."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

from inferno.errors import InvalidRequest
from inferno.hub.names import is_file_name, is_repository, split_file
from inferno.untrusted_json import quoted

_HUB = "huggingface.co"


@dataclass(frozen=True, slots=True)
class WantedModel:
    """A repository of the user's hub, a revision, and which of its weights are wanted."""

    name: str
    revision: str | None
    include: str | None


def parse_model(text: str, revision: str | None, include: str | None) -> WantedModel:
    """Return the model of an id such as Qwen/Qwen3-0.6B, or of the URL of its page or file.

    A model with a page of huggingface.co is fetched from HF_ENDPOINT. Raises InvalidRequest.
    """
    if "://" not in text:
        repository, chosen = split_file(text)
        if chosen is not None and include is not None:
            raise InvalidRequest("a file is named already: give no --include", param="include")
        if is_repository(repository):
            return WantedModel(repository, revision, include or chosen)
        raise InvalidRequest(
            f"a model to download is OWNER/NAME, a URL, or a folder that exists, not {quoted(text)}"
        )
    named: str | None = None
    file: list[str] = []
    match _path_of(text):
        case [owner, name]:
            pass
        case [owner, name, "tree", named]:
            pass
        case [owner, name, "blob" | "resolve", named, *file] if is_file_name("/".join(file)):
            include = "/".join(file)
        case _:
            raise _no_model(text)
    found = WantedModel(f"{owner}/{name}", named or revision, include)
    if not is_repository(found.name):
        raise _no_model(text)
    if named is not None and revision is not None:
        raise InvalidRequest("revision stands in the URL already: give one", param="revision")
    return found


def is_elsewhere(text: str) -> bool:
    """Return whether a name is an address on a host that is not the user's hub."""
    try:
        url = urlsplit(text)
        return url.scheme in ("https", "http") and url.netloc not in _hosts()
    except ValueError:
        return False


def _hosts() -> tuple[str, str]:
    return _HUB, urlsplit(constants.ENDPOINT).netloc


def _path_of(text: str) -> list[str]:
    try:
        url = urlsplit(text)
        path = unquote(url.path, errors="strict").strip("/")
    except ValueError:
        raise _no_model(text) from None
    if url.scheme not in ("https", "http") or url.netloc not in _hosts():
        raise _no_model(text)
    return path.split("/")


def _no_model(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{quoted(text, 200)} is no URL of a model: expected such as https://{_HUB}/OWNER/NAME, of "
        "that hub or of HF_ENDPOINT"
    )
