"""What README.md and docs/ tell a reader to run does run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from inferno import ops
from inferno.cli.app import app
from inferno.quantization import INT8
from tests.bench.brief import measure_briefly
from tests.docs.pages import PAGES, ROOT, blocks, commands, languages

# Not run here, each for its reason.
SKIPPED = {
    r"make (demo|test)": "sets up a virtual environment from a package registry",
    r"python -m pip install .*": "installs from a package registry",
    r"inferno serve demo": "tests/docs/test_server_page.py runs it",
    r"inferno bench serve .*": "needs a server; tests/cli/test_bench_serve.py has one",
    r"inferno --install-completion": "writes into the home; tests/cli/test_completion.py runs it",
    r"inferno doctor( --json| --measure)?": "tests/cli/test_doctor.py runs all",
    r"inferno .*Qwen/.*": "downloads a model",
    r"inferno .*~/models/.*": "a folder of the reader's own",
    r"inferno .*--cuda.*": "needs a GPU",
}
HAS_A_TEST = (
    "docs/server.md",
    "docs/tools.md",
    "docs/worker.md",
)  # of its own: test_server_page.py, test_tools_page.py, test_worker_page.py
COMMANDS = sorted(
    {command for page in PAGES if page not in HAS_A_TEST for command in commands(page)}
)
RUN = [one for one in COMMANDS if not any(re.fullmatch(skip, one) for skip in SKIPPED)]
PROGRAMS = [
    (page, program)
    for page in PAGES
    if page not in HAS_A_TEST
    for program in blocks(page, "python")
]


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A folder with the files that the examples name."""
    (tmp_path / "prompts.txt").write_text("The sun\nA little dog\n")
    monkeypatch.chdir(tmp_path)
    if "--model ./packed-demo" in request.node.name:  # what the command before it wrote
        CliRunner().invoke(app, ["convert", "demo", "--to", "packed-demo", "--type", "q8_0"])
    monkeypatch.setenv("INFERNO_HOME", str(tmp_path / "home"))
    measure_briefly(monkeypatch)
    # Two of its eight random schedules; tests/fuzz/test_speculation.py compares many more.
    monkeypatch.setattr("inferno.cli.verify._NUM_SCHEDULES", 2)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("command", RUN)
def test_a_command_works(command: str) -> None:
    piped, _, typed = command.rpartition(" | ")
    words = shlex.split(typed)
    if "--quantize" in words and not ops.has_kernels(torch.device("cpu"), INT8):
        pytest.skip("no compiled kernels run here")
    result = CliRunner().invoke(app, words[1:], input=_printed(piped))
    assert words[0] == "inferno"
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


def _printed(command: str) -> str:
    """What comes out of the left side of a pipe; where there is none, a message for `play`."""
    words = shlex.split(command) or ["echo", "Hello"]
    assert words[0] == "echo"
    return " ".join(words[1:]) + "\n"


@pytest.mark.parametrize(("page", "program"), PROGRAMS, ids=[page for page, _ in PROGRAMS])
def test_a_program_works(page: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program, page, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_each_command_that_is_not_run_is_there() -> None:
    for skip in SKIPPED:
        assert any(re.fullmatch(skip, one) for one in COMMANDS), f"no page has {skip}"


@pytest.mark.parametrize("page", PAGES)
def test_code_is_marked_as_what_it_is(page: str) -> None:
    if page == "docs/performance.md":
        return  # a report of measurements: its commands are benchmarks
    files = {
        "docs/server.md": {"text", "nginx", "ini"},
        "docs/migrating-from-vllm.md": {"text"},  # programs of vLLM, which is not installed here
    }.get(page, set())
    assert languages(page) <= {"console", "python"} | files


def test_the_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {one.removeprefix("make ") for one in COMMANDS if one.startswith("make ")}
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page} links to {target}"
        assert not anchor or anchor in _anchors(file.read_text()), f"{page} links to {target}"


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    for page in PAGES:
        name = Path(page).name
        assert name == "README.md" or f"({name})" in PAGES["docs/README.md"], name
