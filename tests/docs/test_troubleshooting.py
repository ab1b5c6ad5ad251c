"""docs/troubleshooting.md has every error, and quotes messages that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferno import LLM, SamplingParams, errors
from inferno.cli.app import app
from tests.docs.pages import PAGES, ROOT, rows, section
from tests.tiny import edit_config, save_tiny_model

PAGE = "docs/troubleshooting.md"
ERRORS = [name for name, one in vars(errors).items() if isinstance(one, type)]
MESSAGES = [
    message
    for row in rows("".join(PAGES[PAGE].partition("## The command line")[1:]))
    for message in re.findall(r"`([^`]+)`", row[0])
]


def text_of(node: ast.AST) -> str | None:
    """A text of a program on one line, with … for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        parts = [str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values]
        text = "".join(parts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    else:
        return None
    return " ".join(text.replace("`", "").split())


# What makes errors, by the place of the message among its arguments.
MAKERS = dict.fromkeys([*ERRORS, "Malformed", "BadParameter", "error"], 0)
MAKERS |= {"ApiError": 2, "Unavailable": 1, "_full": 1}


def messages_of(tree: ast.AST) -> Iterator[str]:
    """What the errors say that a program makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not is_for_a_log(node.func):
            place = MAKERS.get(getattr(node.func, "id", getattr(node.func, "attr", "")))
            arguments = node.args[place:] if place is not None else []
            if arguments and (message := text_of(arguments[0])) is not None:
                yield message


def is_for_a_log(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and "log" in ast.unparse(function.value)


def refusals_of(tree: ast.AST) -> Iterator[str]:
    """What the server's errors say, beside those that are written where they are raised."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="message")], value=value):
                yield text_of(value) or ""
            case ast.Tuple(elts=[_, ast.Constant(value=str(message)), ast.Constant(value=int())]):
                yield message


def codes_of(tree: ast.AST) -> Iterator[str]:
    """The codes of the server's errors, but for those that are put together."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Name(id="ApiError"), args=[_, ast.Constant(value=str(code)), *_])
                | ast.Call(
                    func=ast.Name(id="Unavailable"), args=[ast.Constant(value=str(code)), *_]
                )
                | ast.Call(
                    func=ast.Attribute(attr="_full"), args=[ast.Constant(value=str(code)), *_]
                )
                | ast.Tuple(elts=[ast.Constant(value=str(code)), _, ast.Constant(value=int())])
            ):
                yield code


PUT_TOGETHER = {"slow_head", "slow_body", "context_length_exceeded", "deadline_exceeded"}


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """The programs of the package; parsed when they are asked for, not by who collects tests."""
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "src").rglob("*.py"))}


@pytest.fixture(scope="module")
def server_trees(trees: dict[Path, ast.Module]) -> list[ast.Module]:
    folder = ROOT / "src" / "inferno" / "server"
    return [tree for path, tree in trees.items() if path.is_relative_to(folder)]


def pattern(message: str) -> re.Pattern[str]:
    """What finds the message, and anything for each …, in a line."""
    return re.compile(".*".join(re.escape(part) for part in message.strip("… ").split("…")))


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_a_heading_or_a_word(name: str) -> None:
    assert re.search(rf"^#+ {name}$", PAGES[PAGE], re.M) or f"`{name}` is the root" in PAGES[PAGE]


def test_quoted_messages_stand_in_the_source(trees: dict[Path, ast.Module]) -> None:
    nodes = (node for tree in trees.values() for node in ast.walk(tree))
    source = "\n".join({text for node in nodes if (text := text_of(node))})
    invented = [
        message
        for message in MESSAGES
        if num_letters(message) < 6 or not pattern(message).search(source)
    ]
    assert not invented, f"no program says these messages of {PAGE}"


def test_messages_of_the_source_are_quoted(
    trees: dict[Path, ast.Module], server_trees: list[ast.Module]
) -> None:
    quoted = [pattern(message) for message in MESSAGES]
    missing = [
        message
        for message in sorted(
            {message for tree in trees.values() for message in messages_of(tree)}
            | {message for tree in server_trees for message in refusals_of(tree)}
        )
        if num_letters(message) > 6  # less only passes other words on
        and not any(one.search(message) for one in quoted)
    ]
    assert not missing, f"{PAGE} has no row for these"


def test_every_code_of_the_server_is_there(server_trees: list[ast.Module]) -> None:
    codes = {code for tree in server_trees for code in codes_of(tree)} | PUT_TOGETHER
    assert len(codes) > 30
    missing = codes - set(re.findall(r"`(\w+)`", section(PAGE, "## The server")))
    assert not missing, f"{PAGE} has no row for these"


def num_letters(message: str) -> int:
    return sum(character.isalpha() for character in message)


def test_every_row_has_a_cause_and_a_cure() -> None:
    assert len(MESSAGES) > 100
    for row in rows(PAGES[PAGE]):
        assert len(row) == 3, row
        assert all(row), row


@pytest.mark.parametrize(
    ("arguments", "heading"),
    [
        (["-t", "-1"], "## InvalidRequest"),
        (["--device", "tpu"], "## InvalidRequest"),
        (["--cuda", "--device", "mps"], "## InvalidRequest"),
        (["--revision", "main"], "## InvalidRequest"),
        (["-p", "x" * 400], "### NeverFits"),
        (["-p", "x" * 300_000], "### NeverFits"),
        (["--num-blocks", "2"], "### NeverFits"),
        (["-m", ""], "### ModelNotFound"),
        (["-m", "no such folder"], "### ModelNotFound"),
        (["-m", "no-such/model-at-all"], "### HubUnreachable"),
        (["-m", __file__], "### ModelNotFound"),
        (["-m", str(Path(__file__).parent)], "### ModelNotFound"),
        (["--device", "cuda:77"], "## DeviceUnavailable"),
        (["--num-blocks", str(2**24), "--block-size", "1024"], "## NotEnoughMemory"),
    ],
)
def test_a_mistake_on_the_command_line_is_found_in_its_section(
    arguments: list[str], heading: str, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path)
    given = ["generate", "-m", str(tmp_path), "-p", "hello", *arguments]
    check_section(CliRunner().invoke(app, given).stderr, heading)


@pytest.mark.parametrize(
    ("damage", "heading"),
    [
        ({"architectures": ["Nope"]}, "### UnknownArchitecture"),
        ({"brand_new_key": 1}, "### ConfigError"),
        ({"hidden_act": "gelu"}, "### ConfigError"),
        ({"quantization_config": {"quant_method": "gptq"}}, "### ConfigError"),
        ({"dtype": "int8"}, "### ConfigError"),
        ({"num_hidden_layers": 9}, "### WeightsMismatch"),
    ],
)
def test_a_damaged_config_is_found_in_its_section(
    damage: dict[str, object], heading: str, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path)
    edit_config(tmp_path, **damage)
    check_section(run_on(tmp_path), heading)


@pytest.mark.parametrize(
    ("name", "content", "heading"),
    [
        ("model.safetensors", None, "### ModelNotFound"),
        ("model.safetensors", b"", "### CheckpointError"),
        (
            "model.safetensors",
            b"version https://git-lfs.github.com/spec/v1\n",
            "### CheckpointError",
        ),
        ("tokenizer.json", None, "### TokenizerError"),
        ("tokenizer.json", b"{}", "### TokenizerError"),
        ("config.json", b"{", "### ConfigError"),
        ("generation_config.json", b'{"temperature": -1}', "### ConfigError"),
        ("chat_template.jinja", b"\xff", "### TemplateError"),
        ("chat_template.jinja", b"{{ nothing.at.all }}", "### TemplateError"),
    ],
)
def test_a_damaged_file_is_found_in_its_section(
    name: str, content: bytes | None, heading: str, tmp_path: Path
) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    check_section(run_on(tmp_path, "--chat"), heading)


def test_a_closed_llm_is_found_in_its_section() -> None:
    llm = LLM("demo", threads=1, num_blocks=4)
    llm.close()
    with pytest.raises(errors.EngineDied) as caught:
        llm.generate("Hello", SamplingParams(max_tokens=1))
    check_section(str(caught.value), "### EngineDied")


def run_on(folder: Path, *options: str) -> str:
    given = ["generate", "-m", str(folder), "-p", "hello", "--max-tokens", "2", *options]
    return CliRunner().invoke(app, given).stderr


def check_section(said: str, heading: str) -> None:
    """Some message quoted under the heading itself, not below it, is what was said."""
    assert said.strip()
    text = re.split(r"^#", section(PAGE, heading), maxsplit=1, flags=re.M)[0]
    quoted = [message for row in rows(text) for message in re.findall(r"`([^`]+)`", row[0])]
    line = " ".join(said.replace("`", "").split())
    assert any(pattern(message).search(line) for message in quoted), said
