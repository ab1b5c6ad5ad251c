"""Keep one conversation with a model: its turns, and their costs."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import inferno
from inferno.cli.chat.context import (
    context_overflow,
    most_prompt_tokens,
    num_to_drop,
    with_cached_tokens,
)
from inferno.errors import EngineError, InvalidRequest, NeverFits
from inferno.requests import FinishReason, SamplingParams
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.answer import Answer, ToolCall, assistant_message
from inferno.text.parsers.choose import Dialect
from inferno.text.tools import Tools


@dataclass(frozen=True, slots=True)
class CalledTools:
    """A part of a turn: what the model said up to its calls of tools, and a result for each."""

    answer: Answer
    results: Sequence[str]

    def messages(self, dialect: Dialect) -> list[dict[str, Any]]:
        """Return the calls and results as messages for the model's chat template."""
        said = assistant_message(self.answer, dialect)
        answered = zip(said["tool_calls"], self.results, strict=True)
        return [
            said,
            *(
                {**_message("tool", result), "tool_call_id": call["id"], "name": name}
                for call, result in answered
                for name in (call["function"]["name"],)
            ),
        ]


@dataclass(slots=True)
class Turn:
    """A question and its answer; `completion` is missing where the answer was stopped.

    called      calls of tools before the answer, with their results.

    All other fields are of what the model wrote last: the answer, or calls that wait for results.
    """

    question: str
    num_prompt_tokens: int = 0
    answer: str = ""
    reasoning: str = ""
    token_ids: list[int] = field(default_factory=list)
    completion: Completion | None = None
    called: list[CalledTools] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Take in a piece of the answer."""
        self.answer += chunk.text
        self.reasoning += chunk.reasoning
        self.token_ids += chunk.token_ids
        self.completion = chunk.completion

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls that wait for results; an answer that was cut off has none."""
        done = self.completion
        if done is None or done.finish_reason is not FinishReason.STOP:
            return ()
        return done.tool_calls


@dataclass(slots=True)
class Totals:
    """The counts of all answers together; a stopped answer's cached tokens are not known."""

    num_answers: int = 0
    num_stopped: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    proposed_tokens: int = 0
    accepted_tokens: int = 0

    def add(self, turn: Turn) -> None:
        """Count one more answer."""
        self.num_answers += 1
        self.prompt_tokens += turn.num_prompt_tokens
        self.new_tokens += len(turn.token_ids)
        if turn.completion is None:
            self.num_stopped += 1
        else:
            self.cached_tokens += turn.completion.usage.cached_tokens
            for each in turn.completion.timings.proposals:
                self.proposed_tokens += each.num_proposed
                self.accepted_tokens += each.num_stood


def is_cut_by_context(turn: Turn, params: SamplingParams) -> bool:
    """Return whether an answer ended where the context, or the KV cache, was full."""
    done, most = turn.completion, params.max_tokens
    if done is None or done.finish_reason is not FinishReason.LENGTH:
        return False
    return most is None or len(turn.token_ids) < most


