"""How a server behaves: every option of `inferno serve` that is not the engine's."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from inferno.client.spawned import EngineLog
from inferno.errors import InvalidRequest
from inferno.http_post import parse_target
from inferno.log_format import LogFormat
from inferno.server.api_keys import ApiKey

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = tuple(LogFormat)
MIB = 1 << 20
_REPEATED = ("allowed_hosts", "cors_origins", "served_model_names")  # --allowed-host, and so on
_MAX_SECONDS = 7 * 24 * 3600.0
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})|\[?[0-9A-Fa-f:.]{2,45}\]?")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]{0,30}://[^\s/]{1,255}|null")
_URL = re.compile(r"https?://[!-~]{1,2000}")
_MODEL_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything that shapes a server; bad values raise InvalidRequest, which names the option.

    host, port      where it listens; port 0 takes a free one. uds: a Unix socket instead of both.
    ssl_certfile, ssl_keyfile   TLS; the key may be in the certificate's file.
    api_keys        from api_keys.read_keys; none leaves every route open but /debug.
    allowed_hosts   names that a Host header may have besides those of a loopback bind; elsewhere
                    any name is taken unless some are given.
    cors_origins    origins whose pages may call the server; `*` is any. Off without.
    served_model_names  what `model` may be, the first of which answers carry; none is the folder's.
    max_queue       samples that may wait for a place in the engine.
    max_queue_tokens    prompt tokens of all requests that have no token yet.
    max_wait_ms     an idle engine waits so long for more requests before its first step.
    request_timeout seconds from the last byte of a request's body to its last token.
    max_body        bytes of a request's body.
    max_connections sockets open at once; beyond it the longest idle one is closed.
    header_timeout, body_timeout    seconds to send a whole request head, and a whole body.
    write_timeout   seconds in which a client that owes reading must read something.
    keep_alive      seconds an unused connection is kept.
    sse_keep_alive  seconds of silence after which a stream gets a comment.
    drain_timeout   seconds that open requests have to finish after SIGTERM.
    engine_timeout  seconds that an engine may take for a step, or without news of its loading,
                    before it is replaced; None: 60 for news of its loading, and for a step 20,
                    or twenty times as long as it is expected to take, if that is more.
    lenient         unknown request fields are named in x-inferno-ignored instead of refused.
    per_request_metrics answers carry `metrics`: times and rates of this request.
    trust_request_chat_template a request may bring its own chat template.
    otlp_endpoint   the URL of an OpenTelemetry collector that gets a span for each request.
    log_prompts     log lines carry the first characters of prompts.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    uds: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    api_keys: tuple[ApiKey, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    served_model_names: tuple[str, ...] = ()
    max_queue: int = 256
    max_queue_tokens: int = 1_000_000
    max_wait_ms: float = 0.0
    request_timeout: float = 3600.0
    max_body: int = 8 * MIB
    max_connections: int = 4096
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    write_timeout: float = 30.0
    keep_alive: float = 30.0
    sse_keep_alive: float = 15.0
    drain_timeout: float = 30.0
    engine_timeout: float | None = None
    lenient: bool = False
    per_request_metrics: bool = False
    trust_request_chat_template: bool = False
    otlp_endpoint: str | None = None
    log_prompts: bool = False
    log_level: str = "info"
    log_format: str = "json"

    def __post_init__(self) -> None:
        _check_text("host", self.host, _HOST, "a host name or an address")
        _check_integer("port", self.port, 0, 65535)
        _check_files(self.ssl_certfile, self.ssl_keyfile)
        _check_texts("allowed_hosts", self.allowed_hosts, _HOST, "host names without a port")
        _check_texts("cors_origins", self.cors_origins, _ORIGIN, "origins, like http://my.page")
        _check_texts("served_model_names", self.served_model_names, _MODEL_NAME, "model names")
        _check_integer("max_queue", self.max_queue, 0, 1_000_000)
        _check_integer("max_queue_tokens", self.max_queue_tokens, 1, 2**40)
        _check_integer("max_body", self.max_body, 1, 1024 * MIB)
        _check_integer("max_connections", self.max_connections, 1, 1_000_000)
        _check_number("max_wait_ms", self.max_wait_ms, 0.0, 60_000.0)
        for name in ("request", "header", "body", "write", "drain"):
            _check_seconds(f"{name}_timeout", getattr(self, f"{name}_timeout"))
        _check_seconds("keep_alive", self.keep_alive)
        _check_seconds("sse_keep_alive", self.sse_keep_alive)
        if self.engine_timeout is not None:
            _check_number("engine_timeout", self.engine_timeout, 0.1, _MAX_SECONDS)
        if self.otlp_endpoint is not None:
            _check_text("otlp_endpoint", self.otlp_endpoint, _URL, "an http:// or https:// URL")
            parse_target(self.otlp_endpoint, option="--otlp-endpoint")
        _check_choice("log_level", self.log_level, LOG_LEVELS)
        _check_choice("log_format", self.log_format, LOG_FORMATS)

    @property
    def engine_log(self) -> EngineLog:
        """How engines write their log: as we write ours."""
        return EngineLog(self.log_format, self.log_level)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect, so that a foreign Host is a browser's trick."""
        if self.uds is not None:
            return False  # and no browser reaches it
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host.lower().rstrip(".") == "localhost"


def _check_text(name: str, value: object, pattern: re.Pattern[str], expected: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _refuse(name, value, expected)


def _check_texts(name: str, value: object, pattern: re.Pattern[str], expected: str) -> None:
    if not isinstance(value, tuple):
        raise _refuse(name, value, expected)
    for text in value:
        _check_text(name, text, pattern, expected)


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _refuse(name, value, f"an integer from {low} to {high}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _refuse(name, value, f"a number from {low:g} to {high:g}")


def _check_seconds(name: str, value: object) -> None:
    _check_number(name, value, 0.01, _MAX_SECONDS)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise _refuse(name, value, "one of " + ", ".join(choices))


def _check_files(certificate: Path | None, key: Path | None) -> None:
    if key is not None and certificate is None:
        raise _refuse("ssl_certfile", None, "given where --ssl-keyfile is")
    for name, file in (("ssl_certfile", certificate), ("ssl_keyfile", key)):
        if file is not None and not file.is_file():
            raise _refuse(name, str(file), "a file that exists")


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    option = "--" + name.replace("_", "-").removesuffix("s" if name in _REPEATED else "")
    return InvalidRequest(f"{option} must be {expected}, not {value!r}", param=name)
