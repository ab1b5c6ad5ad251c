"""Ask a hub over HTTP: for a repository's list of files, and for their bodies."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from urllib.request import getproxies

import httpx

from inferno.errors import DownloadError, HubUnreachable, InvalidRequest, ModelError, ModelNotFound
from inferno.hub.environment import check_times, constants
from inferno.hub.names import Listing, is_commit, is_revision, read_listing
from inferno.json_file import read_file
from inferno.untrusted_json import Malformed, parse_object, quoted

_logger = logging.getLogger("inferno")
_T = TypeVar("_T")

MOST_AT_ONCE = 64  # requests: so all published models' headers take two round trips at most

_MAX_ANSWER_BYTES = 8 << 20
_MAX_REDIRECTS = 8
_MAX_TOKEN_FILE_BYTES = 1 << 16
_TOKEN = re.compile(r"[!-~]{1,4096}")
_REDIRECTS = (301, 302, 303, 307, 308)
_FLEETING = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_PAUSE = 60.0
_THIS_MACHINE = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The time that a hub is waited for, and how often it is asked again.

    stall       seconds without a byte.
    slowest     seconds in which each run of `pace` bytes must come.
    silence     seconds in which the whole head of an answer, and then some of its body, must come:
                headers, hints and the marks of chunks can be sent for ever, a byte at a time.
    attempts    how many requests in a row may fail.
    longest     seconds of pauses that a hub may ask for, in all, while nothing comes.
    """

    stall: float = 10.0
    slowest: float = 60.0
    silence: float = 120.0
    pace: int = 1 << 16
    attempts: int = 5
    longest: float = 600.0
    sleep: Callable[[float], None] = field(default=time.sleep)


