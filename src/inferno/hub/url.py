"""Turn a model's id, or the URL of its page, into a repository and a revision."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from inferno.errors import InvalidRequest
from inferno.hub.environment import constants
from inferno.hub.names import is_file_name, is_repository, is_revision, split_file
from inferno.untrusted_json import quoted

_HUB = "huggingface.co"
_HUBS = (f"https://{_HUB}", "https://hf.co")
_PORTS = {"http": 80, "https": 443}


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
    if not is_repository(found.name) or (named is not None and not is_revision(named)):
        raise _no_model(text)
    if named is not None and revision is not None:
        raise InvalidRequest("revision stands in the URL already: give one", param="revision")
    return found


def is_elsewhere(text: str) -> bool:
    """Return whether a name is an address on a host that is not the user's hub."""
    return text.lower().startswith(("https://", "http://")) and _path_in_hub(text) is None


def _path_in_hub(text: str) -> str | None:
    """Return the path below the address of the user's hub; None where that isn't its own."""
    try:
        url = urlsplit(text)
        for hub in map(urlsplit, (*_HUBS, constants.ENDPOINT)):
            base = f"{hub.path.rstrip('/')}/"
            if _host(url) == _host(hub) and f"{url.path}/".startswith(base):
                return url.path.removeprefix(base)
    except ValueError:
        pass
    return None


def _host(url: SplitResult) -> tuple[str | None, str, int | None]:
    """Return user, host and port of an address, the port only where it is not the usual one."""
    port = None if url.port == _PORTS.get(url.scheme) else url.port
    return url.username, (url.hostname or "").removesuffix("."), port


def _path_of(text: str) -> list[str]:
    path = _path_in_hub(text) or ""
    try:
        # A branch may have slashes in its name, which its page's address spells %2F.
        return [unquote(part, errors="strict") for part in path.strip("/").split("/")]
    except ValueError:
        raise _no_model(text) from None


def _no_model(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{quoted(text, 200)} is no URL of a model: expected such as https://{_HUB}/OWNER/NAME, of "
        "that hub or of HF_ENDPOINT"
    )
