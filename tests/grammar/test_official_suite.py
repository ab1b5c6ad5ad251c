"""JSON Schema's official test suite: nothing invalid is accepted, nothing valid refused."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from inferno.grammar.json_schema import UnsupportedSchema, compile_schema
from tests.data import data_path
from tests.grammar.acceptor import Acceptor

SUITE = ("json-schema", "draft2020-12")
FILES = 45 + 14 + 20  # keywords, options, formats

# Schemas that no value satisfies are refused too, and so is what a document elsewhere says.
_REASONS = re.compile(r"#.*(; expected |nothing can satisfy|would need to say |kept to: )")


def groups(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.rglob("*.json")):
        for group in json.loads(path.read_text()):
            yield path.relative_to(folder).with_suffix("").as_posix(), group


def spellings(value: Any) -> Iterator[str]:
    """Yield texts of a value: members in every order, numbers in their shortest digits."""
    if isinstance(value, dict):
        for members in itertools.islice(itertools.permutations(value.items()), 120):
            inner = [list(itertools.islice(spellings(held), 24)) for _, held in members]
            for parts in itertools.product(*inner):
                pairs = zip((name for name, _ in members), parts, strict=True)
                yield "{" + ",".join(f"{_text(name)}:{part}" for name, part in pairs) + "}"
    elif isinstance(value, list):
        inner = [list(itertools.islice(spellings(item), 24)) for item in value]
        for parts in itertools.product(*inner):
            yield "[" + ",".join(parts) + "]"
    elif isinstance(value, float):
        digits = f"{Decimal(repr(value)):f}"
        yield digits.rstrip("0").rstrip(".") if "." in digits else digits
    else:
        yield _text(value)


def other_spellings(value: Any) -> Iterator[str]:
    """Yield texts that a grammar may refuse, but not take for something else."""
    yield json.dumps(value, ensure_ascii=True)
    yield json.dumps(value, indent=2)
    yield json.dumps(value).replace("e", "\\u0065")
    yield re.sub(r"([0-9])(?=[,\]}]|$)", r"\1.0", json.dumps(value))
    yield re.sub(r"([0-9])(?=[,\]}]|$)", r"\1e0", json.dumps(value))
    if isinstance(value, dict) and value:
        name = next(iter(value))
        yield json.dumps(value)[:-1] + f", {_text(name)}: {_text(value[name])}}}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_writable(texts: list[str]) -> bool:
    return not any("\ud800" <= character <= "\udfff" for text in texts for character in text)


def test_every_instance_of_the_official_suite_is_decided_right() -> None:
    wrong = []
    num_kept = 0
    for name, group in groups(data_path(*SUITE)):
        try:
            compact = Acceptor(compile_schema(group["schema"], whitespace=None))
            spaced = Acceptor(compile_schema(group["schema"]))
        except UnsupportedSchema as problem:
            assert _REASONS.match(str(problem)) or "#/" in str(problem), problem
            if "nothing can satisfy" in str(problem):
                assert not any(test["valid"] for test in group["tests"]), problem
            continue
        num_kept += 1
        for test in group["tests"]:
            # By default a format restricts nothing, says the suite; here it does.
            if "only an annotation" in test["description"]:
                continue
            texts = list(itertools.islice(spellings(test["data"]), 200))
            if not _is_writable(texts):
                continue
            if test["valid"]:
                is_right = any(map(compact.accepts, texts))
            else:
                texts += other_spellings(test["data"])
                is_right = not any(map(spaced.accepts, texts))
            if not is_right:
                wrong.append((name, group["description"], test["description"]))
    assert not wrong
    assert num_kept > 300
