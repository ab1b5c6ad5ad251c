"""The meaning of a line of input: a message for the model, or a command such as /set."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inferno.cli.chat.session import Session
from inferno.cli.chat.settings import change_setting, describe_settings
from inferno.cli.chat.stats import describe_stats
from inferno.cli.chat.transcript import save
from inferno.errors import InvalidRequest

_SPACES = re.compile(r"\s+")
_SPACES_OR_EQUALS = re.compile(r"[\s=]+")
_CONTEXT, _TRIM, _KEEP = "context", "trim", "keep"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a line: something to show, a question for the model, or the end."""

    text: str = ""
    question: str | None = None
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its spelling, its effect in a few words, and the function that runs it."""

    usage: str
    about: str
    run: Callable[[str], Outcome]


class Commands:
    """The commands over one conversation; `keys` is what /help says of the keyboard."""

    def __init__(self, session: Session, keys: str = "") -> None:
        self._session = session
        self._keys = keys
        self._defaults = session.params
        self._table = {
            "help": Command("/help", "show this", self._help),
            "set": Command("/set [NAME VALUE]", "show or change settings", self._set),
            "system": Command("/system [TEXT]", 'show or change it; "" for none', self._system),
            "retry": Command("/retry", "drop the last answer, ask again", self._retry),
            "trim": Command("/trim [N]", "drop the N oldest turns", self._trim),
            "reset": Command("/reset", "begin a new conversation", self._reset),
            "stats": Command("/stats", "tokens, speed, memory", self._stats),
            "tools": Command("/tools", "list the model's tools", self._tools),
            "save": Command("/save FILE", "as .json or .md; --force replaces", self._save),
            "exit": Command("/exit", "leave", self._exit),
            "quit": Command("/quit", "leave", self._exit),
        }

    @property
    def names(self) -> list[str]:
        """Return the commands as they are typed."""
        return [f"/{name}" for name in self._table]

    def run(self, line: str) -> Outcome:
        """Do what the line says; InvalidRequest, TemplateError and OSError say why it can't."""
        if line.startswith("//"):
            return Outcome(question=line[1:])
        if not line.startswith("/"):
            return Outcome(question=line if line.strip() else None)
        name, argument = _split(line[1:])
        if name == "save!":
            name, argument = "save", f"{argument} --force"
        if name not in self._table:
            raise InvalidRequest(self._unknown(name))
        return self._table[name].run(argument)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._table, n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists the commands."
        return f"there is no command /{name[:40]}; {hint} (// sends a message that begins with /)"

    def _help(self, argument: str) -> Outcome:
        width = max(len(command.usage) for command in self._table.values())
        lines = [f"{command.usage:<{width}}  {command.about}" for command in self._table.values()]
        lines += ["A message that begins with // is sent with one slash."]
        return Outcome("\n".join([*lines, *([self._keys] if self._keys else [])]))

    def _set(self, argument: str) -> Outcome:
        session = self._session
        if not argument:
            context = _KEEP if not session.trims else _TRIM
            return Outcome(f"{describe_settings(session.params)}\n{_CONTEXT} {context}")
        name, text = _split(argument, between=_SPACES_OR_EQUALS)
        if not text:
            raise InvalidRequest(f"give a value as well: /set {name} VALUE")
        if name == _CONTEXT:
            return self._set_context(text)
        session.params = change_setting(session.params, self._defaults, name, text)
        return Outcome(f"{name} = {getattr(session.params, name)}")

    def _set_context(self, text: str) -> Outcome:
        """Set whether the oldest turns are dropped where a message finds the context full."""
        if text not in (_TRIM, _KEEP, "default"):
            raise InvalidRequest(
                "context must be trim, which drops the oldest turns by itself, or keep, "
                f"not {text[:40]!r}"
            )
        self._session.trims = text == _TRIM
        what = "dropped by themselves" if self._session.trims else "kept until /trim or /reset"
        return Outcome(f"where the context is full, the oldest turns are {what}")

    def _system(self, argument: str) -> Outcome:
        if not argument:
            return Outcome(self._session.system or "there is no system prompt")
        self._session.system = "" if argument == '""' else argument
        what = "the system prompt holds" if self._session.system else "there is no system prompt"
        return Outcome(f"{what} from the next message on")

    def _retry(self, argument: str) -> Outcome:
        return Outcome(question=self._session.retry())

    def _trim(self, argument: str) -> Outcome:
        if not re.fullmatch(r"\d{0,9}", argument):
            raise InvalidRequest(f"/trim takes a number of turns, not {argument[:40]!r}")
        num_turns, num_dropped = len(self._session.turns), int(argument or "1")
        if num_dropped > num_turns:
            raise InvalidRequest(f"there are {num_turns} turns; /reset begins a new conversation")
        self._session.trim(num_dropped)
        left = f"turns left: {num_turns - num_dropped}"
        if num_dropped < num_turns:
            num_tokens = self._session.num_context_tokens
            left += f"; the next message computes their {num_tokens} tokens anew"
        return Outcome(left)

    def _reset(self, argument: str) -> Outcome:
        self._session.reset()
        return Outcome("a new conversation begins")

    def _tools(self, argument: str) -> Outcome:
        tools = self._session.tools
        if tools is None:
            return Outcome("there are no tools; `inferno play --tools FILE` gives some")
        return Outcome(
            "\n".join(
                f"{each.name}: {each.description}" if each.description else each.name
                for each in tools.functions
            )
        )

    def _stats(self, argument: str) -> Outcome:
        return Outcome(describe_stats(self._session))

    def _save(self, argument: str) -> Outcome:
        name = argument.removesuffix("--force").strip()
        if not name:
            raise InvalidRequest("give a file: /save FILE, ending in .json or .md")
        path = Path(os.path.expanduser(name))
        save(self._session, path, force=argument.endswith("--force"))
        return Outcome(f"saved as {path}")

    def _exit(self, argument: str) -> Outcome:
        return Outcome(is_over=True)


def _split(text: str, *, between: re.Pattern[str] | None = None) -> tuple[str, str]:
    """Return the first word, and what comes after it."""
    first, *rest = (between or _SPACES).split(text.strip(), maxsplit=1)
    return first, "".join(rest)
