"""A regular expression takes twice the time for twice the text, whatever a stranger sends.

The package is walked for them, so that a new one can't be forgotten: each is a constant, or made by
one of the makers below. Those of the chat page, which reads what models say, are tried in Python's
engine, which goes back over a text as browsers' do.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import inferno
from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.server.app import create_app
from inferno.server.settings import ServerSettings
from inferno.text.model_text import ModelText
from inferno.text.special_token_escape import SpecialTokenEscaper
from inferno.text.tools import TOOL_NAME
from tests.near_misses import Use, as_line

SOURCE = Path(inferno.__file__).parent
ROOT = SOURCE.parents[1]
METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
ANY_METHOD = ("match", "fullmatch", "search")
TOKENS = ("<s>", "<|im_end|>", "<|im_start|>", "<|", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")


class Call(NamedTuple):
    """A call of `re` in the source, or a pattern that msgspec is given."""

    module: str
    line: int
    function: str
    pattern: ast.expr
    flags: int
    name: str | None  # of the constant that a module keeps it as

    @property
    def where(self) -> str:
        return f"{self.module}:{self.line}"


# Those that are made at run time: the module, the source of the pattern, and a maker of examples.
MAKERS: dict[tuple[str, str], Callable[[], re.Pattern[Any]]] = {
    ("inferno.machine", "f'^{key}:\\\\s*(\\\\d+) kB$'"): lambda: re.compile(
        r"^MemAvailable:\s*(\d+) kB$", re.MULTILINE
    ),
    ("inferno.server.openai.request_types", "TOOL_NAME"): lambda: re.compile(TOOL_NAME),
    ("inferno.text.special_token_escape", "_beginning_of(_beginnings(self._tokens))"): lambda: (
        SpecialTokenEscaper(TOKENS)._start
    ),
}


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)
        yield name.removesuffix(".__init__"), ast.parse(file.read_text("utf-8"))


def _calls(module: str, tree: ast.Module) -> Iterator[Call]:
    kept = {
        id(statement.value): target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=function), args=[pattern, *_]
            ) if function in (*METHODS, "compile"):
                flags = _flags([*node.args, *(each.value for each in node.keywords)])
                yield Call(module, node.lineno, function, pattern, flags, kept.get(id(node)))
            case ast.Call(func=ast.Name(id="Meta"), keywords=keywords):
                for each in keywords:
                    if each.arg == "pattern":
                        yield Call(module, node.lineno, "search", each.value, 0, None)
            case ast.ImportFrom(module="re"):
                raise AssertionError(f"{module} imports from re: write re.compile, to be found")


def _flags(arguments: list[ast.expr]) -> int:
    """What `re.M` and its like among the arguments say."""
    flags = 0
    for argument in arguments:
        for node in ast.walk(argument):
            match node:
                case ast.Attribute(value=ast.Name(id="re"), attr=name) if name.isupper():
                    flags |= getattr(re, name)
    return flags


def _methods(name: str, trees: list[ast.Module]) -> tuple[str, ...]:
    """How the constant of that name is used; where it is handed on, in any way."""
    uses = [
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    ]
    mentions = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    methods = {method for method in uses if method in METHODS}
    is_handed_on = len(mentions) > len(uses)
    return tuple(sorted(methods | set(ANY_METHOD if is_handed_on else ())))


def _uses() -> Iterator[Use]:
    trees = dict(_modules())
    for module, tree in trees.items():
        for call in _calls(module, tree):
            if call.name is not None:
                compiled = getattr(importlib.import_module(module), call.name)
                # A constant with an underscore is its module's own.
                among = [tree] if call.name.startswith("_") else list(trees.values())
                yield Use.of(f"{call.where} {call.name}", compiled, _methods(call.name, among))
            elif isinstance(call.pattern, ast.Constant):
                function = call.function
                methods = ANY_METHOD if function == "compile" else (function,)
                yield Use.of(call.where, re.compile(call.pattern.value, call.flags), methods)
            else:
                key = module, ast.unparse(call.pattern)
                assert key in MAKERS, f"{call.where}: make it a constant, or give it a maker: {key}"
                yield Use.of(call.where, MAKERS[key](), (*ANY_METHOD, "split", "finditer"))


# What stands before a literal in a script, and where it can be no division.
_LITERAL = re.compile(
    r"(?:[=(!,?:&|]|\breturn)\s*"
    r"/(?![/*])(?P<pattern>(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/(?P<flags>[a-z]*)"
)


def _page_uses() -> Iterator[Use]:
    for script in sorted((SOURCE / "server/page").glob("*.js")):
        for number, line in enumerate(script.read_text("utf-8").splitlines(), start=1):
            for found in _LITERAL.finditer(re.sub(r"(^|\s)//.*", "", line)):
                where = f"{script.name}:{number} {found[0]}"
                sticky, every = "y" in found["flags"], "g" in found["flags"]
                method = "match" if sticky else "finditer" if every else "search"
                pattern = _in_python(found["pattern"], found["flags"])
                yield Use.of(where, re.compile(pattern), (method,))


def _in_python(pattern: str, flags: str) -> str:
    """A pattern of JavaScript's that means the same in Python."""
    assert not set(flags) - set("gsuy"), flags
    any_character = "[^\n\r\u2028\u2029]" if "s" not in flags else "(?s:.)"
    written, is_class = "", False
    for token in re.findall(r"(?s)\\.|.", pattern.replace(r"\p{L}\p{N}", r"\w")):
        if is_class:
            written += r"\[" if token == "[" else token
            is_class = token != "]"
        else:
            written += {".": any_character, "$": r"\Z"}.get(token, token)
            is_class = token == "["
    return written


