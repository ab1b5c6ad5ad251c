"""Tools in a chat: a file of them, the calls of a model as people read them, and results."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from inferno.errors import InvalidRequest, ModelError
from inferno.json_file import MAX_JSON_BYTES, read_file
from inferno.text.parsers.answer import ToolCall
from inferno.text.tools import Tools, read_tools
from inferno.untrusted_json import Malformed, parse_object, parse_value

NO_RESULT = "no result"
RESULT_HINT = (
    "An empty line is no result, @FILE is what a file holds, Ctrl+C takes the message back."
)
_MAX_RESULT_BYTES = 1 << 20
_LINE_END = re.compile(r"[\r\n]")


def read_tools_file(path: Path) -> Tools:
    """Return the tools in a JSON file: a list as OpenAI's API takes it, or {"tools": the list}.

    InvalidRequest names the file, and what in it is no tool.
    """
    content = _read(path, MAX_JSON_BYTES)
    try:
        given = parse_value(content.removeprefix(b"\xef\xbb\xbf"))
        if isinstance(given, dict) and given.keys() == {"tools"}:
            given = given["tools"]
        if not isinstance(given, list):
            held = f"an object of {', '.join(given)}" if isinstance(given, dict) else repr(given)
            raise InvalidRequest(
                f'it must be a list of tools, or {{"tools": [...]}}, not {held[:80]}'
            )
        tools = read_tools(given)
        if tools is None:
            raise InvalidRequest("its list of tools is empty")
    except (Malformed, InvalidRequest) as problem:
        raise InvalidRequest(f"{path}: {problem}", param="tools") from None
    return tools


def result_of(line: str) -> str:
    """Return the result that a line gives: itself, the text of a file, or that there is none.

    InvalidRequest where a file can't be read.
    """
    if not line.strip():
        return NO_RESULT
    if line.startswith("@@") or not line.startswith("@"):
        return line.removeprefix("@") if line.startswith("@@") else line
    path = Path(os.path.expanduser(line[1:].strip()))
    try:
        return _read(path, _MAX_RESULT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"{path} is not UTF-8 text ({problem})") from None


def call_line(call: ToolCall) -> str:
    """Return a call as one line for a program: `call`, the name, the arguments in JSON."""
    arguments = call.arguments
    try:
        parse_object(arguments.encode())
    except (Malformed, UnicodeEncodeError):
        arguments = json.dumps(arguments)  # of what is no JSON: as a text in JSON
    else:
        # No string in JSON holds an end of a line.
        arguments = " ".join(filter(None, map(str.strip, _LINE_END.split(arguments))))
    return f"call {call.name} {arguments}"


def argument_lines(arguments: str) -> list[str]:
    """Return the arguments of a call for people: as indented JSON, or as they are."""
    try:
        found = parse_object(arguments.encode())
    except (Malformed, UnicodeEncodeError):
        return arguments.splitlines()
    return json.dumps(found, indent=2, ensure_ascii=False).splitlines() if found else []


def _read(path: Path, most: int) -> bytes:
    try:
        return read_file(path, error=ModelError, max_bytes=most)
    except ModelError as problem:  # which is what a model's files raise
        raise InvalidRequest(str(problem), param="tools") from None
