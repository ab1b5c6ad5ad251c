"""What every test runs under: one thread each, as tests run side by side, and no network."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace
from functools import cache
from typing import Any

import httpx._transports.default
import pytest
import torch
import typer.testing

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined, so before they are

from inferno import ops
from inferno.engine.sampling import compiling
from inferno.ops import reference
from tests.patience import PATIENCE

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# A shell's background jobs ignore it, and tests of Ctrl+C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Torch's loggers, forty and more, pass nothing on to the root's. To each that does not, pytest adds
# its handlers before every test and takes them away after it, which takes longer than most tests.
for _logger in logging.root.manager.loggerDict.values():
    if isinstance(_logger, logging.Logger) and _logger.name.startswith("torch"):
        _logger.propagate = True

# Each client would read the file of certificates again, which takes longer than most requests here.
_transports: Any = httpx._transports.default
_transports.create_ssl_context = cache(_transports.create_ssl_context)
# Each call of a command would make all commands again, which takes longer than most of them here.
_runners: Any = typer.testing
_runners._get_command = cache(_runners._get_command)

# Fixtures of a module run before those of its first test.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spinning thread pools on shared cores cost ten times what they bring."""
    monkeypatch.setattr("inferno.engine.build.num_usable_cores", lambda: 1)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _patient_grammars(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a grammar may take to be compiled is for machines that aren't slow and busy at once."""
    bounds = replace(compiling._BOUNDS, cpu_seconds=PATIENCE, wall_seconds=(PATIENCE, PATIENCE))
    monkeypatch.setattr(compiling, "_BOUNDS", bounds)
    monkeypatch.setattr(compiling, "_MATCHER_SECONDS", PATIENCE)


@pytest.fixture
def reference_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are loaded in this test run on the reference.

    For MXFP4 against `transformers`: the compiled kernels quantize the activations that meet it.
    """
    monkeypatch.setitem(ops.BACKENDS, "cpu", reference)