class Interrupted(Exception):
    """The error of a request that may succeed if repeated, after `pause` seconds."""

    def __init__(self, reason: str, *, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class _NoCookies(CookieJar):
    """A jar that stays empty: what one host sets is no other's business, nor worth parsing."""

    def extract_cookies(self, response: object, request: object) -> None:
        pass


class HubClient:
    """A connection to one hub, or to a folder of a model's files on the web.

    The token is sent to the hub's own scheme, host and port, and never to where it redirects.
    """

    def __init__(
        self, endpoint: str, token: str | None, patience: Patience, *, is_hub: bool = True
    ) -> None:
        check_times()
        self.endpoint = endpoint.rstrip("/")
        self.patience = patience
        self._is_hub = is_hub
        self._origin = _origin(_url(self.endpoint, "HF_ENDPOINT" if is_hub else "a model"))
        if not is_hub and not _is_private(self._origin):
            raise InvalidRequest(
                f"{endpoint} is not encrypted, and nothing else says what the files must be: give "
                "an https:// address"
            )
        self._token = token if _is_private(self._origin) else None
        self.has_token = token is not None
        logging.getLogger("httpx").addFilter(_without_queries)  # it logs signed URLs
        self._asked_to_wait = 0.0
        with _naming_variables():
            self._http = httpx.Client(
                timeout=httpx.Timeout(patience.stall),
                mounts=dict.fromkeys((*_THIS_MACHINE, *self._loopback()), None),  # never by a proxy
                headers={"User-Agent": "inferno", "Accept-Encoding": "identity"},
                cookies=_NoCookies(),
            )
        # The connections that were opened last.
        self._streams: deque[Any] = deque(maxlen=MOST_AT_ONCE)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def patiently(self, ask: Callable[[], _T]) -> _T:
        """Return what `ask` returns, called again while it is interrupted, and at last the error.

        Raises Interrupted, DownloadError, and what `ask` raises.
        """
        for failures in range(1, self.patience.attempts):
            try:
                return ask()
            except Interrupted as problem:
                reason = problem
            self.pause(failures - 1, reason)
        return ask()

    def pause(self, failures: int, reason: Interrupted) -> None:
        """Wait before the next request, the longer the more requests have failed.

        Raises DownloadError where a hub asks to wait again and again.
        """
        usual = min(_LONGEST_PAUSE, 0.5 * 2**failures)
        wait = max(usual, min(_LONGEST_PAUSE, reason.pause or 0.0))
        if wait > usual:
            if self._asked_to_wait + wait > self.patience.longest:
                raise DownloadError(
                    f"{self.endpoint} asked to wait ({reason}) for {self._asked_to_wait:.0f} "
                    "seconds, and asks again: try again later, and it goes on where it stopped"
                )
            _logger.warning(
                "%s asks to wait (%s): going on in %.0f seconds", self.endpoint, reason, wait
            )
        self._asked_to_wait += wait if wait > usual else 0.0
        self.patience.sleep(wait)

    def note_progress(self) -> None:
        """Forget how long the hub asked to wait: now it sends."""
        self._asked_to_wait = 0.0

    def listing(self, repository: str, revision: str, include: str | None = None) -> Listing:
        """Return the files that a repository has at a revision, with the revision's commit."""
        if not is_revision(revision):
            raise InvalidRequest(
                f"revision must be a branch, tag or commit, not {quoted(revision)}",
                param="revision",
            )
        url = f"{self.endpoint}/api/models/{repository}/revision/{quote(revision, safe='')}"
        body = self._answer(f"{url}?blobs=true", repository, revision)
        try:
            listing = read_listing(parse_object(body, may_repeat=True), repository, include)
        except Malformed as problem:
            raise DownloadError(
                f"{repository} is not downloaded, as its hub's answer can't be read: {problem}; "
                "check HF_ENDPOINT"
            ) from None
        if is_commit(revision) and listing.commit != revision:
            raise DownloadError(
                f"{repository} is not downloaded, as its hub answers with another commit than "
                f"{revision}: check HF_ENDPOINT"
            )
        return listing

    def file_url(self, repository: str, commit: str, name: str) -> str:
        """Return the URL of a file of a commit."""
        if not self._is_hub:
            return f"{self.endpoint}/{quote(name)}"
        return f"{self.endpoint}/{repository}/resolve/{commit}/{quote(name)}"

    @contextmanager
    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Yield the answer to a GET request, after redirects, before its body is read.

        Raises Interrupted where no answer came, DownloadError for a redirect that is not followed.
        """
        token, at = self._token, _url(url, "the URL")
        for _ in range(_MAX_REDIRECTS):
            if _origin(at) != self._origin:
                token = None
            sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
            request = self._http.build_request(
                "GET", at, headers=sent, extensions={"trace": self._hear}
            )
            try:
                with _as_interruptions(), _watched(self._streams, self.patience, lambda: 0):
                    answer = self._http.send(request, stream=True)
            except (httpx.InvalidURL, ValueError):  # it reads a redirect, though it follows none
                raise _no_redirect(at, "no address") from None
            try:
                if answer.status_code not in _REDIRECTS:
                    yield answer
                    return
                at = _next_url(at, answer.headers.get("location", ""))
            finally:
                answer.close()
        raise DownloadError(
            f"{self.endpoint} redirects more than {_MAX_REDIRECTS} times: try again, or check "
            "HF_ENDPOINT"
        )

    def _hear(self, event: str, facts: Mapping[str, Any]) -> None:
        """Note a connection that is opened, of which httpx tells only here."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._streams.append(facts["return_value"])

    def _answer(self, url: str, repository: str, revision: str) -> bytes:
        def ask() -> bytes:
            with self.open(url) as answer:
                self.check(answer, repository, revision)
                return b"".join(pieces(answer, _MAX_ANSWER_BYTES, self.patience))

        try:
            return self.patiently(ask)
        except Interrupted as reason:
            raise HubUnreachable(
                f"the hub at {self.endpoint}, which {repository} would come from, can't be reached "
                f"({reason}); check the connection, or give a folder"
            ) from None

    def _loopback(self) -> list[str]:
        """Return the pattern of the hub's host where it is this machine, by whatever name."""
        scheme, host, _ = self._origin
        is_here = scheme == "http" and _is_private(self._origin)
        return [f"all://[{host}]" if ":" in host else f"all://{host}"] if is_here else []

    def check(self, answer: httpx.Response, repository: str, revision: str | None) -> None:
        """Raise the error that a status means; Interrupted where a repeated request may succeed."""
        status, code = answer.status_code, answer.headers.get("x-error-code", "")
        page = f"{self.endpoint}/{repository}"
        if status in (200, 206):
            return
        if status in _FLEETING:
            raise Interrupted(f"status {status}", pause=_seconds(answer.headers.get("retry-after")))
        if not self._is_hub:
            raise DownloadError(
                f"{_shown(answer.url)} answers with status {status}: check the address"
            )
        if _origin(answer.url) != self._origin:  # it knows nothing of licences and names
            raise DownloadError(
                f"{_shown(answer.url)}, to which the hub sends, answers with status {status}: try "
                "again later, or look for a proxy in between"
            )
        if code == "GatedRepo" or status == 403:
            raise ModelNotFound(
                f"{repository} is for those who accepted its licence: do so at {page}, and "
                f"{self._how_to_log_in()}"
            )
        if code == "RevisionNotFound":
            raise ModelNotFound(
                f"{repository} has no revision {revision or 'main'!r}: give a branch, tag or commit"
            )
        if code == "EntryNotFound":
            raise DownloadError(
                f"the hub at {self.endpoint} lacks a file of {repository} that it lists: try again "
                "later, or check HF_ENDPOINT"
            )
        if status in (401, 404):
            raise ModelNotFound(
                f"there is no folder {repository!r}, and the hub has no such model, or shows it to "
                f"its owners only: see {page}, check the name, or {self._how_to_log_in()}"
            )
        raise DownloadError(
            f"the hub at {self.endpoint} answers with status {status} where {repository} is asked "
            "for: try again later, or check HF_ENDPOINT"
        )

    def _how_to_log_in(self) -> str:
        if self.has_token and self._token is None:
            return "use https:// in HF_ENDPOINT: a token is not sent unencrypted"
        if self.has_token:
            return "see that your token's account may read it"
        return "log in: set HF_TOKEN, run `hf auth login` or `inferno download --token-file FILE`"


def find_token(token_file: Path | None = None) -> str | None:
    """Return the token of a file, of HF_TOKEN, or of the file that `hf auth login` writes."""
    if token_file is not None:
        source = str(token_file)
        text = _token_in(Path(os.path.expanduser(token_file)))
    elif text := os.environ.get("HF_TOKEN", "").strip():
        source = "HF_TOKEN"
    elif Path(constants.HF_TOKEN_PATH).is_file():
        source = constants.HF_TOKEN_PATH
        text = _token_in(Path(source))
    else:
        return None
    if not (text := text.strip()) and token_file is None:
        return None
    if not _TOKEN.fullmatch(text):
        raise InvalidRequest(f"{source} holds no token: it must be one line of visible characters")
    return text


def _token_in(path: Path) -> str:
    content = read_file(path, error=ModelError, max_bytes=_MAX_TOKEN_FILE_BYTES)
    return content.decode("utf-8", errors="replace")


def pieces(answer: httpx.Response, at_most: int, patience: Patience) -> Iterator[bytes]:
    """Yield a body in pieces; raise DownloadError if it is too long, Interrupted if slow."""
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise DownloadError(
            f"{_shown(answer.url)} sends its answer compressed, which nobody asked for: check "
            "HF_ENDPOINT, or a proxy in between"
        )
    since, recent, total = time.monotonic(), 0, 0
    streams = [answer.extensions["network_stream"]]
    with _as_interruptions(), _watched(streams, patience, lambda: total):
        for piece in answer.iter_raw():
            total += len(piece)
            recent += len(piece)
            if total > at_most:
                raise DownloadError(
                    f"{_shown(answer.url)} sends more than the {at_most:,} bytes that are due: try "
                    "again, or check HF_ENDPOINT"
                )
            yield piece
            now = time.monotonic()
            if now - since > patience.slowest:
                if recent < patience.pace:
                    raise Interrupted(f"only {recent} bytes came in {now - since:.0f} seconds")
                since, recent = now, 0


@contextmanager
def _watched(
    streams: Iterable[Any], patience: Patience, progress: Callable[[], int]
) -> Iterator[None]:
    """Break off connections over which nothing comes that counts as progress, until it ends."""
    ended = threading.Event()

    def watch() -> None:
        before = progress()
        while not ended.wait(patience.silence):
            if progress() == before:
                for stream in list(streams):
                    with suppress(OSError):  # not the method of TLS, which another thread is using
                        socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)
                return
            before = progress()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def _naming_variables() -> Iterator[None]:
    """Name the variable of the environment that a client of httpx can't be made with."""
    try:
        yield
    except OSError as problem:
        if not (path := os.environ.get("SSL_CERT_FILE")):
            raise
        raise InvalidRequest(
            f"SSL_CERT_FILE must be a file with certificates in PEM, not {quoted(path, 200)} "
            f"({problem.strerror or problem}): correct it, or leave it out"
        ) from None
    except (ImportError, httpx.InvalidURL, ValueError):
        wrong = _wrong_proxy() or _wrong_exception()
        if wrong is None:
            raise
        raise wrong from None


