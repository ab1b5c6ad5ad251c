"""What a model's name stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferno.cli.app import app
from inferno.errors import CheckpointError, InvalidRequest, ModelNotFound
from inferno.hub.add import add_local
from inferno.hub.facts import ModelFacts, read_facts, read_template, read_tensors
from inferno.hub.fetch import local_entry
from inferno.hub.find import find_model_folder
from inferno.hub.store import Store
from inferno.plan.shape import read_shape
from tests.data import data_path
from tests.hub.loopback import gguf
from tests.tiny import save_tiny


def test_a_folder_of_one_gguf_model_stands_for_its_file(tmp_path: Path) -> None:
    for name in ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "config.json"):
        (tmp_path / name).touch()
    assert find_model_folder(str(tmp_path)) == tmp_path / "a-00001-of-00002.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"2 GGUF models; give the path of one, such as .*a-00"):
        find_model_folder(str(tmp_path))
    assert find_model_folder(str(tmp_path / "b.gguf")) == tmp_path / "b.gguf"
    (tmp_path / "model.safetensors").touch()
    assert find_model_folder(str(tmp_path)) == tmp_path


def test_a_gguf_file_of_the_users_is_known_by_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path))
    file = data_path("stories260K-gguf", "stories260K-q8_0-v3.gguf")
    entry = add_local(Store.of_user(), file)
    assert find_model_folder(entry.name) == file.resolve()
    facts = read_facts(entry.path)
    assert (facts.architecture, facts.num_parameters, facts.dtype) == ("llama", 260_032, "Q8_0")
    assert facts.context == 512
    assert {tensor.name for tensor in read_tensors(entry.path)} >= {"token_embd.weight"}
    assert read_template(entry.path) is None


def test_a_file_that_is_added_is_all_of_its_model(tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    names = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for name in names:
        (tmp_path / name).write_bytes(gguf(name.encode()))
    assert [one.name for one in add_local(store, tmp_path / names[0]).files] == names
    with pytest.raises(InvalidRequest, match=f"give its first file, {names[0]}"):
        add_local(store, tmp_path / names[1])
    (tmp_path / names[2]).unlink()
    with pytest.raises(CheckpointError, match=f"{names[2]}: is missing"):
        add_local(store, tmp_path / names[0])


def test_a_file_is_added_by_the_name_that_it_has(tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    (tmp_path / "d2f1").write_bytes(gguf(b"x"))
    (tmp_path / "link.gguf").symlink_to("d2f1")  # as in Hugging Face's cache
    (tmp_path / "LOUD.GGUF").write_bytes(gguf(b"x"))
    for name in ("link.gguf", "LOUD.GGUF"):
        entry = add_local(store, tmp_path / name)
        assert [one.name for one in entry.files] == [name]
        assert local_entry(store, entry.name, None) == entry
        assert entry.path == tmp_path / name
    (tmp_path / "two..gguf").write_text("GGUF")
    with pytest.raises(InvalidRequest, match="can't be known as"):
        add_local(store, tmp_path / "two..gguf")


def test_show_takes_the_names_that_other_commands_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    small = data_path("stories260K-gguf", "stories260K-q8_0-v3.gguf").read_bytes()
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "a-Q8_0.gguf").write_bytes(small)
    done = CliRunner().invoke(app, ["show", str(folder), "--json"])
    assert json.loads(done.stdout)["architecture"] == "llama"
    (folder / "b.gguf").write_bytes(small)
    entry = add_local(Store.of_user(), folder)
    done = CliRunner().invoke(app, ["show", f"{entry.name}:Q8_0", "--json"])
    assert json.loads(done.stdout)["folder"] == str(folder / "a-Q8_0.gguf")
    done = CliRunner().invoke(app, ["show", f"{entry.name}:Q4_0"])
    assert (done.exit_code, "must choose one GGUF file" in done.stderr) == (1, True)


@pytest.mark.parametrize("shard_size", ["1GB", "50KB"])
def test_weights_count_once_though_they_lie_there_in_another_format_too(
    shard_size: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path, "llama", shard_size=shard_size)
    before = read_facts(tmp_path)
    copied = next(tmp_path.glob("*.safetensors")).read_bytes()
    (tmp_path / "consolidated.safetensors").write_bytes(copied)
    assert read_facts(tmp_path) == before
    (tmp_path / "consolidated.safetensors").write_text("version https://git-lfs.github.com/spec")
    assert read_facts(tmp_path) == before
    assert read_shape(tmp_path).tensors


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [10**4000] * 900},
        {"dtype": "F32", "shape": [2**63]},
        {"dtype": "F32", "shape": [-1]},
        {"dtype": "F32", "shape": [1] * 17},
        {"dtype": "F32", "shape": ["7"]},
        {"dtype": "F32", "shape": [1.5]},
        {"dtype": "F32", "shape": [True]},
        {"dtype": "\x1b]0;title\x07", "shape": [1]},
        {"dtype": ["F32"], "shape": [1]},
        {"shape": [1]},
        [],
    ],
    ids=lambda entry: ascii(entry)[:40],
)
def test_a_header_that_lies_has_no_figures(entry: object, tmp_path: Path) -> None:
    header = json.dumps({"w": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert read_facts(tmp_path) == ModelFacts(None, None, None, None)
    with pytest.raises(CheckpointError, match="header can't be read"):
        list(read_tensors(tmp_path))
