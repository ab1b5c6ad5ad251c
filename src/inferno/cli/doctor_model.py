"""`inferno doctor MODEL`: what is wrong with a model's files, why it matters, and what to do."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from inferno.cli.doctor_facts import probe_torch
from inferno.cli.errors import one_line_errors
from inferno.cli.terminal import print_of_others, print_text
from inferno.errors import InvalidRequest, ModelNotFound
from inferno.hub.facts import read_facts
from inferno.hub.find import find_model_folder, is_absent
from inferno.lint.checks import CHECKS, Finding, Level
from inferno.lint.model import lint_model

_CHECK_FILES = [sys.executable, "-P", "-m", "inferno.engine.check_files"]
_WIDTH = 80
_NO_ARCHITECTURE = "unknown architecture"


def doctor_model(
    name: str, revision: str | None, chat_template: Path | None, *, as_json: bool, debug: bool
) -> None:
    """Print what is wrong with a model that is on this machine; exit with 1 if it can't be run."""
    with one_line_errors(debug=debug, loads_model=False):
        if is_absent(name, revision):
            raise ModelNotFound(f"{name} is not on this machine; inferno download {name} first")
        if chat_template is not None and not chat_template.is_file():
            raise InvalidRequest(
                f"--chat-template {chat_template} is no file; give a Jinja file",
                param="chat_template",
            )
        path = find_model_folder(name, revision)
        findings = lint_model(path, _refusal(path), chat_template=chat_template)
        if as_json:
            print_text(json.dumps(_as_json(name, path, findings), indent=2) + "\n")
        else:
            lines = _described(name, path, findings)
            print_of_others("".join(f"{line}\n" for line in lines))
    if any(finding.level is Level.FATAL for finding in findings):
        raise typer.Exit(1)


def _refusal(path: Path) -> str | None:
    """Return why the engine doesn't load a model, by the engine itself in its own process."""
    found = probe_torch([*_CHECK_FILES, str(path)])
    if "refusal" in found:
        return None if found["refusal"] is None else str(found["refusal"])
    return f"it could not be looked at: {found.get('error')}"


def _as_json(name: str, path: Path, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "model": name,
        "path": str(path),
        "num_checks": len(CHECKS),
        "findings": [
            {
                "check": finding.check,
                "level": finding.level,
                "what": finding.what,
                "why": finding.why,
                "cure": finding.cure,
            }
            for finding in findings
        ],
    }


def _described(name: str, path: Path, findings: Sequence[Finding]) -> Iterator[str]:
    facts = read_facts(path)
    context = "" if facts.context is None else f", {facts.context} positions"
    yield f"{name}: {facts.architecture or _NO_ARCHITECTURE}{context}"
    for finding in findings:
        yield ""
        heading = finding.level.upper() if finding.level is Level.FATAL else finding.level
        yield from _wrapped(f"{heading}, {finding.check}: {finding.what}", indent="")
        yield from _wrapped(f"why: {finding.why}", indent="  ")
        yield from _wrapped(f"-> {finding.cure}", indent="  ")
    yield ""
    counts = [(level, sum(one.level is level for one in findings)) for level in Level]
    told = ", ".join(f"{count} {level}" for level, count in counts if count)
    yield f"{len(CHECKS)} checks: {told or 'nothing found'}"


def _wrapped(text: str, *, indent: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from textwrap.wrap(
            line,
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
