"""Lint of a chat template: small conversations are rendered, and looked for in the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from inferno.errors import InfernoError
from inferno.lint.checks import MOST_LISTED, Finding
from inferno.lint.tokens import Tokens
from inferno.text.chat import ChatTemplate
from inferno.text.special_token_escape import RenderedChat

# Words that no template writes by itself.
_SYSTEM, _USER, _ANSWER, _NEXT = "Quinceborough", "Marrowfield", "Thistlewick", "Ambergate"
_ODD = f"{_USER} <i class=\"a\"> & 'b'\n  c\\d {_NEXT}"  # what escapes would change
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

_WORD = re.compile(r"\w")
_CUT_MARK = re.compile(r"^[^<\[]*[>\]]")  # such as the s> that <s> and </s> share
_THOUGHTS = re.compile(r"[<\[|]{1,4}/?(?:think|thought|reason)", re.IGNORECASE)

Message = Mapping[str, str]


def template_findings(template: ChatTemplate, tokens: Tokens) -> Iterator[Finding]:
    """Yield what is wrong with a chat template, beside the tokens that it is used with.

    Raises TokenizerError where the tokenizer fails on a prompt.
    """
    probe = _Probe(template)
    plain = probe.render([_user(_USER)])
    if plain.problem is not None:
        yield Finding("template", plain.problem)
        return
    if _USER not in plain.text:
        yield Finding("user is lost", "the user's message is not in the prompt")
        return
    turns = probe.render([_user(_USER), _assistant(_ANSWER), _user(_NEXT)])
    answered = probe.render([_user(_USER), _assistant(_ANSWER)], add_generation_prompt=False)
    unanswered = probe.render([_user(_USER)], add_generation_prompt=False)
    yield from _system(probe)
    odd = probe.render([_user(_ODD)])
    if odd.problem is None and _ODD not in odd.text:
        yield Finding("texts are changed", f"a message {_ODD!r} is not in the prompt as it is")
    yield from _turns(plain, turns)
    yield from _generation_prompt(probe, plain, unanswered, answered, turns)
    yield from _tools(probe)
    yield from _beginning(plain, tokens)
    yield from _bos_again(unanswered, turns, tokens)
    yield from _end_of_prompt(plain, answered, tokens)
    yield from _end_of_turn(answered, turns, tokens)
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


def _system(probe: _Probe) -> Iterator[Finding]:
    system = probe.render([{"role": "system", "content": _SYSTEM}, _user(_USER)])
    if system.problem is not None:
        yield Finding("system is refused", system.problem)
    elif _SYSTEM not in system.text:
        yield Finding("system is lost", "a system message is not in the prompt")


def _turns(plain: _Rendered, turns: _Rendered) -> Iterator[Finding]:
    """Look for the parts of a conversation of two questions, and for what tells who speaks."""
    if turns.problem is not None:
        yield Finding("turns are refused", turns.problem)
        return
    if _ANSWER not in turns.text:
        yield Finding("answers are lost", "an earlier answer is not in the prompt")
    for which, question in (("first", _USER), ("second", _NEXT)):
        if question not in turns.text:
            yield Finding(
                "questions are lost", f"the {which} of two questions is not in the prompt"
            )
    messages = (_USER, _ANSWER, _NEXT)
    if any(turns.text.count(message) > 1 for message in messages):
        yield Finding("turns are mixed up", "a message is in the prompt more than once")
    places = [turns.text.find(message) for message in messages if message in turns.text]
    if places != sorted(places):
        yield Finding("turns are mixed up", "messages are not in the order of the conversation")
    header = _user_header(plain, turns)
    if _WORD.search(header) and _between(turns.text, _USER, _ANSWER).endswith(header):
        yield Finding(
            "roles are lost", f"answers begin with {header!r:.80}, as a user's messages do"
        )


def _between(text: str, first: str, second: str) -> str:
    """Return what the template writes between two messages; empty where one is lost."""
    before, found, _ = text.partition(first)[2].partition(second)
    return before if found else ""


def _user_header(plain: _Rendered, turns: _Rendered) -> str:
    """Return what the template writes before each message of a user."""
    return _common_end(plain.text.partition(_USER)[0], _between(turns.text, _ANSWER, _NEXT))


def _common_end(one: str, other: str) -> str:
    """Return the longest end of both texts that begins with no piece of a mark."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return _CUT_MARK.sub("", one[len(one) - _num_equal(pairs) :])