def _wrong_proxy() -> InvalidRequest | None:
    """Return the error of the first variable that names no proxy of a kind that httpx knows."""
    found = getproxies()
    for scheme in ("http", "https", "all"):
        text = found.get(scheme, "")
        try:
            proxy = httpx.Proxy(text if "://" in text else f"http://{text}")
            is_known = not text or proxy.url.scheme in ("http", "https")
        except (httpx.InvalidURL, ValueError):
            is_known = False
        if not is_known:
            before, mark, rest = text.rpartition("://")
            shown = before + mark + rest.rpartition("@")[2]  # there may be a password before it
            return InvalidRequest(
                f"{_variable(scheme)} must be the http:// or https:// address of a proxy, not "
                f"{quoted(shown, 200)}: correct it, or leave it out"
            )
    return None


def _wrong_exception() -> InvalidRequest | None:
    """Return the error of a host in NO_PROXY that httpx makes no pattern of."""
    for host in map(str.strip, getproxies().get("no", "").split(",")):
        try:
            httpx.URL(host if "://" in host else f"all://*{host}")
        except (httpx.InvalidURL, ValueError):
            if not _is_address(host):
                return InvalidRequest(
                    f"{_variable('no')} must hold names and addresses of hosts, with commas in "
                    f"between, not {quoted(host, 80)}: correct it, or leave that out"
                )
    return None


