"""What a person does on the chat page, and what they see there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.text.model_text import ModelText
from tests.server.hosting import Host, hosting


@dataclass(frozen=True)
class Talk:
    """An open page."""

    page: Page

    def send(self, words: str) -> None:
        self.page.fill("#question", words)
        self.page.press("#question", "Enter")

    def ask(self, words: str) -> str:
        """The whole answer."""
        before = self.turns.count()
        self.send(words)
        self.turns.nth(before).wait_for()
        return self.wait()

    def request_of(self, words: str) -> dict[str, Any]:
        """What the page sends to have this answered."""
        with self.page.expect_request("**/v1/chat/completions") as asked:
            self.ask(words)
        return dict(asked.value.post_data_json or {})

    def wait(self) -> str:
        """The last answer, when it is whole."""
        self.last.and_(self.page.locator(".done")).wait_for()  # looks more often than `expect`
        return self.answer.inner_text()

    def pick(self, **settings: str) -> None:
        """Fill in fields of the settings."""
        self.press("Settings")
        for name, value in settings.items():
            self.page.fill(f"#settings [name={name}]", value)
        self.press("Done")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    @property
    def turns(self) -> Locator:
        return self.page.locator(".turn")

    @property
    def last(self) -> Locator:
        return self.turns.last

    @property
    def answer(self) -> Locator:
        return self.last.locator(".text")

    @property
    def figures(self) -> Locator:
        return self.last.locator(".figures")

    @property
    def problem(self) -> Locator:
        return self.last.locator(".problem")

    @property
    def status(self) -> Locator:
        return self.page.get_by_role("status")


def saying(*texts: str, folder: Path = MODEL_FOLDERS["demo"], **answer: Any) -> Script:
    """A script that gives these answers, the last one again and again."""
    encode = ModelText(folder).tokenizer.encode
    answers = [
        Answer(token_ids=tuple(encode(text, add_special_tokens=False)), **answer) for text in texts
    ]
    return Script(answers=tuple(answers), vocab_size=2050, max_model_len=4096)


@contextmanager
def serving(script: Script, text: ModelText | None = None, **settings: Any) -> Iterator[Host]:
    """A server that plays the script."""
    with hosting(lambda: ScriptedClient(script), text, **settings) as host:
        yield host


def thinking_text(folder: Path) -> ModelText:
    """The demo's text in that folder, but of a model that thinks between marks."""
    shutil.copytree(MODEL_FOLDERS["demo"], folder, dirs_exist_ok=True)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token_id, mark in enumerate(("<think>", "</think>"), 2048):
        added = {**tokenizer["added_tokens"][0], "id": token_id, "content": mark, "special": False}
        tokenizer["added_tokens"].append(added)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] += "{# </think> #}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return ModelText(folder)
