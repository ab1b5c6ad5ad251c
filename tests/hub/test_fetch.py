"""What is downloaded of a model, and what is said where it can't be."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._paths import filter_repo_objects

from inferno.errors import ModelError, ModelNotFound
from inferno.hub import fetch
from inferno.hub.fetch import fetch_model

REPOSITORY = [
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    *("model.safetensors.index.json", "chat_template.jinja", "README.md", "modeling_odd.py"),
    *("additional_chat_templates/tool_use.jinja", "pytorch_model.bin", "tokenizer.model"),
    *("original/model.safetensors", "original/params.json", "original/consolidated.00.pth"),
    *("metal/model.bin", "consolidated.safetensors", "onnx/model.onnx", "fp16/a/b.safetensors"),
]
READ = {*REPOSITORY[:8], "additional_chat_templates/tool_use.jinja"}


def test_weights_are_downloaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        fetch, "snapshot_download", lambda _, **options: asked.update(options) or ""
    )
    fetch_model("a/b", "main")
    assert asked.pop("revision") == "main"
    assert set(filter_repo_objects(REPOSITORY, **asked)) == READ


def caused(problem: Exception, cause: Exception) -> Exception:
    problem.__cause__ = cause
    return problem


def answered(kind: type[Exception]) -> Exception:
    """An error of the hub's, which holds an answer that nobody looks at here."""
    made = kind.__new__(kind)
    made.args = ("404 Client Error.",)
    return made


class ConnectError(Exception):
    """Named as the HTTP client's."""


class ReadTimeout(Exception):
    """Named as the HTTP client's."""


LONG = "a reason of many words " * 40


@pytest.mark.parametrize(
    ("problem", "kind", "said"),
    [
        (
            caused(LocalEntryNotFoundError("Cannot find ... set 'HF"), OfflineModeIsEnabled("no")),
            ModelNotFound,
            "a/b is not completely on this machine, and HF_HUB_OFFLINE forbids to download it",
        ),
        (
            caused(LocalEntryNotFoundError("Got: x"), ConnectError("Name or service not known")),
            ModelNotFound,
            "the Hugging Face hub can't be reached (Name or service not known); check the",
        ),
        (
            caused(LocalEntryNotFoundError("Got: x"), ReadTimeout("timed out")),
            ModelNotFound,
            "the Hugging Face hub can't be reached (timed out); check the connection",
        ),
        (answered(RepositoryNotFoundError), ModelNotFound, "the Hugging Face hub has no such"),
        (answered(GatedRepoError), ModelNotFound, "a/b is for those who accepted its licence"),
        (answered(RevisionNotFoundError), ModelNotFound, "a/b has no revision 'main'"),
        (OSError(errno.ENOSPC, "No space left on device"), ModelError, "the disk is full: "),
        (RuntimeError("IO: No space left on device (os error 28)"), ModelError, "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), ModelError, "the disk is full"),
        (ReadTimeout("The read operation timed out"), ModelError, "the download of a/b stalled"),
        (TimeoutError(), ModelError, "the download of a/b stalled"),
        (PermissionError(errno.EACCES, "Permission denied"), ModelNotFound, "Permission denied"),
        (ValueError(LONG), ModelNotFound, "did not give the model"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else None,
)
def test_the_reason_is_said(
    problem: Exception, kind: type[ModelError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "snapshot_download", raising(problem))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ModelError) as caught:
        fetch_model("a/b", None)
    assert type(caught.value) is kind
    assert said in str(caught.value)


def test_a_long_reason_ends_with_a_whole_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "snapshot_download", raising(ValueError(LONG)))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(ModelNotFound) as caught:
        fetch_model("a/b", None)
    reason = str(caught.value).partition("(")[2].partition(")")[0]
    assert len(reason) <= 200
    assert reason.endswith(" …")
    assert set(reason.removesuffix(" …").split()) == set(LONG.split())


def raising(problem: Exception) -> Callable[..., str]:
    def download(*_: object, **__: object) -> str:
        raise problem

    return download