def _variable(scheme: str) -> str:
    """Return the name of the variable that a proxy was read from; lower case goes before upper."""
    lower = f"{scheme}_proxy"
    return lower if os.environ.get(lower) else lower.upper()


@contextmanager
def _as_interruptions() -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException:
        raise Interrupted("it sent nothing for too long") from None
    except httpx.HTTPError as problem:
        raise Interrupted(str(problem).strip()[:200] or type(problem).__name__) from None


def _without_queries(record: logging.LogRecord) -> bool:
    """Cut the queries of URLs from a line of a log: they may be signatures."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            _shown(one) if isinstance(one, httpx.URL) else one for one in record.args
        )
    return True


def _url(text: str, what: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not _has_host(url) or url.userinfo:
        raise InvalidRequest(
            f"{what} must be an https:// address without a user name, not {quoted(text, 200)}"
        )
    return url


def _has_host(url: httpx.URL) -> bool:
    """Return whether the host's name can be one: sockets refuse others, such as a..b."""
    try:
        return bool(url.host.encode("idna"))
    except UnicodeError:
        return False


def _next_url(at: httpx.URL, location: str) -> httpx.URL:
    try:
        url = at.join(location)
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    is_worse = at.scheme == "https" and url.scheme != "https"
    is_odd = url.scheme not in ("http", "https") or not _has_host(url) or url.userinfo
    if not location or is_odd or is_worse:
        raise _no_redirect(at, quoted(location, 80))
    return url


def _no_redirect(at: httpx.URL, location: str) -> DownloadError:
    return DownloadError(
        f"{_shown(at)} redirects to {location}, which is not followed: only an address as safe as "
        "the first is; check HF_ENDPOINT"
    )


def _shown(url: httpx.URL) -> str:
    """Return a URL without its query, which may be a signature that opens the file to anybody."""
    return str(url.copy_with(query=None))[:200]


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _is_private(origin: tuple[str, str, int | None]) -> bool:
    """Return whether nobody between here and there reads along."""
    scheme, host, _ = origin
    if scheme == "https" or host == "localhost":
        return True
    return _is_address(host) and ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else None
