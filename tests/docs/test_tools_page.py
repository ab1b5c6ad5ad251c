"""docs/tools.md: its commands and programs run against a server whose model makes the call."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferno.demo import MODEL_FOLDERS
from inferno.text.model_text import ModelText
from inferno.text.parsers.calls.syntax import ToolDialect
from tests.data import data_path
from tests.docs.pages import PAGES, blocks, dialogues, rows, section
from tests.docs.serving import DOCUMENTED
from tests.docs.test_server_page import is_as_shown
from tests.patience import PATIENCE
from tests.server.hosting import Host
from tests.server.openai.calling import Speaker, speaking

PAGE = "docs/tools.md"
CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"place": "Rome"}}\n</tool_call><|im_end|>'
)
ANSWER = "It pours in Rome, so take an umbrella.<|im_end|>"


@pytest.fixture(scope="module")
def qwen() -> Iterator[tuple[Host, Speaker]]:
    with speaking(ModelText(data_path("hf", "Qwen3-0.6B"))) as both:
        yield both


def here(text: str, host: Host) -> str:
    return text.replace(DOCUMENTED, f"{host.http.base_url.host}:{host.http.base_url.port}")


def test_the_command_prints_what_is_shown(qwen: tuple[Host, Speaker]) -> None:
    host, speaker = qwen
    [(start, _), (command, shown)] = dialogues(PAGES[PAGE])
    assert start == "inferno serve Qwen/Qwen3-0.6B"
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    speaker.say(CALL)
    quiet = here(command, host).replace("curl", "curl --silent --show-error", 1)
    done = subprocess.run(
        ["sh", "-c", quiet], capture_output=True, timeout=PATIENCE, check=True, text=True
    )
    assert is_as_shown(shown, done.stdout), done.stdout


@pytest.mark.parametrize(
    ("number", "printed"),
    [(0, "It pours in Rome, so take an umbrella."), (1, 'get_weather {"place": "Rome"}')],
)
def test_programs_work(
    qwen: tuple[Host, Speaker], number: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host, speaker = qwen
    speaker.say(CALL, ANSWER)
    exec(compile(here(blocks(PAGE, "python")[number], host), PAGE, "exec"), {})
    assert capsys.readouterr().out == printed + "\n"


def test_the_library_calls_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(MODEL_FOLDERS["demo"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "chat_template.jinja").write_text(
        "{{ tools }}{{ messages[-1].content }}{# <tool_call> arguments #}"
    )
    source = blocks(PAGE, "python")[2]
    assert "Qwen/Qwen3-0.6B" in source
    exec(compile(source.replace("Qwen/Qwen3-0.6B", str(tmp_path)), PAGE, "exec"), {})
    [name, arguments] = capsys.readouterr().out.split(" ", 1)
    assert name == "paint"
    assert ast.literal_eval(arguments) in ({"color": "red"}, {"color": "blue"})


def test_every_form_of_calls_has_a_row() -> None:
    forms = {dialect for dialect in ToolDialect if dialect.is_readable}
    spelled_alike = {ToolDialect.MISTRAL_LIST, ToolDialect.MISTRAL_ARGS}
    assert len(rows(section(PAGE, "## Which models"))[1:]) == len(forms - spelled_alike) + 1
