"""What a worker logs, and a worker that echoes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from inferno.client.scripted import Answer, Script, ScriptedClient
from tests.server.worker.hosting import Host, Lines, working


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What is logged meanwhile."""
    logger, handler = logging.getLogger("inferno.worker"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture(scope="package")
def echo() -> Iterator[Host]:
    """Answers each prompt with its own tokens."""
    script = Script(vocab_size=2048, max_model_len=1024)
    with working(lambda: ScriptedClient(script)) as host:
        yield host


@pytest.fixture(scope="package")
def endless() -> Iterator[Host]:
    """Answers without an end, a token each 10 ms, one job at a time."""
    answer = Answer(token_ids=(300, 301), is_endless=True, delay=0.01)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=1024)
    with working(lambda: ScriptedClient(script), max_queue=0) as host:
        yield host
