"""A hub on loopback and a store in a folder of the test's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from inferno.hub.client import HubClient, Patience
from inferno.hub.store import Store
from tests.hub.loopback import Hub, running
from tests.patience import PATIENCE
from tests.tiny import save_tiny_model

TOKEN = "hf_secret"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The hub of this user, who has a token, an empty cache and a store of their own."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with running(Hub()) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "models")


@pytest.fixture
def client(hub: Hub) -> Iterator[HubClient]:
    """A client that never sleeps, and waits long only for what must come."""
    client = HubClient(hub.url, TOKEN, Patience(stall=PATIENCE, sleep=lambda _: None))
    yield client
    client.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, which takes longer to make than most tests here."""
    folder = tmp_path_factory.mktemp("saved")
    save_tiny_model(folder)
    return folder


@pytest.fixture
def tiny(tmp_path: Path, saved: Path) -> Path:
    """A copy of it that the test may change."""
    return shutil.copytree(saved, tmp_path / "own" / "tiny")
