"""Shell completion: its scripts install, and the shell gets commands and options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PATH = f"{BIN}:{os.environ['PATH']}"
# Where each shell looks, and the file that the installation tells to look there.
HOMES = {
    "bash": (".bash_completions/inferno.sh", ".bashrc"),
    "zsh": (".zfunc/_inferno", ".zshrc"),
    "fish": (".config/fish/completions/inferno.fish", None),
}


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


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("inferno gen", {"generate"}),
        ("inferno doc", {"doctor"}),
        ("inferno generate --max-t", {"--max-tokens"}),
        ("inferno generate --dtype f", {"float32", "float16"}),
    ],
)
def test_bash_completes(words: str, expected: set[str], tmp_path: Path) -> None:
    run("bash", "-c", "inferno --install-completion; true", HOME=str(tmp_path))
    program = (
        "source ~/.bash_completions/inferno.sh; complete -p inferno >/dev/null || exit 1; "
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_inferno_completion inferno; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(run("bash", "-c", program, HOME=str(tmp_path)).split()) == expected


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
