"""A conversation as a file: JSON or Markdown, by the file's suffix."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from inferno.cli.chat.session import Session, Turn
from inferno.cli.chat.settings import SETTINGS
from inferno.cli.chat.tools import argument_lines
from inferno.errors import InvalidRequest
from inferno.whole_file import whole_file


def save(session: Session, path: Path, *, force: bool) -> None:
    """Write the conversation, all of it or nothing; an existing file is replaced only by force.

    InvalidRequest where the suffix is unknown, nothing was said or the file exists; OSError where
    writing fails.
    """
    writers = {".json": as_json, ".md": as_markdown}
    if path.suffix not in writers:
        raise InvalidRequest(f"the file's name must end in .json or .md, not {path.name!r}")
    if not session.turns:
        raise InvalidRequest("there is nothing to save yet; send a message first")
    if not force and os.path.lexists(path):
        raise InvalidRequest(f"{path} exists; /save {path} --force replaces it")
    try:
        with whole_file(path, prefix=".transcript-") as file:
            file.write(writers[path.suffix](session).encode(errors="replace"))
    except OSError as problem:  # which knows only of a temporary file
        raise OSError(problem.errno, problem.strerror, str(path)) from None
    except ValueError:  # a NUL in the path
        raise InvalidRequest(f"{str(path)!r} can't be the name of a file") from None


def as_json(session: Session) -> str:
    """Return model, settings and messages as JSON; an answer that was stopped is marked."""
    content = {
        "model": session.name,
        "settings": {name: getattr(session.params, name) for name in SETTINGS},
        "messages": [
            *([{"role": "system", "content": session.system}] if session.system else []),
            *(message for turn in session.turns for message in _messages(turn)),
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_markdown(session: Session) -> str:
    """Return the messages under headings."""
    parts = [f"# Conversation with {session.name}"]
    if session.system:
        parts.append(f"## System\n\n{session.system}")
    for turn in session.turns:
        mark = " (stopped)" if turn.completion is None else ""
        parts.append(f"## User\n\n{turn.question}")
        for part in turn.called:
            if part.answer.reasoning:
                parts.append(f"## Reasoning\n\n{part.answer.reasoning}")
            if part.answer.content:
                parts.append(f"## Assistant\n\n{part.answer.content}")
            for call, result in zip(part.answer.tool_calls, part.results, strict=True):
                arguments = "\n".join(argument_lines(call.arguments))
                parts.append(f"## Call of {call.name}\n\n{_fenced(arguments)}")
                parts.append(f"## Result\n\n{_fenced(result)}")
        if turn.reasoning:
            parts.append(f"## Reasoning\n\n{turn.reasoning}")
        parts.append(f"## Assistant{mark}\n\n{turn.answer}")
    return "\n\n".join(parts) + "\n"


def _messages(turn: Turn) -> list[dict[str, Any]]:
    mark = {"stopped": True} if turn.completion is None else {}
    messages: list[dict[str, Any]] = [{"role": "user", "content": turn.question}]
    for part in turn.called:
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in part.answer.tool_calls
        ]
        messages.append(
            {
                "role": "assistant",
                "content": part.answer.content or None,
                **_reasoning(part.answer.reasoning),
                "tool_calls": calls,
            }
        )
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, part.results, strict=True)
        ]
    answer = {"role": "assistant", "content": turn.answer, **_reasoning(turn.reasoning), **mark}
    return [*messages, answer]


def _reasoning(text: str) -> dict[str, str]:
    return {"reasoning": text} if text else {}


def _fenced(text: str) -> str:
    """Return a text as a block of code, whatever fences it holds itself."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