def _num_equal(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many pairs are of equal characters before the first that isn't."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _generation_prompt(
    probe: _Probe,
    plain: _Rendered,
    unanswered: _Rendered,
    answered: _Rendered,
    turns: _Rendered,
) -> Iterator[Finding]:
    """Find out whether add_generation_prompt, and nothing else, writes the header of an answer."""
    before = unanswered.text
    if _ANSWER not in answered.text or not answered.text.startswith(before):
        return
    if unanswered.problem is not None or not plain.text.startswith(before):
        return
    written = plain.text.removeprefix(before)
    header = answered.text.removeprefix(before).partition(_ANSWER)[0]
    both = f"add_generation_prompt writes {written!r:.80}, and answers begin with {header!r:.80}"
    if header.strip() and not written.strip():
        yield Finding(
            "no generation prompt",
            f"an answer begins with {header!r:.80}, which add_generation_prompt doesn't write",
        )
    elif _WORD.search(written) and not _WORD.search(header):
        yield Finding(
            "another generation prompt",
            f"add_generation_prompt writes {written!r:.80}, and answers have no header",
        )
    elif _is_another_header(written, header):
        yield Finding("another generation prompt", both)
    elif written and (check := _other_blanks(probe, before, written, header)):
        yield Finding(check, both)
    elif not written:
        yield from _always_written(answered, turns)


def _is_another_header(written: str, header: str) -> bool:
    # Whether an answer begins with thoughts may differ between earlier answers and the next.
    one, other = (_THOUGHTS.split(text)[0].strip() for text in (written, header))
    is_known = _WORD.search(one) and _WORD.search(other)
    return bool(is_known) and not one.startswith(other) and not other.startswith(one)


def _other_blanks(probe: _Probe, before: str, written: str, header: str) -> str | None:
    """Return the check that fails where two headers of answers differ by blanks alone.

    A space that is due is no difference: tokens of words begin with it, so the model writes it.
    """
    one, other = (_THOUGHTS.split(text)[0] for text in (written, header))
    if one.split() != other.split() or other in (one, f"{one} "):
        return None
    if not other.startswith(one):
        return "another generation prompt"
    # A template that trims answers takes away what the model itself writes of the blanks.
    answer = _assistant(other.removeprefix(one) + _ANSWER)
    again = probe.render([_user(_USER), answer], add_generation_prompt=False)
    is_trimmed = again.text.removeprefix(before).partition(_ANSWER)[0] == header
    return None if is_trimmed else "short generation prompt"


def _always_written(answered: _Rendered, turns: _Rendered) -> Iterator[Finding]:
    """Find out whether the header of a next answer follows a last one that nobody goes on from."""
    behind = answered.text.partition(_ANSWER)[2].rstrip()
    header = _common_end(_between(answered.text, _USER, _ANSWER).rstrip(), behind)
    later = _between(turns.text, _ANSWER, _NEXT)
    if later and _WORD.search(header) and not later.startswith(behind):
        yield Finding(
            "generation prompt always",
            f"without add_generation_prompt too, a conversation ends with {header!r:.80}",
        )


def _tools(probe: _Probe) -> Iterator[Finding]:
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
    before, begins, behind = plain.text.partition(_USER)[0].partition(name)
    between = behind[: len(behind) - len(behind.lstrip())]
    is_twice = behind.startswith(name, len(between))
    # What is an end too may well follow a system message.
    is_written = bool(begins) and (not before.strip() or tokens.bos_id not in tokens.ends)
    if is_written and is_twice:
        apart = f", with {between!r:.40} between" if between else ""
        yield Finding("two BOS", f"the prompt of a chat begins with {name} twice{apart}")
    elif ids[:1] == [tokens.bos_id] and tokens.adds_bos:
        yield Finding("BOS in both", f"the template and the tokenizer both write {name}")
    elif is_written and ids[:1] != [tokens.bos_id]:
        yield Finding("BOS is not first", f"the template writes {before!r:.40} before {name}")
    elif tokens.bos_id not in ids and tokens.adds_bos:
        yield Finding("no BOS", f"the tokenizer writes {name} and the template doesn't")