class Session:
    """The turns, system prompt and sampling parameters of one conversation.

    name            the model's, for people.
    template_args   further values for the model's chat template.
    tools           that the model may call; None: it has none.
    """

    def __init__(
        self,
        llm: inferno.LLM,
        name: str,
        params: SamplingParams,
        system: str = "",
        template_args: Mapping[str, Any] | None = None,
        tools: Tools | None = None,
    ) -> None:
        self.llm = llm
        self.name = name
        self.params = params
        self.system = system
        self.trims = False  # drop the oldest turns where a message would have no room
        self.num_trimmed = 0  # turns that the last message dropped so
        self.turns: list[Turn] = []
        self.totals = Totals()
        self.tools = tools
        self._shown_tools = None if tools is None else tools.for_template()
        self._num_calls = 0  # since the start, so that each has an id of its own
        self._template_args = dict(template_args or {})
        self._unanswered: str | None = None
        self._capacity = llm.max_model_len  # less where the KV cache turns out to hold less
        # The last prompt and its answer, as the engine computed them.
        self._token_ids: list[int] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation as a chat template takes it."""
        return self._messages(self.turns)

    @property
    def num_context_tokens(self) -> int:
        """Return the number of tokens in the conversation so far."""
        return len(self._token_ids)

    @property
    def has_unanswered(self) -> bool:
        """Return whether the last question got no answer, not even the beginning of one."""
        return self._unanswered is not None

    def ask(self, question: str) -> Generator[Chunk, None, None]:
        """Yield the answer, chunk by chunk; leaving early stops it, and what came of it stays.

        Raises InvalidRequest, NeverFits, TemplateError and EngineError; a question without an
        answer is no part of the conversation, and no turn is dropped for it.
        """
        self._unanswered = question
        self.num_trimmed = 0
        return self._answer(Turn(question))

    def go_on(self, results: Sequence[str]) -> Generator[Chunk, None, None]:
        """Yield the model's answer to the results of the last turn's calls; see `ask`.

        If the model says nothing, the turn is dropped.
        """
        turn = self.turns.pop()
        self._unanswered = turn.question
        calls = []
        for call in turn.calls:
            calls.append(replace(call, id=call.id or f"call{self._num_calls:05}"))
            self._num_calls += 1
        part = CalledTools(Answer(turn.reasoning, turn.answer, tuple(calls)), list(results))
        return self._answer(Turn(turn.question, called=[*turn.called, part]))

    def take_back(self) -> None:
        """Drop the last turn, whose calls get no results; its question can be asked again."""
        self._unanswered = self.turns.pop().question

    def retry(self) -> str:
        """Return the last question, to be asked again; its answer is dropped."""
        if self._unanswered is None and not self.turns:
            raise InvalidRequest("there is no message yet that could be sent again")
        return self._unanswered or self.turns.pop().question

    def trim(self, num_turns: int) -> None:
        """Drop the oldest turns."""
        del self.turns[:num_turns]
        self._token_ids = []
        if self.turns:
            self._token_ids = self._render(self.messages, add_generation_prompt=False)

    def reset(self) -> None:
        """Begin a new conversation; system prompt, settings and a refused question stay."""
        self.turns.clear()
        self._token_ids = []

    def _messages(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        messages = [_message("system", self.system)] if self.system else []
        for turn in turns:
            answer = Answer(turn.reasoning, turn.answer)
            messages += [*self._begun(turn), assistant_message(answer, self.llm.dialect)]
        return messages

    def _begun(self, turn: Turn) -> list[dict[str, Any]]:
        """Return the messages of a turn up to its answer."""
        called = (message for part in turn.called for message in part.messages(self.llm.dialect))
        return [_message("user", turn.question), *called]

    def _answer(self, turn: Turn) -> Generator[Chunk, None, None]:
        before = self.turns, self._token_ids, self._capacity
        self.turns = list(self.turns)
        try:
            yield from self._fitted_answer(turn)
        finally:
            if self.has_unanswered:
                self.turns, self._token_ids, self._capacity = before
                self.num_trimmed = 0

    def _fitted_answer(self, turn: Turn) -> Generator[Chunk, None, None]:
        if self.trims:
            self._drop_overflow(turn)
        prompt = self._encode(turn)
        turn.num_prompt_tokens = len(prompt)
        chunks = self.llm.stream(
            prompt, self.params, dialect=self.llm.dialect, tools=self._shown_tools
        )
        try:
            with closing(chunks):
                for chunk in chunks:
                    self._take(turn, chunk)
                    yield chunk
        except NeverFits as problem:
            if self.trims and self.turns and len(prompt) > 1:
                self._capacity = min(self._capacity, len(prompt) - 1)
                yield from self._fitted_answer(turn)
                return
            raise context_overflow(
                problem,
                context=self.llm.max_model_len,
                max_tokens=self.params.max_tokens,
                num_turns=len(self.turns),
                num_tokens=lambda num_dropped: len(self._encode(turn, num_dropped)),
            ) from None
        finally:
            if turn.token_ids:
                self._token_ids = [*prompt, *turn.token_ids]
                self.totals.add(turn)
                if is_cut_by_context(turn, self.params):
                    self._capacity = min(self._capacity, len(self._token_ids))

    def _drop_overflow(self, turn: Turn) -> None:
        """Drop the oldest turns, if with this one they leave too little for an answer."""
        if not self.turns:
            return
        most = most_prompt_tokens(self._capacity, self.params.max_tokens)

        def num_tokens(num_dropped: int) -> int:
            return len(self._encode(turn, num_dropped))

        if num_tokens(0) > most:
            num_dropped = num_to_drop(most, len(self.turns), num_tokens)
            self.trim(num_dropped)
            self.num_trimmed += num_dropped

    def _encode(self, turn: Turn, num_dropped: int = 0) -> list[int]:
        """Return the prompt of a turn's answer, as it is without that many of the oldest turns."""
        messages = self._messages(self.turns[num_dropped:])
        rendered = self._render([*messages, *self._begun(turn)])
        return with_cached_tokens(rendered, self._token_ids, self.llm.tokenizer)

    def _render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        return self.llm.encode_chat(
            messages,
            tools=self._shown_tools,
            add_generation_prompt=add_generation_prompt,
            template_args=self._template_args,
        )

    def _take(self, turn: Turn, chunk: Chunk) -> None:
        if chunk.completion is not None and chunk.completion.finish_reason is FinishReason.ERROR:
            raise EngineError(chunk.completion.error or "a step of the engine failed")
        turn.add(chunk)
        if self._unanswered is not None:
            self._unanswered = None
            self.turns.append(turn)


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}
