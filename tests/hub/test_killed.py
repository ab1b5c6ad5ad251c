"""Downloads and removals that are killed at any point leave no half a model, and can go on."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.loopback import FILES, Hub, gguf
from tests.patience import PATIENCE

# Forks a child for each point at which a file, or a name, is written or removed: there it ends, as
# `kill -9` would end it. After each death, and in the end, it looks at the store.
PROGRAM = """
import hashlib, json, os, sys
import httpx._transports.default as _transports
from inferno.errors import ModelError
from inferno.hub import transfer
from inferno.hub.fetch import download, fetch_model, hub_client, local_entry, plan_download
from inferno.hub.store import Store

store, due = Store.of_user(), json.loads(sys.argv[2])
TEMPLATE = "additional_chat_templates/tool_use.jinja"
CALLS = ("replace", "unlink", "mkdir", "rmdir", "fsync", "link", "open", "utime", "close")

def die_at(point, when):
    left = [point]
    def patched(real):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0 and when == "before":
                os._exit(9)
            result = real(*arguments, **options)
            if left[0] == 0:
                os._exit(9)
            return result
        return call
    for name in CALLS:
        setattr(os, name, patched(getattr(os, name)))
    transfer._Part.write = patched(transfer._Part.write)

def run(action):
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except ModelError as problem:
            print("refused:", problem, file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def get(include=None):
    with hub_client("a/model") as client:
        return download(client, store, plan_download(client, store, "a/model", None, include))

def add():
    return get("*.gguf")

def is_whole(folder):
    files = [path for path in folder.iterdir() if path.is_file()]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return found == due or (what == "add" and found.items() >= due.items())

def look():
    for entry in store.entries():
        assert is_whole(entry.folder), sorted(entry.folder.rglob("*"))
        assert not entry.changed()
    found = local_entry(store, "a/model", None)
    assert is_whole(found.folder) if found is not None else what != "add"

def get_and_look():
    entry = get()
    assert is_whole(entry.folder), sorted(entry.folder.rglob("*"))
    assert local_entry(store, "a/model", None) == entry
    assert store.partials() == []

def add_and_look():
    entry = add()
    assert {file.name for file in entry.files} == {*due, "x.gguf", TEMPLATE}
    assert is_whole(entry.folder)
    assert store.partials() == []

def remove():
    for entry in store.entries():
        store.remove(entry)
    for partial in store.partials():
        store.remove_partial(partial)

def know(create_ssl_context=_transports.create_ssl_context):
    context = create_ssl_context()
    _transports.create_ssl_context = lambda *_, **__: context

what, points = sys.argv[1], 0
# What is imported and read here is not imported and read in each child.
know()
get_and_look()
remove()
for when in ("before", "after"):
    point, code = 0, 9
    while code == 9:
        point += 1
        if what != "get":
            assert run(get) == 0
        def action():
            die_at(point, when)
            {"get": get, "add": add, "remove": remove}[what]()
        code = run(action)
        assert run(look) == 0, (when, point)
        if what == "remove" or point % 3 == 0:  # the others go on with what the last one left
            assert run(add_and_look if what == "add" else get_and_look) == 0, (when, point)
        if what != "remove" and point % 3 == 0:
            assert run(remove) == 0
    assert code == 0, code
    points += point
    assert run(get_and_look) == 0
    assert run(remove) == 0
print(points)
"""


@pytest.mark.parametrize("what", ["get", "add", "remove"])
def test_a_death_at_any_point_leaves_no_half_a_model(what: str, hub: Hub, tmp_path: Path) -> None:
    files = {name: FILES[name] for name in ("config.json", "tokenizer.json", "model.safetensors")}
    hub.files = files | {"additional_chat_templates/tool_use.jinja": b"hi", "x.gguf": gguf(b"x")}
    due = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(tmp_path / "hf"),
        "INFERNO_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0",
        "HOME": str(tmp_path),
        "PATH": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, json.dumps(due)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= 10
