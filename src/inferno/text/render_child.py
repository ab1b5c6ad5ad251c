"""The process that renders chat templates: a template is a stranger's program, so it runs apart.

One JSON object per line comes in, `{"template", "variables", "cpu_seconds", "max_chars"}`, and one
goes out: `{"text"}`, `{"refused"}` with the words of the template's own raise_exception, or
`{"error"}`. Too much time or memory ends the process; so does the end of its input. It runs as a
script and imports Jinja and the standard library only, to start in a tenth of a second.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_MEMORY = 512 * 2**20
_MAX_MESSAGE = 500
# U+FDD0 to U+FDEF are no characters: they mark text for the caller, who must find them again.
_NOT_ASCII = re.compile("[^\0-\x7f\ufdd0-\ufdef]")


class Refused(jinja2.TemplateError):
    """The template called raise_exception: it does not take these messages."""


def main() -> None:
    """Answer requests until there are no more."""
    _limit_resources()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # SIGPROF ends the process, also where it is busy in C.
        signal.setitimer(signal.ITIMER_PROF, request["cpu_seconds"])
        answer = _answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit_resources() -> None:
    for limit, value in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # macOS knows no RLIMIT_AS
            resource.setrlimit(limit, (value, value))


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        template = _compile(request["template"])
        return {"text": _join(template.generate(request["variables"]), request["max_chars"])}
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
        "strftime_now": _strftime_now,
        "namespace": _Namespace,
    }
    environment.globals.update(functions)
    environment.filters["tojson"] = _tojson
    return environment


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, but an attempt to leave it is an error even where the result isn't used."""

    def unsafe_undefined(self, obj: object, attribute: str) -> NoReturn:
        raise jinja2.exceptions.SecurityError(
            f"access to attribute {attribute!r} of {type(obj).__name__!r} is unsafe"
        )


class _Generation(Extension):
    """{% generation %} marks, for training, what the assistant says; it renders as its content."""

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


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


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
    main()
