"""How a hub is asked: by no proxy if it is here, with patience that ends, and never for nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.errors import DownloadError, ModelError
from inferno.hub.client import HubClient, Patience
from inferno.hub.fetch import download, plan_download
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from inferno.hub.url import is_elsewhere, parse_model
from tests.hub.loopback import Handler, Hub, redirect, running
from tests.patience import PATIENCE
from tests.tiny import save_tiny_model

NAME = "a/model"


@pytest.fixture
def tiny(hub: Hub, tmp_path: Path) -> Hub:
    folder = tmp_path / "own" / "tiny"
    folder.mkdir(parents=True)
    save_tiny_model(folder)
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return hub


def fetch(client: HubClient, store: Store) -> Entry:
    return download(client, store, plan_download(client, store, NAME))


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy", "HTTP_PROXY"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_this_machine_is_never_asked_by_a_proxy(
    host: str, variable: str, hub: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Hub()) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        client = HubClient(
            hub.url.replace("127.0.0.1", host),
            "hf_secret",
            Patience(stall=PATIENCE, attempts=1, sleep=lambda _: None),
        )
        with contextlib.closing(client), contextlib.suppress(ModelError):  # 127.0.0.2 is not there
            fetch(client, store)
        assert proxy.asked == []


def test_a_hub_that_asks_to_wait_for_long_is_left(
    hub: Hub, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []
    num_asked: dict[str, int] = {}

    def busy(handler: Handler, content: bytes) -> bool:
        num_asked[handler.path] = num_asked.get(handler.path, 0) + 1
        if num_asked[handler.path] % 5:
            handler.reply(503, b"", {"retry-after": "999999"})
        return bool(num_asked[handler.path] % 5)

    hub.files |= {f"{number}.json": b"{}" for number in range(20)}
    hub.fault = busy
    client = HubClient(hub.url, None, Patience(stall=PATIENCE, sleep=slept.append))
    with (
        contextlib.closing(client),
        pytest.raises(DownloadError, match=r"asked to wait .* for 600"),
    ):
        fetch(client, store)
    assert sum(slept) <= 600
    assert "asks to wait (status 503): going on in 60 seconds" in caplog.text


def test_a_query_is_not_logged(
    hub: Hub, client: HubClient, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def signed(handler: Handler, content: bytes) -> bool:
        if "/resolve/" not in handler.path:
            return False
        name = handler.path.rsplit("/", 1)[1]
        handler.reply(302, b"", {"location": f"{hub.url}/cdn/{name}?X-Amz-Signature=SECRET"})
        return True

    hub.fault = signed
    with caplog.at_level(logging.INFO, logger="httpx"):
        fetch(client, store)
    assert "/cdn/config.json" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("status", [401, 403, 404])
def test_only_the_hub_speaks_of_licences_and_names(
    status: int, hub: Hub, client: HubClient, store: Store
) -> None:
    def refuses(handler: Handler, content: bytes) -> bool:
        handler.reply(status, b"", {"x-error-code": "GatedRepo"})
        return True

    with running(Hub(fault=refuses)) as cdn:
        hub.fault = redirect(cdn.url)
        with pytest.raises(DownloadError, match=f"{cdn.url}/.*answers with status {status}"):
            fetch(client, store)


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_model_that_is_here_is_found_without_its_hub(
    is_offline: bool, hub: Hub, client: HubClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = fetch(client, store)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", is_offline)
    if not is_offline:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
        monkeypatch.setattr("inferno.hub.fetch.Patience", partial(Patience, attempts=1))
    done = CliRunner().invoke(app, ["download", NAME])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{entry.folder}\n"
    assert "is here, as it was when its hub was last asked" in done.stderr
    done = CliRunner().invoke(app, ["download", "a/other"])
    assert (done.exit_code, done.stdout) == (1, "")


def test_a_model_of_the_web_is_found_without_its_site(
    tiny: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Hub(files=tiny.files)) as web:
        assert CliRunner().invoke(app, ["download", f"{web.url}/m/cdn"]).exit_code == 0
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        done = CliRunner().invoke(app, ["download", f"{web.url}/m/cdn"])
    assert (done.exit_code, done.stdout) == (0, f"{store.entries()[0].folder}\n")


@pytest.mark.parametrize(
    "page",
    [
        *("https://hf.co/a/b", "https://HuggingFace.co/a/b", "https://huggingface.co:443/a/b/"),
        *("https://mirror.example/hf/a/b", "https://MIRROR.example:443/hf/a/b/tree/main"),
    ],
)
def test_pages_of_the_hub_are_known(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example/hf")
    assert not is_elsewhere(page)
    assert parse_model(page, None, None).name == "a/b"


@pytest.mark.parametrize(
    "page",
    [
        *("https://mirror.example/a/b", "https://mirror.example/hfx/a/b"),
        *("https://huggingface.co:444/a/b", "https://me@huggingface.co/a/b"),
    ],
)
def test_other_addresses_are_elsewhere(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example/hf")
    assert is_elsewhere(page)


# --- the plan before the question ------------------------------------------------------------


def ask(*arguments: str, typed: str = "n\n") -> tuple[int, str]:
    asked = ["generate", "-p", "x", "--max-tokens", "2", "-m", NAME, *arguments]
    done = CliRunner().invoke(app, asked, input=typed)
    return done.exit_code, done.stderr


def test_the_plan_is_shown_before_the_question(
    tiny: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.cli.download._may_ask", lambda: True)
    _, said = ask()
    before, question, _ = said.partition("Download it?")
    assert question
    assert "weights" in before
    assert re.search(r"^KV cache, \w+ {3,}", before, re.MULTILINE)
    assert store.partials() == []


def test_what_can_not_fit_is_refused_before_it_is_fetched(
    tiny: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.cli.download._may_ask", lambda: True)
    code, said = ask("--memory", "20MB")
    assert (code, "Download it?" in said) == (1, False)
    assert "the model doesn't fit in --memory 20MB" in said
    code, said = ask("--memory", "20MB", "--yes")
    assert (code, "the model doesn't fit in --memory 20MB" in said) == (1, True)
    assert store.partials() == []


def test_what_does_not_run_is_refused_before_the_question(
    tiny: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.cli.download._may_ask", lambda: True)
    config = json.loads(tiny.files["config.json"])
    config["architectures"] = ["OddForCausalLM"]
    tiny.files["config.json"] = json.dumps(config).encode()
    code, said = ask()
    assert (code, "Download it?" in said) == (1, False)
    assert "OddForCausalLM" in said


def test_a_shard_that_is_missing_is_told_before_the_question(
    tiny: Hub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno.cli.download._may_ask", lambda: True)
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    tiny.files[names[0]] = tiny.files.pop("model.safetensors")
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    tiny.files["model.safetensors.index.json"] = json.dumps(index).encode()
    code, said = ask()
    assert (code, "Download it?" in said) == (1, False)
    assert f"a/model lacks '{names[1]}'" in said
