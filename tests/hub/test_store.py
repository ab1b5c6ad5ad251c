"""What the store keeps: manifests, locks, removal; and what list, show, rm and prune say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.errors import InvalidRequest, ModelError
from inferno.hub.add import add_local
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, fetch_model, local_entry, plan_download
from inferno.hub.find import find_model_folder, is_absent
from inferno.hub.local import local_models
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from inferno.hub.url import WantedModel, parse_model
from inferno.machine import readable_size
from tests.hub.loopback import COMMIT, Hub, gguf
from tests.patience import PATIENCE

NAME = "a/model"


@pytest.fixture
def entry(hub: Hub, client: HubClient, store: Store, tiny: Path) -> Entry:
    """A model that runs, downloaded into the store."""
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    return download(client, store, plan_download(client, store, NAME))


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def listed() -> list[dict[str, object]]:
    code, out, _ = run("list", "--json")
    assert code == 0
    models: list[dict[str, object]] = json.loads(out)["models"]
    return [model for model in models if "/" in str(model["name"])]


# --- manifests -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../evil"},
        {"name": "other/model"},
        {"revision": "../../evil"},
        {"revision": "d" * 40},
        {"version": 99},
        {"files": [{"name": "../x", "size": 1, "sha256": "a" * 64, "mtime_ns": 1, "ctime_ns": 1}]},
        {"files": [{"name": "x", "size": 1, "sha256": "evil", "mtime_ns": 1, "ctime_ns": 1}]},
        {"files": [{}]},
        {"files": 7},
        {"folder": 7},
        {"added_at": "soon"},
    ],
    ids=str,
)
def test_a_manifest_that_we_did_not_write_is_no_model(
    changes: dict[str, object], store: Store, entry: Entry
) -> None:
    path = entry.folder.with_name(f"{COMMIT}.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert store.entries() == []
    assert listed() == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"version": 1'])
def test_a_damaged_manifest_is_no_model(content: bytes, store: Store, entry: Entry) -> None:
    entry.folder.with_name(f"{COMMIT}.json").write_bytes(content)
    assert store.entries() == []
    code, out, _ = run("list")
    assert (code, NAME in out) == (0, False)


def test_a_manifest_is_read_as_it_was_written(store: Store, entry: Entry) -> None:
    assert store.find(NAME) == store.find(NAME, "main") == store.find(NAME, COMMIT) == entry
    assert store.find(NAME, "v2") is None
    assert store.find("a/other") is None


# --- list and show ---------------------------------------------------------------------------


def test_list_says_what_a_model_is(entry: Entry) -> None:
    [row] = listed()
    assert (row["name"], row["revision"], row["asked"]) == (NAME, COMMIT, ["main"])
    assert row["architecture"] == "LlamaForCausalLM"
    assert row["size_bytes"] == sum(path.stat().st_size for path in entry.folder.iterdir())
    assert row["dtype"] in ("F32", "BF16")
    assert row["licence"] == "apache-2.0"
    assert row["used_at"] is None
    find_model_folder(NAME)
    assert listed()[0]["used_at"] is not None


def test_the_number_of_parameters_is_that_of_the_tensors(entry: Entry) -> None:
    total = 0
    with safe_open(entry.folder / "model.safetensors", framework="pt") as file:
        for name in sorted(file.keys()):
            total += file.get_tensor(name).numel()
    assert listed()[0]["parameters"] == total


def test_list_shows_the_disk_that_leftovers_take(store: Store, tmp_path: Path, hub: Hub) -> None:
    part = store.partial_folder(NAME, COMMIT) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    (tmp_path / "home" / "packed").mkdir()
    (tmp_path / "home" / "packed" / "a-b.packed").write_bytes(b"x" * 2000)
    found = json.loads(run("list", "--json")[1])
    assert (found["partial_bytes"], found["packed_bytes"]) == (1000, 2000)
    out = run("list")[1]
    assert "partial downloads: 1 kB" in out
    assert "packed weights: 2 kB" in out


def test_show_tells_config_licence_tensors_and_template(entry: Entry) -> None:
    code, out, _ = run("show", NAME)
    assert code == 0
    for said in ("apache-2.0", "LlamaForCausalLM", "hidden_size", "model.embed_tokens.weight"):
        assert said in out
    shown = json.loads(run("show", NAME, "--json")[1])
    assert shown["config"]["architectures"] == ["LlamaForCausalLM"]
    assert {"name", "dtype", "shape"} == set(shown["tensors"][0])
    assert run("show", NAME, "--tensors")[1].count("\n") == len(shown["tensors"])


def test_show_knows_embedded_models_and_folders(tiny: Path, hub: Hub) -> None:
    assert "LlamaForCausalLM" in run("show", "demo")[1]
    assert "LlamaForCausalLM" in run("show", str(tiny))[1]
    assert run("show", "demo", "--template")[1].strip()
    code, _, err = run("show", "no/such")
    assert (code, "inferno download no/such" in err) == (1, True)


def test_show_reads_only_what_is_asked_for(tiny: Path, hub: Hub) -> None:
    (tiny / "config.json").write_text('{"model_type":')
    assert run("show", str(tiny))[0] == 1
    assert "model.embed_tokens.weight" in run("show", str(tiny), "--tensors")[1]
    (tiny / "chat_template.jinja").write_text("hello")
    (tiny / "model.safetensors").write_bytes(b"damaged")
    assert run("show", str(tiny), "--template")[1] == "hello\n"


def test_show_has_the_default_of_several_templates(tiny: Path, hub: Hub) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "hello"}]
    config = tiny / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": named}))
    assert run("show", str(tiny), "--template")[1] == "hello\n"
    assert json.loads(run("show", str(tiny), "--json")[1])["template"] == "hello"
    config.write_text(json.dumps({"chat_template": named[:1]}))
    assert run("show", str(tiny), "--template")[1] == "tools\n"
    config.write_text(json.dumps({"chat_template": [{}, 3]}))
    assert run("show", str(tiny), "--template")[0] == 1


def test_the_store_is_among_the_models_on_this_machine(entry: Entry) -> None:
    assert (NAME, entry.folder) in [(one.name, one.folder) for one in local_models()]


# --- rm --------------------------------------------------------------------------------------


def test_rm_removes_the_files_of_the_store(store: Store, entry: Entry) -> None:
    code, _, err = run("rm", NAME)
    assert code == 0, err
    assert "removed a/model at c0ffee" in err
    assert [path for path in store.root.rglob("*") if path.is_file()] == []
    assert local_entry(store, NAME, None) is None
    code, _, err = run("rm", NAME)
    assert (code, "the store has no model 'a/model'" in err) == (1, True)


@pytest.mark.parametrize("name", ["../../own", "..", "/", "a/..", "", "a/model/../.."])
def test_rm_takes_no_path(name: str, entry: Entry, tiny: Path) -> None:
    assert run("rm", name)[0] == 1
    assert entry.folder.exists()
    assert tiny.exists()


def test_rm_leaves_files_of_other_folders(store: Store, tiny: Path, hub: Hub) -> None:
    add_local(store, tiny)
    code, _, err = run("rm", "local/tiny")
    assert code == 0
    assert f"its files stay in {tiny}" in err
    assert (tiny / "model.safetensors").exists()
    assert store.entries() == []


@pytest.fixture
def ggufs(hub: Hub, client: HubClient, store: Store) -> Entry:
    """Three GGUF models of one repository, the last of them split."""
    hub.files = {
        "x-Q4_K_M.gguf": gguf(b"4"),
        "x-Q5_K_M.gguf": gguf(b"5"),
        "x-Q8_0-00001-of-00002.gguf": gguf(b"8"),
        "x-Q8_0-00002-of-00002.gguf": gguf(b"more"),
    }
    return download(client, store, plan_download(client, store, NAME, None, "*.gguf"))


def test_rm_removes_one_gguf_model_of_several(ggufs: Entry, store: Store) -> None:
    code, _, err = run("rm", f"{NAME}:Q8_0")
    assert code == 0, err
    assert "removed a/model:x-Q8_0-00001-of-00002.gguf at c0ffee" in err
    assert "261 B freed" in err
    left = {"x-Q4_K_M.gguf", "x-Q5_K_M.gguf"}
    assert {path.name for path in ggufs.folder.iterdir()} == left
    assert local_entry(store, f"{NAME}:q4_k_m", None) is not None
    assert local_entry(store, f"{NAME}:q8_0", None) is None
    code, _, err = run("rm", f"{NAME}:Q8_0")
    assert (code, "the store has no model 'a/model:Q8_0'" in err) == (1, True)
    assert run("rm", f"{NAME}:x-Q4_K_M.gguf")[0] == 0
    assert run("rm", f"{NAME}:q5_k_m")[0] == 0
    assert list(store.root.iterdir()) == []  # the last one was all of it


def test_rm_of_one_file_leaves_what_others_use(ggufs: Entry, store: Store) -> None:
    with store.together(NAME, COMMIT, may_wait=False):
        code, _, err = run("rm", f"{NAME}:Q8_0")
    assert (code, "a/model is in use" in err) == (1, True)
    assert store.entries() == [ggufs]


def test_rm_of_one_file_must_know_which(
    ggufs: Entry, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.files["y-Q8_0.gguf"] = gguf(b"")
    download(client, store, plan_download(client, store, NAME, None, "y*.gguf"))
    code, _, err = run("rm", f"{NAME}:Q8_0")
    assert (code, "must choose one GGUF file" in err) == (1, True)
    assert len(list(ggufs.folder.iterdir())) == 5


def test_rm_of_one_file_leaves_those_of_other_folders(
    tmp_path: Path, hub: Hub, store: Store
) -> None:
    folder = tmp_path / "ggufs"
    folder.mkdir()
    for name in ("x-Q4_0.gguf", "x-Q8_0.gguf"):
        (folder / name).write_bytes(gguf(b""))
    entry = add_local(store, folder)
    code, _, err = run("rm", f"{entry.name}:Q8_0")
    assert code == 0, err
    assert f"its files stay in {folder}" in err
    assert (folder / "x-Q8_0.gguf").exists()
    assert [file.name for one in store.entries() for file in one.files] == ["x-Q4_0.gguf"]


USE = (
    "import sys; from inferno.hub.find import find_model_folder\n"
    "find_model_folder(sys.argv[1]); print('used', flush=True); sys.stdin.read()"
)


@pytest.fixture(params=["name", "folder"])
def user(request: pytest.FixtureRequest, entry: Entry) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the model, until its standard input ends."""
    model = NAME if request.param == "name" else str(entry.folder)
    process = subprocess.Popen(
        [sys.executable, "-c", USE, model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "used\n"
    yield process
    process.communicate(timeout=PATIENCE)


def test_rm_never_removes_a_model_that_is_used(user: subprocess.Popen[str], entry: Entry) -> None:
    code, _, err = run("rm", NAME)
    assert code == 1
    assert "a/model is in use" in err
    assert entry.folder.exists()
    user.communicate(timeout=PATIENCE)
    assert run("rm", NAME)[0] == 0


def test_a_model_that_is_used_can_be_downloaded_again(
    user: subprocess.Popen[str], entry: Entry, client: HubClient, store: Store
) -> None:
    again = download(client, store, plan_download(client, store, NAME))  # all of it is here
    assert again.folder == entry.folder


def test_rm_never_removes_a_model_that_is_being_verified(
    entry: Entry, client: HubClient, store: Store
) -> None:
    tried = []

    def remove(*_: object) -> None:
        with pytest.raises(ModelError, match="is in use"):
            store.remove(entry)
        tried.append(True)

    download(client, store, plan_download(client, store, NAME), remove)
    assert tried
    assert entry.folder.exists()


# --- prune -----------------------------------------------------------------------------------


def test_prune_removes_what_downloads_left_and_no_model(
    store: Store, entry: Entry, tmp_path: Path
) -> None:
    part = store.partial_folder(NAME, "d" * 40) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    orphan = store.folder("a/other", "e" * 40) / "model.safetensors"  # it has no manifest
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x" * 500)
    code, _, err = run("prune")
    assert code == 0
    assert "removed 1.5 kB of partial downloads" in err
    assert not part.parent.exists()
    assert not orphan.parent.exists()
    assert local_entry(store, NAME, None) == entry


def test_prune_leaves_a_download_that_is_under_way(store: Store, hub: Hub) -> None:
    part = store.partial_folder(NAME, COMMIT) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x")
    with store.alone(NAME, COMMIT, may_wait=False):
        run("prune")
        assert part.exists()
    run("prune")
    assert not part.exists()


def test_prune_leaves_a_model_whose_manifest_came_since_it_looked(
    store: Store, entry: Entry
) -> None:
    manifest = entry.folder.with_name(f"{COMMIT}.json")
    content = manifest.read_bytes()
    manifest.unlink()  # not written yet: its files have just got their folder
    [partial] = store.partials()
    manifest.write_bytes(content)
    assert store.remove_partial(partial) == 0
    assert local_entry(store, NAME, None) == entry


def test_prune_removes_packed_weights_that_were_long_unused(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "packed"
    folder.mkdir(parents=True)
    old, new, other = folder / "a.packed", folder / "b.packed", folder / "notes.txt"
    for path in (old, new, other):
        path.write_bytes(b"x" * 100)
    long_ago = time.time() - 31 * 86_400
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    assert "100 B of packed weights" in run("prune")[2]
    assert [path.exists() for path in (old, new, other)] == [False, True, True]
    run("prune", "--days", "0")
    assert not new.exists()


# --- folders of the user's, and URLs ---------------------------------------------------------


def test_a_folder_is_known_by_a_name_and_not_copied(store: Store, tiny: Path, hub: Hub) -> None:
    code, out, _ = run("download", str(tiny))
    assert (code, out) == (0, f"{tiny}\n")
    assert find_model_folder("local/tiny") == tiny
    assert not is_absent("local/tiny")
    assert hub.asked == []
    assert not list(store.root.rglob("*.safetensors"))
    (tiny / "config.json").write_text("{}")
    assert local_entry(store, "local/tiny", None) is None  # it is another model now


def test_a_gguf_file_is_known_by_a_name(store: Store, tmp_path: Path, hub: Hub) -> None:
    path = tmp_path / "own" / "small.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf(b""))
    assert [file.name for file in add_local(store, path).files] == ["small.gguf"]
    assert store.find("local/small") is not None


def test_a_folder_without_a_model_is_refused(store: Store, tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "own").mkdir()
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        add_local(store, tmp_path / "own")
    (tmp_path / "own" / "a b").mkdir()
    with pytest.raises(InvalidRequest, match="rename it"):
        add_local(store, tmp_path / "own" / "a b")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a/b", ("a/b", None, None)),
        ("https://huggingface.co/a/b", ("a/b", None, None)),
        ("https://huggingface.co/a/b/", ("a/b", None, None)),
        ("https://huggingface.co/a/b/tree/v1", ("a/b", "v1", None)),
        ("https://huggingface.co/a/b/blob/main/q4.gguf?x=1", ("a/b", "main", "q4.gguf")),
        ("https://huggingface.co/a/b/resolve/main/x/q4.gguf", ("a/b", "main", "x/q4.gguf")),
    ],
)
def test_a_url_of_the_hub_names_a_model(
    text: str, found: tuple[str, str | None, str | None]
) -> None:
    assert parse_model(text, None, None) == WantedModel(*found)


@pytest.mark.parametrize(
    "text",
    [
        *("https://elsewhere.example/a/b", "https://user@huggingface.co/a/b", "ftp://x/a/b"),
        *("https://huggingface.co", "https://huggingface.co/a", "https://huggingface.co/../a/b"),
        *("https://huggingface.co/a/%2e%2e", "https://huggingface.co/a/b/resolve/main/../../c"),
        *("https://[/a/b", "a", "a/b/c", "", "/a/b", "https://huggingface.co/a/b\0", "~/nope"),
    ],
)
def test_a_text_that_names_no_model_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_model(text, None, None)


def test_a_revision_is_given_once() -> None:
    with pytest.raises(InvalidRequest, match="stands in the URL already"):
        parse_model("https://huggingface.co/a/b/tree/v1", "v2", None)


# --- commands that need a model --------------------------------------------------------------


def test_without_a_terminal_an_absent_model_is_not_downloaded(hub: Hub, tiny: Path) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    for command in (["generate", "-p", "x", "-m", NAME], ["serve", NAME], ["play", NAME]):
        code, _, err = run(*command)
        assert code == 1
        assert f"`inferno download {NAME}` fetches it" in err
    assert hub.asked_files() == []


@pytest.mark.parametrize(
    ("typed", "is_fetched"), [("y", True), ("YES", True), ("n", False), ("", False)]
)
def test_on_a_terminal_the_person_is_asked(
    typed: str,
    is_fetched: bool,
    hub: Hub,
    tiny: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    monkeypatch.setattr("inferno.cli.download._may_ask", lambda: True)
    asked = ["generate", "-p", "x", "--max-tokens", "2", "-m", NAME]
    done = CliRunner().invoke(app, asked, input=f"{typed}\n")
    assert (
        f"files, {readable_size(sum(map(len, hub.files.values())))}, to {store.root}" in done.stderr
    )
    assert "Download it? [y/N]" in done.stderr
    assert (done.exit_code == 0) is is_fetched
    assert (store.find(NAME) is not None) is is_fetched
    if not is_fetched:
        assert "was not downloaded" in done.stderr
        assert store.partials() == []


@pytest.mark.parametrize("option", ["--speculative", "--speculative-model"])
@pytest.mark.parametrize("command", [["generate", "-p", "x", "-m"], ["play"], ["serve"]])
def test_a_draft_model_that_is_absent_is_not_fetched_unasked(
    hub: Hub, tiny: Path, store: Store, command: list[str], option: str
) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    code, _, err = run(*command, "demo", option, NAME)
    assert code == 1
    assert f"`inferno download {NAME}` fetches it" in err
    assert hub.asked_files() == []


def test_with_yes_an_absent_model_is_downloaded_and_run(hub: Hub, tiny: Path, store: Store) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    # Of two tokens drawn at random both may be special, which are no text.
    ask = ["generate", "-p", "x", "--max-tokens", "8", "--seed", "1", "-m", NAME]
    code, out, err = run(*ask, "--yes")
    assert code == 0, err
    assert out
    assert "model.safetensors: " in err
    assert store.find(NAME) is not None
    hub.asked.clear()
    assert run(*ask)[0] == 0
    assert hub.asked == []


def test_download_prints_the_folder_and_says_what_is_fetched(
    hub: Hub, tiny: Path, store: Store
) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    code, out, err = run("download", NAME)
    assert code == 0, err
    assert out == f"{store.folder(NAME, COMMIT)}\n"
    assert f"{NAME} at c0ffee000000: {len(hub.files)} files" in err
    assert fetch_model(NAME, None) == store.folder(NAME, COMMIT)
    hub.asked.clear()
    assert f"{NAME} at c0ffee000000 is here" in run("download", NAME)[2]
    assert hub.asked_files() == []


def test_a_model_that_inferno_does_not_have_is_refused_before_its_weights(
    hub: Hub, store: Store
) -> None:
    hub.files["config.json"] = b'{"architectures": ["NopeForCausalLM"]}'
    code, _, err = run("download", NAME)
    assert code == 1
    assert "NopeForCausalLM" in err
    assert not [one for one in hub.asked_files() if one.path.endswith(".safetensors")]
    assert store.entries() == []


def test_a_token_file_is_read_and_its_token_sent(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    path = tmp_path / "own" / "token"
    path.write_text("hf_other\n")
    assert run("download", NAME, "--token-file", str(path))[0] == 0
    assert {one.headers["authorization"] for one in hub.asked} == {"Bearer hf_other"}
    for content in ("", "two words", "a\nb", "\x00"):
        path.write_text(content)
        code, _, err = run("download", NAME, "--token-file", str(path))
        assert (code, "holds no token" in err) == (1, True)


@pytest.mark.parametrize("name", ["../../evil.json", "a\0b.json", "C:\\evil.json"])
def test_a_hostile_hub_ends_in_one_line(name: str, hub: Hub, tmp_path: Path) -> None:
    hub.files[name] = b"{}"
    for command in (["download", NAME], ["generate", "-p", "x", "-m", NAME, "--yes"]):
        code, out, err = run(*command)
        assert (code, out) == (1, "")
        assert err.startswith("error: a/model is not downloaded, as its hub lists a file named")
        assert "internal" not in err
        assert err.count("\n") == 1
    assert not (tmp_path / "home").exists()


def test_a_model_that_is_loaded_twice_is_locked_once(entry: Entry) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(5):
        find_model_folder(NAME)
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert after - before <= 1


# --- what others did to the store ------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user's with a file, to which nothing must happen."""
    folder = tmp_path / "own" / "mine"
    folder.mkdir(parents=True)
    (folder / "letter.txt").write_text("dear")
    return folder


@pytest.mark.parametrize("end", ["", ".partial"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    end: str, hub: Hub, client: HubClient, store: Store, mine: Path
) -> None:
    link = store.folder(NAME, COMMIT + end if end else COMMIT) if not end else None
    link = link or store.partial_folder(NAME, COMMIT)
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    entry = download(client, store, plan_download(client, store, NAME))
    assert not entry.folder.is_symlink()
    assert entry.changed() == []
    assert [path.name for path in mine.iterdir()] == ["letter.txt"]


def test_a_link_in_the_place_of_a_files_folder_is_not_followed(
    hub: Hub, client: HubClient, store: Store, mine: Path
) -> None:
    hub.files["additional_chat_templates/tool_use.jinja"] = b"hi"
    partial = store.partial_folder(NAME, COMMIT)
    partial.mkdir(parents=True)
    (partial / "additional_chat_templates").symlink_to(mine)
    (mine / "config.json").write_bytes(hub.files["config.json"])
    (partial / "config.json").symlink_to(mine / "config.json")
    entry = download(client, store, plan_download(client, store, NAME))
    assert not any(path.is_symlink() for path in entry.folder.rglob("*"))
    assert sorted(path.name for path in mine.iterdir()) == ["config.json", "letter.txt"]


def test_a_model_in_a_folder_that_became_a_link_is_fetched_anew(
    entry: Entry, client: HubClient, store: Store, mine: Path
) -> None:
    moved = mine / "moved"
    entry.folder.rename(moved)
    entry.folder.symlink_to(moved)
    assert local_entry(store, NAME, None) is None
    again = download(client, store, plan_download(client, store, NAME))
    assert not again.folder.is_symlink()
    assert run("rm", NAME)[0] == 0
    assert (moved / "model.safetensors").exists()


def test_a_link_in_the_place_of_a_models_folder_is_refused(
    hub: Hub, client: HubClient, store: Store, mine: Path
) -> None:
    store.root.mkdir(parents=True)
    (store.root / "a--model").symlink_to(mine)
    with pytest.raises(ModelError, match="is a link, and a model's files stay in the store"):
        download(client, store, plan_download(client, store, NAME))
    assert [path.name for path in mine.iterdir()] == ["letter.txt"]
    part = mine / f"{COMMIT}.partial"
    part.mkdir()
    run("prune")
    assert part.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [{"name": "x", "size": "1", "sha256": "a" * 64, "mtime_ns": 1}]},
        {"files": [{"name": "x", "size": -1, "sha256": "a" * 64, "mtime_ns": 1}]},
        {"files": [{"name": "x", "size": 1, "sha256": "a" * 64, "mtime_ns": None}]},
        {"files": [{"name": "x", "size": True, "sha256": "a" * 64, "mtime_ns": 1}]},
        {"folder": "../../own"},
        {"folder": "own/mine"},
        {"asked": [7]},
        {"asked": 7},
        {"source": ["x"]},
        {"licence": "\x1b]0;title\x07"},
        {"licence": {}},
        {"name": 7},
        {"revision": None},
        {"added_at": None},
    ],
    ids=str,
)
def test_a_manifest_edited_by_hand_is_no_model(
    changes: dict[str, object], store: Store, entry: Entry
) -> None:
    path = entry.folder.with_name(f"{COMMIT}.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert store.entries() == []
    for command in ("list", "show a/model", "rm a/model", "prune"):
        code, out, err = run(*command.split())
        assert code in (0, 1)
        assert "internal" not in err
        assert (out + err).replace("\n", "").isprintable()


@pytest.mark.parametrize("kind", ["folder", "fifo", "endless device", "dangling link"])
def test_what_is_no_manifest_is_no_model(kind: str, store: Store, entry: Entry) -> None:
    path = entry.folder.with_name(f"{COMMIT}.json")
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "endless device" else "nowhere")
    assert store.entries() == []
    for command in (["list"], ["show", NAME], ["rm", NAME]):
        assert "internal" not in run(*command)[2]


def test_rm_of_a_model_elsewhere_removes_what_the_store_had_of_it(
    store: Store, entry: Entry, mine: Path
) -> None:
    store.write(replace(entry, folder=mine, is_owned=False))
    assert run("rm", NAME)[0] == 0
    assert not entry.folder.exists()
    assert [path.name for path in mine.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("time_ns", [0, -(10**18), 253_402_300_800 * 10**9, 10**19])
def test_a_clock_that_was_far_off_is_met(time_ns: int, entry: Entry, store: Store) -> None:
    find_model_folder(NAME)
    lock = entry.folder.with_name(f"{COMMIT}.lock")
    try:
        os.utime(lock, ns=(time_ns, time_ns))
    except OverflowError:
        pytest.skip("no file can have this time here")
    code, _, err = run("list")
    assert (code, err) == (0, "")


def test_what_a_model_says_of_itself_does_not_reach_the_terminal(
    tiny: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "\x1b]0;title\x07\x9b2J\u202e"
    config = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps({**config, "architectures": [evil], evil: evil}))
    (tiny / "chat_template.jinja").write_text(f"{{# {evil} #}}\n\thello")
    monkeypatch.setattr("inferno.cli.models.is_terminal", lambda: True)
    add_local(Store.of_user(), tiny)
    for command in (["list"], ["show", "local/tiny"], ["show", "local/tiny", "--template"]):
        code, out, err = run(*command)
        assert (code, err) == (0, "")
        assert not any(sign in out for sign in ("\x1b]", "\x07", "\x9b", "\u202e"))
    assert "\n\thello" in run("show", "local/tiny", "--template")[1]
    monkeypatch.setattr("inferno.cli.models.is_terminal", lambda: False)
    assert evil in run("show", "local/tiny", "--template")[1]  # a file is to have all of it


def test_a_cache_of_hugging_faces_that_is_none_is_met(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "hf").write_text("a file")
    assert run("list")[0] == 0


# --- what people type ------------------------------------------------------------------------

TYPED = [
    *(["show", "~nobody-here/x"], ["show", "x" * 5000], ["show", "a\0b"], ["show", ""]),
    *(["rm", "\x1b[2J"], ["rm", "*"], ["rm", "a/model", "--revision", "../.."]),
    *(["download", "a\0b"], ["download", "~nobody-here/x"], ["download", "x" * 5000]),
    *(["download", NAME, "--revision", "../../x"], ["download", NAME, "--revision", ""]),
    *(["download", NAME, "--revision", "a\0"], ["download", NAME, "--include", "a\0b"]),
    *(["download", NAME, "--include", "["], ["download", NAME, "--include", "../*"]),
    *(["download", "https://huggingface.co/a/model/resolve/main/../../x.gguf"],),
    *(["download", "file:///etc/passwd"], ["download", "https://"], ["download", "https://[::1"]),
    *(["download", NAME, "--token-file", path] for path in ("/", "/dev/zero", "/no/such", "a\0b")),
    *(["download", NAME, "--token-file", path] for path in ("~nobody-here/x", "", "x" * 5000)),
    *(
        ["generate", "-p", "x", "-m", name]
        for name in ("[/x]", "a\0b", "~nobody-here/x", "x" * 5000)
    ),
]


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: ascii(" ".join(typed))[:60])
def test_what_is_mistyped_ends_in_a_line(typed: list[str], hub: Hub, store: Store) -> None:
    code, out, err = run(*typed)
    assert (code in (1, 2), out) == (True, "")
    assert "internal" not in err
    assert err.replace("\n", "").isprintable()
    assert err.startswith("error: ") or (err.startswith("Usage: ") and code == 2)
    assert err.count("\n") == 1 or code == 2
    assert store.entries() == []


def test_all_weights_can_be_asked_for(hub: Hub, tiny: Path, store: Store) -> None:
    hub.files = {path.name: path.read_bytes() for path in tiny.iterdir()}
    assert run("download", NAME, "--include", "**")[0] == 0
    assert store.find(NAME) is not None
