"""The server's options are checked when they are put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferno.errors import InvalidRequest
from inferno.server.settings import ServerSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("port", -1), ("port", 65536), ("port", "80"), ("port", True), ("host", "")),
        *(("host", "a b"), ("host", "http://x"), ("max_queue", -1), ("max_queue_tokens", 0)),
        *(("max_body", 0), ("max_body", 2**40), ("max_connections", 0), ("max_wait_ms", -1)),
        *(("max_wait_ms", float("nan")), ("request_timeout", 0), ("header_timeout", -1)),
        *(("body_timeout", float("inf")), ("write_timeout", True), ("drain_timeout", None)),
        *(("keep_alive", 0), ("sse_keep_alive", "15"), ("log_level", "loud"), ("log_format", "")),
        *(("allowed_hosts", ("a/b",)), ("allowed_hosts", ["a"]), ("cors_origins", ("my.page",))),
        *(("cors_origins", ("http://a/b",)), ("served_model_names", ("",))),
        *(("served_model_names", ("a\nb",)), ("ssl_certfile", Path("/nowhere/cert"))),
    ],
)
def test_bad_values_are_refused_by_the_name_of_their_option(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="--" + _option(name)) as refused:
        ServerSettings(**{name: value})
    assert refused.value.param == name


def _option(name: str) -> str:
    may_be_repeated = name in ("allowed_hosts", "cors_origins", "served_model_names")
    return name.replace("_", "-").removesuffix("s" if may_be_repeated else "") + " must be"


def test_a_key_needs_its_certificate(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    with pytest.raises(InvalidRequest, match="--ssl-certfile"):
        ServerSettings(ssl_keyfile=file)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True)),
        *(("localhost", True), ("LocalHost.", True), ("0.0.0.0", False), ("::", False)),
        *(("192.168.0.1", False), ("localhost.evil.com", False)),
    ],
)
def test_loopback_is_known(host: str, is_loopback: bool) -> None:
    assert ServerSettings(host=host).is_loopback == is_loopback


def test_a_unix_socket_is_not_loopback() -> None:
    assert not ServerSettings(uds=Path("/tmp/x")).is_loopback
