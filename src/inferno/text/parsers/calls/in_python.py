"""Read Llama's calls, in JSON or Python, and turn Python's literals into JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from inferno.text.parsers.calls.in_json import read_list, read_object
from inferno.text.parsers.calls.syntax import PYTHON_TAG
from inferno.text.parsers.calls.text import MARKS, AnswerText, NoCall, Steps

_WORD = re.compile(r"[\w.]+")
_OUTSIDE = re.compile(rf"[^'\"()\[\]{{}},{MARKS}]+")
_INSIDE = re.compile(rf"[^'\"\\{MARKS}]+")
_OPENS, _CLOSES = "([{", ")]}"
_BUILT_IN = ".call"  # brave_search.call(query="...")

_TOKEN = re.compile(
    r"""
    (?P<text>'[^'\\\n]*(?:\\[^\n][^'\\\n]*)*'|"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*")
    |(?P<word>True|False|None|true|false|null)\b
    |(?P<number>[+-]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?)(?![\w.])
    |(?P<bracket>[()\[\]{}])
    |(?P<sign>[,:]\s*)
    |(?P<space>\s+)
    """,
    re.VERBOSE,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_BRACKETS = str.maketrans("()", "[]")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ESCAPES = {
    **dict(zip("\\'\"", "\\'\"", strict=True)),
    **dict(zip("ntrbfav", "\n\t\r\b\f\a\v", strict=True)),
}
_SURROGATE = re.compile(f"[{MARKS}]")


def read_llama(text: AnswerText, names: Mapping[str, object]) -> Steps[None]:
    """Read an answer that consists of calls, or calls after `<|python_tag|>`.

    Without a mark, a text is a call only if it names a tool of the request.
    """
    yield from text.space()
    if (character := (yield from text.peek())) and character in "{[":
        yield from _try_calls(text, names, is_bare=True)
    while (yield from text.content((PYTHON_TAG,))):
        yield from _try_calls(text, names, is_bare=False)


def _try_calls(text: AnswerText, names: Mapping[str, object], *, is_bare: bool) -> Steps[None]:
    try:
        yield from _read_calls(text, names, is_bare)
    except NoCall:
        text.refuse()


def _read_calls(text: AnswerText, names: Mapping[str, object], is_bare: bool) -> Steps[None]:
    """Read calls with semicolons between them, or a list of calls."""
    known = names if is_bare else None

    def read_call() -> Steps[None]:
        if (yield from text.peek()) == "{":
            yield from read_object(text, known)
        else:
            yield from _read_python(text, names, is_bare)

    while True:
        yield from text.space()
        if (yield from text.mark("[")):
            yield from read_list(text, read_call)
        else:
            yield from read_call()
        text.forget()
        yield from text.space()
        if not (yield from text.mark(";")):
            return


def _read_python(text: AnswerText, names: Mapping[str, object], is_bare: bool) -> Steps[None]:
    """Read a call `name(key=value, ...)`, and announce it once its first argument is known."""
    name = yield from text.run(_WORD)
    if name not in names:
        name = name.removesuffix(_BUILT_IN)
    if not _is_dotted(name) or (is_bare and name not in names):
        raise NoCall
    yield from text.expect("(")
    before, is_told = "{", False
    while True:
        yield from text.space()
        if (yield from text.mark(")")):
            break
        key = yield from text.run(_WORD)
        yield from text.space()
        yield from text.expect("=")
        value = python_to_json((yield from _read_value(text)))
        if value is None or not key.isidentifier():
            raise NoCall
        if not is_told:
            text.tell(name)
            is_told = True
        text.argue(f"{before}{as_json(key)}: {value}")
        text.forget()
        before = ", "
        if not (yield from text.mark(",")):
            yield from text.expect(")")
            break
    if not is_told:
        text.tell(name)
        text.argue("{")
    text.argue("}")
    text.forget()


def _read_value(text: AnswerText) -> Steps[str]:
    """Pass all up to the comma or bracket that ends a value, and return it."""
    parts: list[str] = []
    depth = 0
    quote = ""
    while character := (yield from text.peek()):
        if part := text.some(_INSIDE if quote else _OUTSIDE):
            parts.append(part)
            continue
        if not quote and not depth and character in ",)]}":
            return "".join(parts)
        if not (part := text.one()):
            break  # a mark
        parts.append(part)
        if quote and character == "\\":
            if (yield from text.peek()):
                parts.append(text.one())
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in _OPENS) - (character in _CLOSES)
    raise NoCall


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def python_to_json(literal: str) -> str | None:
    """Return a Python literal as JSON; None for a text that is no literal or has no JSON."""
    parts: list[str] = []
    at = 0
    while at < len(literal):
        if not (token := _TOKEN.match(literal, at)):
            return None
        parts.append(_token_in_json(token))
        at = token.end()
    written = "".join(parts).strip()
    return written if is_json(written) else None


def _token_in_json(token: re.Match[str]) -> str:
    text = token[0]
    match token.lastgroup:
        case "text":
            return as_json(_ESCAPE.sub(_meaning, text[1:-1]))
        case "word":
            return _WORDS.get(text, text)
        case "number":
            return _number(text)
        case "sign":
            return f"{text[0]} "
        case "space":
            return " "
    return text.translate(_BRACKETS)


def _number(text: str) -> str:
    digits = text.replace("_", "").removeprefix("+")
    if digits.lstrip("-").startswith("."):
        digits = digits.replace(".", "0.", 1)
    return re.sub(r"\.(?!\d)", ".0", digits)


def _meaning(escape: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if digits := escape[group]:
            code = int(digits, base)
            return chr(code) if code <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(escape[5], escape[0])


def as_json(text: str) -> str:
    """Return a text as a JSON string in which only surrogates are escaped."""
    written = json.dumps(text, ensure_ascii=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def is_json(text: str) -> bool:
    """Return whether a text is a JSON value; keys may be repeated."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