def _routes() -> Iterator[Use]:
    """What the routes' paths are matched with."""
    settings = ServerSettings(served_model_names=("demo",))
    app = create_app(ScriptedClient(Script()), ModelText(MODEL_FOLDERS["demo"]), settings)
    for route in app.routes:
        pattern = getattr(route, "path_regex", None)
        if pattern is not None:
            yield Use.of(f"route {pattern.pattern}", pattern, ("match",))


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    return [*_uses(), *_page_uses(), *_routes()]


def test_every_module_is_walked(uses: list[Use]) -> None:
    files = {
        file for file in SOURCE.rglob("*.py") if re.search(r"^import re$", file.read_text(), re.M)
    }
    found = {use.where.partition(":")[0] for use in uses}
    assert {".".join(file.relative_to(SOURCE.parent).with_suffix("").parts) for file in files} <= (
        found
    )
    assert all(use.methods for use in uses), [use.where for use in uses if not use.methods]


def test_every_script_of_the_page_that_has_some_is_walked(uses: list[Use]) -> None:
    scripts = [script.name for script in (SOURCE / "server/page").glob("*.js")]
    numbers = {name: sum(use.where.startswith(f"{name}:") for use in uses) for name in scripts}
    assert numbers["inline.js"] >= 10, numbers
    assert numbers["blocks.js"] >= 10, numbers


def test_the_time_grows_with_the_text(uses: list[Use]) -> None:
    told = _tell(uses)
    found = [fault for each in told for fault in each.get("faults", ())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"a:\s*b?\s*!", "match"),  # two repetitions that share a character
        (r"<[|].+[|]>", "search"),  # one that each place of a text could begin
        (r"\s+$", "search"),
        (r"(?:x+x+)+y", "match"),  # and one that would never end
    ],
)
def test_a_bad_one_is_found(pattern: str, method: str) -> None:
    told = _tell([Use.of("here", re.compile(pattern), (method,))], seconds=3)
    assert told[-1]["faults"], told


def _tell(uses: list[Use], *, seconds: float = 60) -> list[dict[str, Any]]:
    """What the script says of each; one that takes more seconds of processor is a fault."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.near_misses", str(seconds)],
        input="".join(map(as_line, uses)),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    told: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode and told:
        assert "trying" in told[-1], done.stderr
        told.append({"faults": [f"{told[-1]['trying']}: it was ended, or {done.stderr}"]})
    assert told, done.stderr
    return told
