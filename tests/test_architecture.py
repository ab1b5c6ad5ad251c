"""The house rules: who may import whom, no cycles, imports at the top, a complete map."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from import_graph import PACKAGE, SOURCE, Kind, imports_of, module_of, package_files, shape

ROOT = Path(__file__).resolve().parents[1]
FILES = list(package_files().values())
NATIVE = [path for end in ("h", "cpp") for path in (ROOT / "native").rglob(f"*.{end}")]

# A room may import from itself, from these, and from the plain-data modules below.
MAY_IMPORT = {
    "cli": {
        *("llm", "server", "engine", "text", "hub", "client", "demo", "gguf", "model_files"),
        *("bench", "verify", "inferno", "plan", "convert", "lint"),
    },
    "convert": {"models", "layers", "ops", "weights", "text", "gguf", "model_files"},
    "plan": {"gguf", "model_files", "hub"},
    "lint": {"gguf", "model_files", "hub", "text"},
    "llm": {"engine", "text", "loaded_model"},
    "async_llm": {"llm", "engine", "text", "loaded_model"},
    "loaded_model": {"engine", "text", "hub", "client", "gguf"},
    "verify": {
        *("engine", "models", "layers", "ops", "weights", "text", "inferno", "model_files", "gguf"),
    },
    "bench": {"engine", "models", "layers", "ops", "weights", "inferno"},
    "server": {"client", "text", "inferno"},
    "client": set(),
    "engine": {
        *("models", "layers", "ops", "weights", "model_files", "plan", "hub", "limited"),
        *("grammar", "gguf"),
    },
    "grammar": set(),
    "models": {"layers", "weights", "ops"},
    "layers": {"ops"},
    "weights": {"ops", "gguf"},
    "hub": {"demo", "gguf"},
    "gguf": set(),
    "model_files": {"gguf"},
    "ops": {"_native"},
    "text": {"model_files", "limited"},
    "limited": set(),
    "demo": set(),
    "inferno": {"llm", "async_llm"},
    "__main__": {"cli"},
}
PLAIN_DATA = {
    *("requests", "sampling_params", "errors", "options", "machine", "parameters", "out_of_memory"),
    *("json_file", "untrusted_json", "http_post", "log_format", "extras", "quantization"),
    *("home", "structured", "option_table", "file_identity", "whole_file", "config"),
    *("torch_start", "surrogates", "compiled_kernels"),
}
EXCEPTIONS = {
    "client/inline.py": {"engine"},
    "engine/process/serve.py": {"client"},
    "engine/process/fingerprint.py": {"inferno"},
}
TORCH_FREE = (
    "config/",
    "gguf/",
    "limited/",
    "model_files.py",
    "text/",
    "server/",
    "cli/",
    "hub/",
    "plan/",
    "lint/",
    "client/__init__.py",
)
TORCH_FREE_ENGINE = (
    "engine/scheduling/",
    "engine/step_plan.py",
    "engine/kv/block_",
    "engine/kv/offload.py",
    "engine/execution/known_sequences.py",
    "engine/proposers/ngram.py",
    "engine/proposers/prediction.py",
)
ONLY_IN = {
    "triton": "ops/cuda/",
    "_native": "ops/cpu/",
    "fastapi": "server/",
    "llguidance": "engine/sampling/grammar",
    "opentelemetry": "server/http/tracing.py",
    "transformers": "verify/oracles/hf_transformers.py",
    "llama_cpp": "verify/oracles/llamacpp_child.py",
}
# Functions that import on purpose: to start fast, or because the name is known only then.
LAZY = {
    "__init__.py",
    "cli/__init__.py",
    "cli/app.py",
    "cli/download.py",
    "cli/errors.py",
    "cli/model_options.py",
    "cli/models.py",
    "cli/plan.py",
    "cli/play.py",
    "cli/serve.py",
    "cli/warmup.py",
    "cli/worker.py",
    "convert/__init__.py",
    "engine/build.py",
    "server/http/run.py",
    "hub/__init__.py",
    "models/__init__.py",
    "ops/dispatch.py",
    "torch_start.py",
    "verify/__init__.py",
    "verify/oracles/choose.py",
}


def _name(path: Path) -> str:
    return path.relative_to(SOURCE / PACKAGE).as_posix()


def _imported(path: Path) -> list[str]:
    """Return the modules that a file imports, but for those that only the type checker sees."""
    return [each.module for each in imports_of(path) if each.kind is not Kind.TYPES]


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "inferno"


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    room = _room(module_of(path))
    allowed = MAY_IMPORT.get(room, set()) | EXCEPTIONS.get(_name(path), set()) | PLAIN_DATA | {room}
    if room in PLAIN_DATA:
        allowed = PLAIN_DATA
    for module in _imported(path):
        if module.split(".")[0] == "inferno":
            target = _room(module)
            assert target in allowed, f"{_name(path)} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_devices_and_frameworks_stay_where_they_belong(path: Path) -> None:
    name = _name(path)
    for module in _imported(path):
        top = module.split(".")[0]
        if top in ("torch", "inferno") and name.startswith(TORCH_FREE + TORCH_FREE_ENGINE):
            assert top != "torch", f"{name} imports torch"
        for library, place in ONLY_IN.items():
            assert library not in module.split(".") or name.startswith(place), f"{name}: {module}"


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_imports_stand_at_the_top(path: Path) -> None:
    if _name(path) in LAZY:
        return
    nested = [each.module for each in imports_of(path) if each.kind is Kind.LATE]
    assert not nested, f"{_name(path)} imports inside a block: {nested}"


@pytest.mark.parametrize(
    "module",
    [
        "inferno.cli.app",
        "inferno.text.sequence_texts",
        "inferno.text.chat",
        "inferno.hub.find",
        "inferno.client",
        "inferno.server.app",
        "inferno.engine.scheduling.scheduler",
        "inferno.options",
    ],
)
def test_what_must_start_fast_brings_no_torch(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_no_import_cycles() -> None:
    # A package's __init__ that imports its own modules is a table of contents, not a cycle.
    assert shape(list(package_files()), package_files()).cycles == []


# Constants of one name and value in several files that are not one fact, and why.
SEVERAL_FACTS = {
    "ALIGNMENT": "of memory, and of a file's parts",
    "BLOCK_SIZE": "of each check's own engines",
    "BLOCK": "of a vocabulary, and of a table of characters",
    "CHUNK_BYTES": "plan/ imports no torch; tests/plan/test_memory.py holds both together",
    "GROUP": "verify's oracles share nothing with what they check",
    "MAX_ELEMENTS": "each format's reader has bounds of its own",
    "PANEL": "names of a fact that stands elsewhere",
    "POLL_SECONDS": "two loops that wait for different things",
    "SURROGATE": "what is refused of requests, and replaced in texts",
    "FP8_GROUP": "verify's oracles share nothing with what they check",
    "UNIT_32": "verify's oracles share nothing with what they check",
    "VERSION": "each file format counts its own",
}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the constants of a module, by their names without an underscore, and their values."""
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id.removeprefix("_")
            if name.isupper() and len(name) > 1 and name != "TYPE_CHECKING":
                yield name, ast.unparse(node.value)


