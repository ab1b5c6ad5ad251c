"""Lint of a chat template: small conversations are rendered, and looked for in the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno.errors import InfernoError
from inferno.lint.checks import MOST_LISTED, Finding
from inferno.lint.tokens import Tokens
from inferno.text.chat import ChatTemplate
from inferno.text.special_token_escape import RenderedChat

# Words that no template writes by itself.
_SYSTEM, _USER, _ANSWER, _NEXT = "Quinceborough", "Marrowfield", "Thistlewick", "Ambergate"
_TOOL_NAME = "find_quartzhollow"
_TOOL = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "Find it.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Where."}},
            "required": ["place"],
        },
    },
}
# What templates write around messages: <|user|>, <｜User｜>, <start_of_turn>.
_MARK = re.compile(r"<[|｜][^<>\s]{1,40}[|｜]>|<(?:start|end)_of_turn>")

Message = Mapping[str, str]


def template_findings(template: ChatTemplate, tokens: Tokens) -> Iterator[Finding]:
    """Yield what is wrong with a chat template, beside the tokens that it is used with."""
    probe = _Probe(template)
    plain = probe.render([_user(_USER)])
    if plain.problem is not None:
        yield Finding("template", plain.problem)
        return
    if _USER not in plain.text:
        yield Finding("user is lost", "the user's message is not in the prompt")
        return
    yield from _roles(probe)
    yield from _generation_prompt(probe, plain)
    yield from _tools(probe, plain)
    yield from _beginning(plain, tokens)
    yield from _end_of_turn(probe, tokens)
    yield from _marks(plain, tokens)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A conversation as the template writes it, or why it doesn't."""

    chat: RenderedChat
    problem: str | None = None

    @property
    def text(self) -> str:
        return self.chat.text


class _Probe:
    """Renders conversations of one template, whose errors are results."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def render(self, messages: Sequence[Message], **options: Any) -> _Rendered:
        try:
            return _Rendered(self._template.render(messages, **options))
        except InfernoError as problem:
            return _Rendered(RenderedChat("", ()), str(problem))


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def _roles(probe: _Probe) -> Iterator[Finding]:
    system = probe.render([{"role": "system", "content": _SYSTEM}, _user(_USER)])
    if system.problem is not None:
        yield Finding("system is refused", system.problem)
    elif _SYSTEM not in system.text:
        yield Finding("system is lost", "a system message is not in the prompt")
    turns = probe.render([_user(_USER), _assistant(_ANSWER), _user(_NEXT)])
    if turns.problem is not None:
        yield Finding("turns are refused", turns.problem)
    elif _ANSWER not in turns.text:
        yield Finding("answers are lost", "an earlier answer is not in the prompt")


def _generation_prompt(probe: _Probe, plain: _Rendered) -> Iterator[Finding]:
    """Find out whether the header of an answer is left out, where answers have one."""
    without = probe.render([_user(_USER)], add_generation_prompt=False)
    answered = probe.render([_user(_USER), _assistant(_ANSWER)], add_generation_prompt=False)
    if without.text != plain.text or not answered.text.startswith(plain.text):
        return
    header = answered.text.removeprefix(plain.text).partition(_ANSWER)[0]
    if header.strip():
        yield Finding(
            "no generation prompt",
            f"an answer begins with {header!r:.80}, which add_generation_prompt doesn't write",
        )


def _tools(probe: _Probe, plain: _Rendered) -> Iterator[Finding]:
    empty = probe.render([_user(_USER)], tools=[])
    if empty.problem is not None:
        yield Finding("empty tools", f"with an empty list of tools: {empty.problem}")
    elif empty.text != plain.text:
        yield Finding("empty tools", "an empty list of tools makes another prompt than none")
    tools = probe.render([_user(_USER)], tools=[_TOOL])
    if tools.problem is not None:
        yield Finding("tools are refused", tools.problem)
    elif _TOOL_NAME not in tools.text:
        yield Finding("tools are lost", "tools are not in the prompt")


def _beginning(plain: _Rendered, tokens: Tokens) -> Iterator[Finding]:
    if tokens.bos_id is None:
        return
    ids = tokens.tokenizer.encode_rendered(plain.chat)
    name = tokens.named["bos_token"]
    if ids[:2] == [tokens.bos_id] * 2:
        yield Finding("two BOS", f"the prompt of a chat begins with {name} twice")
    elif ids[:1] == [tokens.bos_id] and tokens.adds_bos:
        yield Finding("BOS in both", f"the template and the tokenizer both write {name}")
    elif tokens.bos_id not in ids and tokens.adds_bos:
        yield Finding("no BOS", f"the tokenizer writes {name} and the template doesn't")


def _end_of_turn(probe: _Probe, tokens: Tokens) -> Iterator[Finding]:
    """Find out whether what the template writes behind an answer ends an output."""
    chat = probe.render([_user(_USER), _assistant(_ANSWER), _user(_NEXT)]).chat
    if _ANSWER not in chat.text:
        chat = probe.render([_user(_USER), _assistant(_ANSWER)], add_generation_prompt=False).chat
    after = chat.text.rfind(_ANSWER)
    if after < 0 or not tokens.ends:
        return
    behind = [chat.text[start:end] for start, end in chat.special_spans if start >= after]
    if not behind:
        return
    token_id = tokens.tokenizer.token_to_id(behind[0])
    if token_id in tokens.ends or _is_answer_within(behind[0], tokens):
        return
    names = ", ".join(repr(tokens.tokenizer.id_to_token(i)) for i in sorted(tokens.ends)[:4])
    yield Finding(
        "turn has no end",
        f"behind an answer the template writes {behind[0]!r}, and what ends an output is {names}",
    )


def _is_answer_within(token: str, tokens: Tokens) -> bool:
    """Return whether a token ends a message within an output, as in gpt-oss's channels."""
    harmony = ("<|end|>", "<|return|>")
    return token == harmony[0] and tokens.tokenizer.token_to_id(harmony[1]) in tokens.ends


def _marks(plain: _Rendered, tokens: Tokens) -> Iterator[Finding]:
    special = {plain.text[start:end] for start, end in plain.chat.special_spans}
    found = dict.fromkeys(_MARK.findall(plain.text))
    as_text = [
        mark for mark in found if mark not in special and tokens.tokenizer.token_to_id(mark) is None
    ]
    if as_text:
        listed = ", ".join(as_text[:MOST_LISTED])
        yield Finding("marks are text", f"{listed} in the template: no tokens of the vocabulary")
