"""Processes that download, use, remove and prune one model at once: nobody gets half of it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.hub.loopback import FILES, Hub
from tests.patience import PATIENCE

# Does one thing after the other, as its random numbers say. What it uses must stay whole meanwhile.
PROGRAM = """
import hashlib, json, random, sys
from inferno.errors import ModelError
from inferno.hub.fetch import fetch_model
from inferno.hub.store import Store

store, due = Store.of_user(), json.loads(sys.argv[2])
draw = random.Random(sys.argv[1])

def use():
    folder = fetch_model("a/model", None)
    for _ in range(5):
        found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in due}
        assert found == due
    for entry in store.entries():
        store.let_go(entry.name, entry.revision)

def remove():
    for entry in store.entries():
        store.remove(entry)

def prune():
    for partial in store.partials():
        store.remove_partial(partial)

done = refused = 0
for _ in range(25):
    try:
        draw.choice((use, use, remove, prune))()
        done += 1
    except ModelError as problem:
        assert "in use" in str(problem) or "was removed while" in str(problem), problem
        refused += 1
print(done, refused)
"""


def test_who_uses_a_model_has_all_of_it_whatever_others_do(hub: Hub, tmp_path: Path) -> None:
    files = {name: FILES[name] for name in ("config.json", "tokenizer.json", "model.safetensors")}
    hub.files = files
    due = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(tmp_path / "hf"),
        "INFERNO_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(number), json.dumps(due)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    ended = [process.communicate(timeout=4 * PATIENCE) for process in processes]
    for process, (_, err) in zip(processes, ended, strict=True):
        assert process.returncode == 0, err[-2000:]
    assert sum(int(out.split()[0]) for out, _ in ended) > 25