def test_a_fact_stands_in_one_file() -> None:
    files = defaultdict(list)
    for path in FILES:
        for constant in _constants(path):
            files[constant].append(_name(path))
    twice = {constant: names for constant, names in files.items() if len(names) > 1}
    assert not {key: names for key, names in twice.items() if key[0] not in SEVERAL_FACTS}
    assert {name for name, _ in twice} == set(SEVERAL_FACTS)


def test_no_file_is_too_long() -> None:
    assert shape(list(package_files()), package_files()).long == []


# Files of under 80 lines that one other file imports, and why they are not part of it. The aim was
# ten; but formats, families of models, commands, endpoints and what is imported late are apart on
# purpose, for a reader finds them by the file's name.
SHORT_FILES = {
    "convert/pre_tokenizer.py": "the names of llama.cpp's rules, looked for by name",
    "engine/execution/torch_threads.py": "owns PyTorch's number of threads in a process",
    "engine/process/fault_injection.py": "for tests alone, apart from what runs always",
    "engine/process/fingerprint.py": "how two processes know that they are of the same code",
    "engine/process/own_process.py": "what an engine does to its own process: memory, signals",
    "engine/sampling/bad_words.py": "an algorithm of its own",
    "engine/scheduling/limits.py": "what could never run",
    "models/qwen3.py": "a file per family of models",
    "ops/cpu/mixture.py": "a file per family of kernels",
    "ops/cuda/compiling.py": "imported late, for those who wait for kernels",
    "ops/reference/collectives.py": "a file per kind of ops",
    "ops/observing.py": "the public way to watch ops",
    "quantization/floats.py": "a file per weight format",
    "quantization/fp8.py": "a file per weight format",
    "quantization/int4.py": "a file per weight format",
    "server/http/access_log.py": "what a reader of the log looks for",
    "server/http/tracing.py": "an extra, imported late",
    "server/openai/models.py": "a file per endpoint",
    "server/openai/tokenize.py": "a file per endpoint",
    "server/worker/start.py": "imported late, so that other commands start fast",
    "weights/known_files.py": "a file of our own, with a format of its own",
}


def test_short_files_with_one_importer_have_a_reason() -> None:
    assert sorted(shape(list(package_files()), package_files()).short) == sorted(SHORT_FILES)


def test_the_map_names_every_module() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## The tree")[2].partition("\n## ")[0]
    named = Counter(re.findall(r"(?<![\w/])\w+\.py\b", tree))  # but for paths, which only point
    files = Counter(path.name for path in FILES if path.stem != "__init__")
    missing = {name: count for name, count in files.items() if named[name] < count}
    assert not missing, f"the tree in ARCHITECTURE.md does not name as many files as {missing}"


def test_the_map_names_every_folder_of_the_kernels() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = {path.parent.name for path in NATIVE if path.parent != ROOT / "native"}
    assert folders
    assert not [name for name in folders if f"  {name}/" not in text]


def test_no_file_of_the_kernels_is_too_long() -> None:
    assert not [path.name for path in NATIVE if len(path.read_text().splitlines()) > 600]


def test_kernels_ask_for_no_packing_by_name() -> None:
    known = {"contract/packings.h", "kernels/linear/stored.h"}
    for path in NATIVE:
        name = path.relative_to(ROOT / "native").as_posix()
        if name not in known and not name.startswith(("bench/", "tests/")):
            assert not re.search(r"Packing::|\w\dPacking\b", path.read_text()), name


def test_every_file_opens_with_what_it_is_for() -> None:
    silent = [_name(path) for path in FILES if not ast.get_docstring(_tree(path))]
    assert not silent
