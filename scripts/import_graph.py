"""Count files and the imports between them: the shape of the house in figures.

python scripts/import_graph.py [FOLDER...] [--json] [--name WORD]

A folder (engine, server/http) narrows the counts to its own files; without one every folder of
src/inferno has a row. `--name` counts the files whose code mentions an identifier, such as
temperature.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = "inferno"
LONG, SHORT = 600, 80  # lines of a file that is too long; of one that its only importer could hold


class Kind(StrEnum):
    """When an import happens."""

    TOP = "top"  # with the module
    LATE = "late"  # in a function or a block, or by import_module
    TYPES = "types"  # for the type checker only


@dataclass(frozen=True, slots=True)
class Import:
    """An import of a module, by whichever words."""

    module: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The figures of a set of files.

    arrows          imports between two of the files, each pair once: at the top, late, for types.
    arrows_out      imports of other files of the package, at any time.
    cycles          sets of files that import each other at the top, directly or not.
    long            files of more than LONG lines.
    short           files of fewer than SHORT lines that one other file of the package imports.
    """

    files: int
    lines: int
    median_lines: int
    arrows: Mapping[str, int]
    arrows_out: int
    cycles: list[list[str]]
    long: list[str]
    short: list[str]


def main() -> None:
    """Print the figures of each folder, or of the folders that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--json", action="store_true", help="all figures, for programs")
    parser.add_argument("--name", help="list the files whose code mentions this identifier")
    arguments = parser.parse_args()
    files = package_files()
    if arguments.name is not None:
        names = [name for name in files if mentions(files[name], arguments.name)]
        print(json.dumps(names) if arguments.json else "\n".join([*names, f"{len(names)} files"]))
        return
    folders = arguments.folders or ["", *sorted({name.split("/")[0] for name in files})]
    shapes = {
        folder or PACKAGE: shape([name for name in files if is_in(name, folder)], files)
        for folder in folders
    }
    if arguments.json:
        print(json.dumps({folder: asdict(each) for folder, each in shapes.items()}, indent=1))
    else:
        _print(shapes)


def package_files() -> dict[str, Path]:
    """Return the package's source files by their names, such as engine/step_plan.py."""
    root = SOURCE / PACKAGE
    return {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}


def is_in(name: str, folder: str) -> bool:
    """Return whether a file is that one, or lies in that folder; "" is the whole package."""
    return not folder or name == folder or name.startswith(folder.rstrip("/") + "/")


def module_of(path: Path) -> str:
    """Return the dotted name of a source file's module."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, Path]:
    """Return the package's modules, by dotted name."""
    return {module_of(path): path for path in package_files().values()}


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return each import of a file; what is imported from a package is the module of that name."""
    return tuple(_imports(ast.parse(path.read_text())))


def shape(names: list[str], files: Mapping[str, Path]) -> Shape:
    """Return the figures of these files among all files of the package."""
    inside = {module_of(files[name]): name for name in names}
    lines = {name: len(files[name].read_text().splitlines()) for name in names}
    arrows: dict[tuple[str, str], Kind] = {}
    num_out = set()
    for module in inside:
        for each in imports_of(modules()[module]):
            if each.module == module or each.module not in modules():
                continue
            pair = (module, each.module)
            if each.module in inside:
                arrows[pair] = min(arrows.get(pair, each.kind), each.kind, key=list(Kind).index)
            else:
                num_out.add(pair)
    importers = _importers()
    counts = Counter(arrows.values())
    return Shape(
        files=len(names),
        lines=sum(lines.values()),
        median_lines=sorted(lines.values())[len(lines) // 2] if lines else 0,
        arrows={kind.value: counts[kind] for kind in Kind},
        arrows_out=len(num_out),
        cycles=_cycles({pair for pair, kind in arrows.items() if kind is Kind.TOP}),
        long=[name for name in names if lines[name] > LONG],
        short=[
            name
            for module, name in inside.items()
            if lines[name] < SHORT
            and not name.endswith("__init__.py")
            and len(importers[module]) == 1
        ],
    )


def mentions(path: Path, name: str) -> bool:
    """Return whether a file's code, beside its docstrings and comments, has this identifier."""
    for node in ast.walk(ast.parse(path.read_text())):
        found: str | None = None
        if isinstance(node, ast.Name):
            found = node.id
        elif isinstance(node, ast.Attribute):
            found = node.attr
        elif isinstance(node, ast.arg | ast.keyword):
            found = node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = node.value
        if found == name:
            return True
    return False


def _imports(tree: ast.Module) -> Iterator[Import]:
    nodes = list(ast.walk(tree))
    top = set(map(id, tree.body))
    typing_only = {
        id(child)
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    for node in nodes:
        is_top = id(node) in top
        kind = Kind.TYPES if id(node) in typing_only else Kind.TOP if is_top else Kind.LATE
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, kind) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = node.args[0]
            module = name.value if isinstance(name, ast.Constant) else ast.unparse(name)
            yield Import(str(module), Kind.LATE)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = whole in modules() or whole == f"{PACKAGE}._native"
                yield Import(whole if is_module else node.module, kind)


def _importers() -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {module: set() for module in modules()}
    for module, path in modules().items():
        for each in imports_of(path):
            if each.module in found and each.module != module:
                found[each.module].add(module)
    return found


def _cycles(arrows: set[tuple[str, str]]) -> list[list[str]]:
    """Return the sets of modules that reach each other."""
    after: dict[str, set[str]] = {}
    for source, target in arrows:
        after.setdefault(source, set()).add(target)

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in after.get(left.pop(), set()) - seen:
                seen.add(target)
                left.append(target)
        return seen

    reach = {module: reachable(module) for module in after}
    found = {
        tuple(sorted(other for other in reach[module] if module in reach.get(other, set())))
        for module in after
        if module in reach[module]
    }
    return [list(cycle) for cycle in sorted(found)]


def _print(shapes: Mapping[str, Shape]) -> None:
    head = ("folder", "files", "lines", "median", "arrows", "late", "types", "out", "cycles")
    print("".join(f"{word:>{16 if word == 'folder' else 8}}" for word in head), "   long  short")
    for folder, each in shapes.items():
        figures = (
            *(each.files, each.lines, each.median_lines),
            *(each.arrows[kind] for kind in Kind),
            *(each.arrows_out, len(each.cycles)),
        )
        print(
            f"{folder:>16}",
            "".join(f"{figure:8}" for figure in figures),
            f"{len(each.long):6} {len(each.short):6}",
        )
    for folder, each in shapes.items():
        for word, names in (("cycle", map(" ".join, each.cycles)), ("long", each.long)):
            for name in names:
                print(f"{word} in {folder}: {name}")


if __name__ == "__main__":
    main()