def _bos_again(unanswered: _Rendered, turns: _Rendered, tokens: Tokens) -> Iterator[Finding]:
    """Find out whether BOS stands before answers too, and not before a whole text alone.

    Before a later question it may be right: each pair of Llama 2's is a text of its own. Where one
    token is BOS and the end, it may well follow each message.
    """
    if tokens.bos_id is None or not turns.text:
        return
    name = tokens.named["bos_token"]
    before, _, behind = unanswered.text.partition(_USER)
    if name in before and name not in behind and name in _between(turns.text, _USER, _ANSWER):
        num = turns.text.count(name)
        yield Finding("BOS again", f"a chat of three messages has {name} {num} times")


def _end_of_turn(answered: _Rendered, turns: _Rendered, tokens: Tokens) -> Iterator[Finding]:
    """Find out whether what the template writes behind an answer ends an output."""
    last, earlier = _behind_answer(answered.chat), _behind_answer(turns.chat)
    behind = earlier or last
    if behind is None or not tokens.end_names or _has_end(behind, tokens):
        return
    quoted = behind.text
    if last is not None:  # the header of a next question is in one of both only
        num_equal = _num_equal(zip(behind.text, last.text, strict=False))
        quoted = quoted[: _whole_marks(behind, num_equal)]
        behind = _part(behind, 0, num_equal)
    names = ", ".join(map(repr, tokens.end_names[:MOST_LISTED]))
    if behind.special_spans:
        start, end = behind.special_spans[0]
        if not _is_answer_within(behind.text[start:end], tokens):
            yield Finding(
                "turn has no end",
                f"behind an answer the template writes {behind.text[start:end]!r}, and what ends "
                f"an output is {names}",
            )
    elif last is None or not _has_end(last, tokens):
        yield Finding(
            "answers have no end",
            f"behind an answer the template writes {quoted!r:.80}, and what ends an output "
            f"is {names}",
        )


def _whole_marks(chat: RenderedChat, stop: int) -> int:
    """Return where a cut is to be, so that no mark is cut: where it is, or behind a mark."""
    marks = [*chat.special_spans, *(mark.span() for mark in _MARK.finditer(chat.text))]
    return max((end for start, end in marks if start < stop < end), default=stop)


def _end_of_prompt(plain: _Rendered, answered: _Rendered, tokens: Tokens) -> Iterator[Finding]:
    """Find out whether a prompt ends with the end of an answer that is yet to come."""
    prompt = plain.text.rstrip()
    if answered.problem is not None or answered.text.startswith(prompt):
        return  # some models have an end behind the user's messages too, and answers follow
    for start, end in plain.chat.special_spans[-1:]:
        token = prompt[start:end]
        if end == len(prompt) and tokens.tokenizer.token_to_id(token) in tokens.ends:
            yield Finding("end before the answer", f"the prompt of a chat ends with {token!r}")


def _behind_answer(chat: RenderedChat) -> RenderedChat | None:
    """Return what a template writes between an answer and the next question, or the prompt's end.

    None where the conversation has no answer.
    """
    _, found, behind = chat.text.rpartition(_ANSWER)
    start = len(chat.text) - len(behind)
    return _part(chat, start, start + len(behind.partition(_NEXT)[0])) if found else None


def _part(chat: RenderedChat, start: int, stop: int) -> RenderedChat:
    spans = [(a - start, b - start) for a, b in chat.special_spans if start <= a and b <= stop]
    return RenderedChat(chat.text[start:stop], tuple(spans))


def _has_end(chat: RenderedChat, tokens: Tokens) -> bool:
    return not tokens.ends.isdisjoint(tokens.tokenizer.encode_rendered(chat))


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
