"""Servers that live as long as the tests of a process: the demo model, and one that echoes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inferno import LLM
from inferno.client.process import ProcessClient
from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from tests.server.hosting import Host, hosting


@pytest.fixture(scope="session")
def demo() -> Iterator[Host]:
    """The demo model, whose engine is in a process of its own."""
    options = EngineOptions(model=MODEL_FOLDERS["demo"], threads=1)
    with hosting(lambda: ProcessClient(options)) as host:
        yield host


@pytest.fixture(scope="session")
def echo() -> Iterator[Host]:
    """An engine that answers each prompt with its own tokens, and takes no time over it."""
    script = Script(vocab_size=2048, max_model_len=1024)
    with hosting(lambda: ScriptedClient(script)) as host:
        yield host


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """The demo model without a server, to compare with."""
    with LLM("demo", threads=1) as llm:
        yield llm
