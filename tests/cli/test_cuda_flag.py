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
def test_both_ask_for_the_first_gpu(command: tuple[str, ...]) -> None:
    short, long = (_last_words(*command, *asked) for asked in (["--cuda"], ["--device", "cuda"]))
    assert short == long
    code, words = short
    assert code == 1
    assert words.startswith("error: cuda was asked for, but ")


def _last_words(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "inferno", *arguments]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return ended.returncode, ended.stderr.splitlines()[-1]
