"""Is the memory that a plan tells what a process takes, while it loads and once its cache is full?

    python benchmarks/plan_memory.py [--folder FOLDER] [--settings NAME,...] [MODEL ...]

Each model runs in a process of its own with each setting: it loads, then computes prompts until
every block of its cache was written, in steps as full as they come. /proc/PID/smaps_rollup is read
every few milliseconds. What counts is the proportional set size without pages of files.
Without MODEL they are the embedded one, and random ones that plan_models.py writes to FOLDER.
Packed weights of earlier runs are not used: each run has an INFERNO_HOME of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plan_models

from inferno.hub.find import find_model_folder
from inferno.machine import available_memory
from inferno.options import EngineOptions
from inferno.plan.memory import Plan, make_plan
from inferno.plan.shape import read_shape

COMMON: dict[str, Any] = {"max_num_seqs": 8, "max_model_len": 512}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
    "kv int8": {"kv_dtype": "int8", "num_blocks": 300},
    "steps of 1024": {"max_num_batched_tokens": 1024},
    "int4 in steps of 1024": {"quantize": "int4", "max_num_batched_tokens": 1024},
}
PAUSE = 0.005  # seconds between two readings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "plan_models")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    models = given.models or ["demo", *_written(given.folder)]
    print(f"{'model':<22}{'setting':<22}{'loading: plan':>14}{'took':>8}{'off':>7}", end="")
    print(f"{'full: plan':>12}{'took':>8}{'off':>7}   (MB)")
    for model in models:
        for name, setting in SETTINGS.items():
            if name in given.settings.split(","):
                _compare(str(model), name, COMMON | setting)


def _written(folder: Path) -> Iterator[Path]:
    for name in plan_models.SHAPES:
        yield plan_models.write_model(name, folder / name)


def _compare(model: str, name: str, setting: dict[str, Any]) -> None:
    path = find_model_folder(model)
    options = EngineOptions(model=path, **setting)
    plan = make_plan(read_shape(path), options, available_memory())
    loading, full = _peaks(model, setting, plan)
    print(f"{'/'.join(Path(model).parts[-2:])[-21:]:<22}{name:<22}", end="")
    print(f"{plan.loading_bytes / 1e6:>14.1f}{loading / 1e6:>8.1f}", end="")
    print(f"{plan.loading_bytes / loading - 1:>+7.1%}", end="")
    print(f"{plan.total_bytes / 1e6:>12.1f}{full / 1e6:>8.1f}", end="")
    print(f"{plan.total_bytes / full - 1:>+7.1%}", flush=True)


def _peaks(model: str, setting: dict[str, Any], plan: Plan) -> tuple[int, int]:
    """Return the most bytes until the model is loaded, and until the cache was written."""
    num_tokens = plan.num_blocks * plan.cache.block_size
    job = json.dumps([model, setting, num_tokens, plan.context])
    with tempfile.TemporaryDirectory() as home:
        child = subprocess.Popen(
            [sys.executable, __file__, "--run", job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "INFERNO_HOME": home},
        )
        assert child.stdin is not None
        assert child.stdout is not None
        peaks = [0, 0]
        stage, is_over = 0, threading.Event()

        def watch() -> None:
            while not is_over.wait(PAUSE):
                try:
                    peaks[stage] = max(peaks[stage], _set_size(child.pid))
                except (OSError, ValueError):  # it has ended
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        for line in child.stdout:
            stage = 1  # what is prefaulted from now on belongs to the cache
            if line.strip() == "full":
                time.sleep(10 * PAUSE)
                is_over.set()
            child.stdin.write("\n")
            child.stdin.flush()
        is_over.set()
        watcher.join()
        if child.wait() != 0:
            sys.exit(f"{model} ended with exit code {child.returncode}")
    return peaks[0], peaks[1]


def _set_size(process: int) -> int:
    """Return the proportional set size without pages of files."""
    sizes = {}
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        key, *rest = line.split()
        if key in ("Pss_Anon:", "Pss_Shmem:"):
            sizes[key] = int(rest[0]) * 1024
    return sum(sizes.values())


def run(model: str, setting: dict[str, Any], num_tokens: int, context: int) -> None:
    """Load the model and write its whole cache; says when each is done, and waits to go on."""
    # In the process that is measured alone: the other one has no PyTorch.
    from inferno import LLM, SamplingParams  # noqa: PLC0415

    llm = LLM(model, **setting)
    _say("loaded")
    rng, length = random.Random(0), context - 4
    vocab_size = llm.logits([1, 2]).shape[1]
    prompts = [
        [rng.randrange(3, vocab_size) for _ in range(length)]
        for _ in range(-(-num_tokens // length) + 1)
    ]
    params = SamplingParams(max_tokens=2, temperature=0.8, ignore_eos=True)
    llm.generate(prompts, params)
    _say("full")


def _say(what: str) -> None:
    print(what, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(*json.loads(sys.argv[2]))
    else:
        main()
