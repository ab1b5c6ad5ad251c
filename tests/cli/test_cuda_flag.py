"""`--cuda` is short for `--device cuda` in every command that has it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="it is refused without a GPU")

COMMANDS = (
    ("generate", "--prompt", "Hello"),
    ("play", "demo"),
    ("serve", "demo", "--port", "0"),
    ("verify", "demo"),
    ("warmup", "demo"),
    ("bench", "latency", "--model", "demo"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_it_asks_for_the_first_gpu(command: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "inferno", *command, "--cuda"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: cuda was asked for, but ")
