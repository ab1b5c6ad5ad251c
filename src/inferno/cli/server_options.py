"""The options that `inferno serve` and `inferno worker` share: how a server behaves."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inferno.errors import InvalidRequest
from inferno.log_format import LogFormat

LogLevel = StrEnum("LogLevel", ["debug", "info", "warning", "error"])

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")]
ServedModelName = Annotated[
    list[str] | None,
    typer.Option(
        help="What `model` may be in requests; may be repeated.", show_default="MODEL's name"
    ),
]
ApiKeys = Annotated[
    list[str] | None,
    typer.Option(help="A key that requests need, KEY or SCOPE,SCOPE:KEY; may be repeated."),
]
ApiKeyFile = Annotated[
    Path | None, typer.Option(help="A file with such a key on each line.", show_default="none")
]
Certificate = Annotated[
    Path | None, typer.Option(help="Serve HTTPS with this certificate.", show_default="none")
]
CertificateKey = Annotated[
    Path | None, typer.Option(help="The certificate's key.", show_default="in the same file")
]
AllowedHosts = Annotated[
    list[str] | None, typer.Option(help="A Host that requests may name; may be repeated.")
]

MaxNumSeqs = Annotated[
    int, typer.Option("--max-num-seqs", "--max-batch-size", help="Sequences computed at once.")
]
MaxWait = Annotated[float, typer.Option(help="How long an idle engine waits for more requests.")]
MaxQueue = Annotated[int, typer.Option(help="Sequences that may wait for a place.")]
MaxQueueTokens = Annotated[int, typer.Option(help="Prompt tokens that may wait.")]
MaxBody = Annotated[int, typer.Option(help="Bytes of a request's body.")]
MaxConnections = Annotated[int, typer.Option(help="Connections open at once.")]

RequestTimeout = Annotated[float, typer.Option(help="Seconds a request may take.")]
HeaderTimeout = Annotated[
    float, typer.Option(help="Seconds a client has to send a request's head.")
]
BodyTimeout = Annotated[float, typer.Option(help="Seconds a client has to send a request's body.")]
WriteTimeout = Annotated[
    float, typer.Option(help="Seconds after which a client that doesn't read is left.")
]
KeepAlive = Annotated[float, typer.Option(help="Seconds an unused connection is kept.")]
SseKeepAlive = Annotated[
    float, typer.Option(help="Seconds of silence after which a stream gets a comment.")
]
DrainTimeout = Annotated[
    float, typer.Option(help="Seconds that open requests have to finish after SIGTERM.")
]
EngineTimeout = Annotated[
    str,
    typer.Option(
        help="Seconds for a step of the engine; auto is 20, or twenty times what it should take."
    ),
]

Lenient = Annotated[
    bool, typer.Option("--lenient", help="Ignore unknown request fields, and say so.")
]
TrustChatTemplates = Annotated[
    bool,
    typer.Option("--trust-request-chat-template", help="Requests may bring a chat template."),
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="What is logged.")]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format", help="How it is written.", show_default="text on a terminal, else json"
    ),
]
LogPrompts = Annotated[bool, typer.Option("--log-prompts", help="Log the beginnings of prompts.")]
OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        help="OpenTelemetry collector for a span per request, such as "
        "http://localhost:4318/v1/traces.",
        show_default="none",
    ),
]

MaxModelLen = Annotated[
    int | None, typer.Option(help="Context in tokens.", show_default="the model's")
]
NoPrefixCache = Annotated[
    bool, typer.Option("--no-prefix-cache", help="Compute every prompt from its beginning.")
]
FakeModel = Annotated[
    Path | None, typer.Option(help="Play this script instead of a model.", hidden=True)
]


def seconds_or_auto(option: str, given: str) -> float | None:
    """A number of seconds, or None for `auto`; InvalidRequest, which names the option, else."""
    try:
        return None if given == "auto" else float(given)
    except ValueError:
        raise InvalidRequest(
            f"{option} must be auto or a number of seconds, not {given!r}",
            param=option.removeprefix("--").replace("-", "_"),
        ) from None


def model_name(model: str) -> str:
    """What a model is called: an id as it is, a folder by its last part, as answers carry it."""
    path = Path(model).expanduser()
    return path.resolve().name if path.is_dir() else model
