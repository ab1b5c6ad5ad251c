"""What the environment says wrongly is refused by its name, and matters only where it is used."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from inferno.cli.errors import describe
from inferno.errors import DownloadError, InvalidRequest
from inferno.home import home_folder
from inferno.hub.client import HubClient, Patience
from inferno.hub.url import WantedModel, parse_model
from tests.hub.loopback import Handler, Hub

ELSEWHERE = "https://hub.invalid"


@pytest.mark.parametrize(
    ("variable", "value", "shown"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1", "socks5://127.0.0.1:1"),
        ("http_proxy", "socks4://127.0.0.1:1", "socks4://127.0.0.1:1"),
        ("HTTPS_PROXY", "foo://x", "foo://x"),
        ("HTTPS_PROXY", "http://me:secret@127.0.0.1:notaport", "http://127.0.0.1:notaport"),
        ("NO_PROXY", "localhost, ::1, *.x, fd00::/8", "fd00::/8"),
        ("no_proxy", "[::1]", "[::1]"),
        ("SSL_CERT_FILE", "/nonexistent", "/nonexistent"),
        ("SSL_CERT_FILE", __file__, __file__),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "abc", "abc"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "-5", "-5"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "9" * 30, "9" * 30),
    ],
)
def test_a_variable_that_can_not_be_honoured_is_named(
    variable: str, value: str, shown: str, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    # Other tests share one context, whatever the variables say.
    monkeypatch.setattr("httpx._transports.default.create_ssl_context", httpx.create_ssl_context)
    with pytest.raises(InvalidRequest) as caught:
        HubClient(ELSEWHERE, None, Patience())
    assert str(caught.value).startswith(f"{variable} must ")
    assert f"not {shown!r}" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["http://a..b", f"http://{'a' * 300}.example", "http://[::1"])
def test_a_hub_of_no_host_is_named(host: str, hub: Hub) -> None:
    with pytest.raises(InvalidRequest, match="HF_ENDPOINT must be an https:// address"):
        HubClient(host, None, Patience())


def test_a_redirect_to_no_host_is_told_as_one(hub: Hub, client: HubClient) -> None:
    def away(handler: Handler) -> bool:
        handler.reply(302, b"", {"location": "http://a..b/x"})
        return True

    hub.api_fault = away
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1.* redirects to 'http://a\.\.b/x'"):
        client.listing("a/model", "main")


def run(*arguments: str, home: Path, **variables: str) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [sys.executable, "-m", "inferno", *arguments],
        env={**kept, "INFERNO_HOME": str(home), "HF_HUB_OFFLINE": "0", **variables},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HF_HUB_DOWNLOAD_TIMEOUT", "abc"),
        ("HF_HUB_ETAG_TIMEOUT", "abc"),
        ("HF_ENDPOINT", "http://[::1"),
    ],
)
@pytest.mark.parametrize("command", [["list"], ["show", "demo"]])
def test_what_is_local_needs_no_variable_of_a_hub(
    command: list[str], variable: str, value: str, tmp_path: Path
) -> None:
    assert run(*command, home=tmp_path, **{variable: value}) == (0, "")


@pytest.mark.parametrize(
    ("variable", "value"), [("HF_HUB_DOWNLOAD_TIMEOUT", "abc"), ("HF_ENDPOINT", "http://[::1")]
)
def test_a_download_names_the_variable_of_its_hub(
    variable: str, value: str, tmp_path: Path
) -> None:
    code, said = run("download", "a/model", home=tmp_path, **{variable: value})
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(f"error: {variable} must be ")
    assert said.rstrip().endswith(f"not {value!r}")


def test_only_what_standard_output_fails_at_is_called_its(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as caught:
        _write_beyond_limit(tmp_path / "x")
    assert describe(caught.value) == (
        "a file can't be written: File too large; look at `ulimit -f`"
    )
    full = OSError(28, "No space left on device")
    assert describe(full).startswith("the disk is full: No space left on device; ")
    assert describe(OSError(24, "Too many open files")) == "Too many open files"
    assert describe(FileNotFoundError(2, "No such file", "x")) == "x: No such file"


def _write_beyond_limit(path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open(path, "wb", buffering=0) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            file.write(bytes(100))
            file.write(b"x")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["tree", "resolve", "blob"])
@pytest.mark.parametrize("branch", ["refs%2Fpr%2F1", "feature%2fx"])
def test_a_branch_may_have_slashes(kind: str, branch: str) -> None:
    file = "" if kind == "tree" else "/x/q4.gguf"
    wanted = parse_model(f"https://huggingface.co/a/b/{kind}/{branch}{file}", None, None)
    revision = branch.replace("%2F", "/").replace("%2f", "/")
    assert wanted == WantedModel("a/b", revision, file[1:] or None)


@pytest.mark.parametrize(
    "path",
    [
        *("a/b/tree/%2e%2e%2Fx", "a/b/tree/x%2F..%2Fy", "a/b/tree/x%00", "a/b/tree/x%2F%2Fy"),
        *("a/b/tree/%2Fx", "a%2Fb%2Fc/d", "a/b%2Ftree", "a/b/tree/x%FF", "a/b/tree/-x"),
        *("a/b/resolve/main/..%2Fx.gguf", "a/b/resolve/main/%2Fx.gguf"),
    ],
)
def test_a_branch_that_is_no_name_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="is no URL of a model"):
        parse_model(f"https://huggingface.co/{path}", None, None)


def test_the_home_of_the_user_is_known_by_its_sign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, expected in {"~/inf": tmp_path / "inf", "~": tmp_path, "a/~": Path("a/~")}.items():
        monkeypatch.setenv("INFERNO_HOME", given)
        assert home_folder() == expected


# --- in Python, without a command --------------------------------------------------------------

MODULES = ["cached", "client", "environment", "fetch", "local", "url", "web"]


def python(code: str, home: Path, **variables: str) -> str:
    """Return the last line that Python prints of an error, with an empty store and no network."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "INFERNO_HOME": str(home), "HF_HOME": str(home / "hf"), **variables},
        capture_output=True,
        text=True,
    )
    return done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("value", ["abc", "1.5", "9" * 400, "9" * 5000])
@pytest.mark.parametrize("variable", ["HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"])
def test_a_program_gets_an_error_of_ours_for_a_time_that_is_none(
    variable: str, value: str, tmp_path: Path
) -> None:
    code = "from inferno.hub.find import find_model_folder; find_model_folder('a/model')"
    said = python(code, tmp_path, HF_HUB_OFFLINE="0", **{variable: value})
    assert said.startswith(f"inferno.errors.InvalidRequest: {variable} must be a whole number of ")
    assert f"not '{value[:20]}" in said
    assert len(said) < 200


def test_a_program_gets_an_error_of_ours_for_a_hub_of_no_host(tmp_path: Path) -> None:
    code = "import inferno.hub; inferno.hub.fetch_model('a/model', None)"
    said = python(code, tmp_path, HF_HUB_OFFLINE="0", HF_ENDPOINT="http://[::1")
    assert said.startswith("inferno.errors.InvalidRequest: HF_ENDPOINT must be an https:// address")


@pytest.mark.parametrize("variable", ["HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"])
def test_what_is_imported_needs_no_variable_of_a_hub(variable: str, tmp_path: Path) -> None:
    for module in MODULES:
        code = f"import os, inferno.hub.{module}; assert os.environ[{variable!r}] == 'abc'"
        assert python(code, tmp_path, **{variable: "abc"}) == ""
