"""Shell completion: its scripts install, and the shell gets commands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

BIN = Path(sys.executable).parent
PATH = f"{BIN}:{os.environ['PATH']}"
# Where each shell looks, and the file that the installation tells to look there.
HOMES = {
    "bash": (".bash_completions/inferno.sh", ".bashrc"),
    "zsh": (".zfunc/_inferno", ".zshrc"),
    "fish": (".config/fish/completions/inferno.fish", None),
}

# What is typed, and what the shell offers for the last word.
WORDS = [
    ("inferno gen", {"generate"}),
    ("inferno doc", {"doctor"}),
    ("inferno generate --max-t", {"--max-tokens"}),
    ("inferno generate --dtype f", {"float32", "float16"}),
]


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, env={"PATH": PATH, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def _needs_the_command() -> None:
    if not (BIN / "inferno").exists():
        pytest.skip("inferno is not installed as a command")


@pytest.mark.parametrize("shell", HOMES)
def test_it_installs_into_a_home(shell: str, tmp_path: Path) -> None:
    # The option finds out which shell it runs in; with this variable it takes the name instead.
    asked = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    run("inferno", "--install-completion", shell, **asked)
    script, settings = HOMES[shell]
    assert "_INFERNO_COMPLETE" in (tmp_path / script).read_text()
    if settings is not None:
        assert Path(script).parts[0] in (tmp_path / settings).read_text()


@pytest.mark.skipif(not Path("/proc").exists(), reason="no folder that nobody can write to")
@pytest.mark.parametrize("shell", HOMES)
def test_where_the_home_is_read_only_it_says_so_and_prints_the_script(shell: str) -> None:
    asked = {"HOME": "/proc", "PATH": PATH, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = ["inferno", "--install-completion", shell]
    done = subprocess.run(command, env=asked, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: /proc/")
    assert len(done.stderr.splitlines()) == 1
    assert "_INFERNO_COMPLETE" in run("inferno", "--show-completion", shell, **asked)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(("words", "expected"), WORDS)
def test_bash_completes(words: str, expected: set[str], tmp_path: Path) -> None:
    run("bash", "-c", "inferno --install-completion; true", HOME=str(tmp_path))
    program = (
        "source ~/.bash_completions/inferno.sh; complete -p inferno >/dev/null || exit 1; "
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_inferno_completion inferno; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(run("bash", "-c", program, HOME=str(tmp_path)).split()) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(("words", "expected"), WORDS)
def test_fish_completes(words: str, expected: set[str], tmp_path: Path) -> None:
    run("fish", "-c", "inferno --install-completion; true", HOME=str(tmp_path))
    said = run("fish", "-c", f"complete --do-complete '{words}'", HOME=str(tmp_path))
    assert {line.split("\t")[0] for line in said.splitlines()} == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
@pytest.mark.parametrize(("words", "expected"), WORDS)
def test_zsh_completes(words: str, expected: set[str], tmp_path: Path) -> None:
    run("zsh", "-c", "inferno --install-completion; true", HOME=str(tmp_path))
    with open(tmp_path / ".zshrc", "a") as settings:
        settings.write("PS1='ready '\n")
    here = {"HOME": str(tmp_path), "PATH": PATH, "ZDOTDIR": None}
    zsh = [str(shutil.which("zsh")), "-i"]
    with Terminal(program=zsh, variables=here) as terminal:
        terminal.wait_for("ready")
        # The first Tab of a session only loads Typer's function, the next types what all choices
        # have in common, the third lists them.
        terminal.type(f"{words}\t\t\t")
        for word in expected:
            terminal.wait_for(word)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(("words", "expected"), [("doc", "doctor"), ("generate --see", "--seed")])
def test_other_shells_get_the_same_answers(shell: str, words: str, expected: str) -> None:
    said = run(
        "inferno",
        _INFERNO_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS=f"inferno {words}",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert expected in said
