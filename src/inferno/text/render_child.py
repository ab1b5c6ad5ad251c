"""Render chat templates in a process apart, for a template is a stranger's program.

This module is run as a script; `limited/child.py` says how. The first line is a list of templates
to compile. A request is `{"template", "variables", "now", "max_chars"}`, and an answer `{"text"}`,
`{"refused"}` with the words of the template's own raise_exception, or `{"error"}`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path += sys.argv[4:]  # no environment variable says where modules are

# Python and Jinja import these four in the midst of work, when a worker can't open files any more.
import encodings.unicode_escape  # noqa: F401
import pprint  # noqa: F401
import textwrap  # noqa: F401
import unicodedata  # noqa: F401

import jinja2
import jinja2.constants
import jinja2.debug
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from inferno.limited.child import work

_MAX_MESSAGE = 500
# U+FDD0 to U+FDEF are no characters: they mark text for the caller, who must find them again.
_NOT_ASCII = re.compile("[^\0-\x7f\ufdd0-\ufdef]")


class Refused(jinja2.TemplateError):
    """The error of a template that called raise_exception, so refuses the messages."""


def _compile_all(templates: list[str]) -> None:
    """Compile templates for all workers to come; errors are told to those who render them."""
    for template in templates:
        with suppress(Exception):
            _compile(template)


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        template = _compile(request["template"])
        clock = {"strftime_now": datetime.fromisoformat(request["now"]).strftime}
        pieces = template.generate({**clock, **request["variables"]})
        return {"text": _join(pieces, request["max_chars"])}
    except Refused as problem:
        return {"refused": str(problem)[:_MAX_MESSAGE]}
    except MemoryError:
        raise
    except Exception as problem:  # a template can raise anything
        return {"error": f"{type(problem).__name__}: {problem}"[:_MAX_MESSAGE]}


def _join(pieces: Iterable[str], max_chars: int) -> str:
    joined: list[str] = []
    num_chars = 0
    for piece in pieces:
        num_chars += len(piece)
        if num_chars > max_chars:
            raise ValueError(f"the prompt is longer than {max_chars:,} characters")
        joined.append(piece)
    return "".join(joined)


@lru_cache(maxsize=8)
def _compile(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _environment() -> _Sandbox:
    # The functions and options that transformers gives to chat templates.
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    functions: dict[str, Callable[..., Any]] = {
        "raise_exception": _raise_exception,
        "namespace": _Namespace,
    }
    environment.globals.update(functions)
    environment.filters["tojson"] = _tojson
    return environment


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, where an attempt to leave is an error even if its result isn't used."""

    def unsafe_undefined(self, obj: object, attribute: str) -> NoReturn:
        raise jinja2.exceptions.SecurityError(
            f"access to attribute {attribute!r} of {type(obj).__name__!r} is unsafe"
        )


class _Generation(Extension):
    """The tag {% generation %}, which marks text for training; it renders as its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """A namespace without underscored names: a `__class__` of its own would fool the sandbox."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        for name in dict(*args[1:], **kwargs):
            _refuse_underscore(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace can't have the name {name!r}")


def _raise_exception(message: object) -> NoReturn:
    raise Refused(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML.
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text) if ensure_ascii else text


if __name__ == "__main__":
    work(_compile_all, _answer)
