"""Write a response while its chunks come: its items, and the events that tell of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from inferno.requests import FinishReason, TokenLogprobs
from inferno.server.generation.streams import event
from inferno.server.http import ApiError
from inferno.server.openai.response_types import ChatLogprob
from inferno.server.openai.responses.answer import (
    FunctionCallItem,
    IncompleteDetails,
    InputTokensDetails,
    OutputItem,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    ReasoningItem,
    ReasoningText,
    ResponseError,
    ResponseEvent,
    ResponseObject,
    ResponseUsage,
    Status,
)
from inferno.server.openai.tool_calls import new_id
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.calls.syntax import ToolUse
from inferno.text.parsers.parser import Call, Part, Piece

_ID_BYTES = 16
_PREFIXES = {Part.REASONING: "rs_", Part.CONTENT: "msg_", Part.TOOL_CALL: "fc_"}
_DELTAS = {
    Part.REASONING: "response.reasoning_text",
    Part.CONTENT: "response.output_text",
    Part.TOOL_CALL: "response.function_call_arguments",
}

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _OpenItem:
    """The item that is being written.

    call        the call that the item is, with the id by which its result will name it.
    """

    part: Part
    id: str
    call: Call | None
    call_id: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[ChatLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def content(self) -> OutputText | ReasoningText:
        if self.part is Part.REASONING:
            return ReasoningText(self.text)
        return OutputText(self.text, list(self.logprobs))

    def item(self, status: Status, *, has_content: bool = True) -> OutputItem:
        """Return the item as it is now; without content, as it begins."""
        if self.call is not None:
            return FunctionCallItem(self.id, status, self.call_id, self.call.name, self.text)
        content = self.content
        if isinstance(content, ReasoningText):
            return ReasoningItem(self.id, status, [content] if has_content else [])
        return OutputMessage(self.id, status, [content] if has_content else [])


class ResponseWriter:
    """A writer of one response, which is the same whether it is streamed or sent whole.

    An item ends where another kind of text begins, or another call, so that the items stand in the
    order in which the model wrote them.

    blank           the response before anything of it is there.
    tool_use        how the model calls its tools.
    tells_reasoning whether the reasoning is told.
    logprobs_of     makes the entries of tokens' log-probabilities; None where none are told.
    """

    def __init__(
        self,
        blank: ResponseObject,
        *,
        num_prompt_tokens: int,
        tool_use: ToolUse | None,
        tells_reasoning: bool,
        logprobs_of: Callable[[Sequence[TokenLogprobs]], list[ChatLogprob]] | None,
    ) -> None:
        self.response = blank
        self._num_prompt_tokens = num_prompt_tokens
        self._tool_use = tool_use
        self._tells_reasoning = tells_reasoning
        self._logprobs_of = logprobs_of
        self._num_events = 0
        self._items: list[OutputItem] = []
        self._open: _OpenItem | None = None
        self._waiting: list[ChatLogprob] = []  # of tokens whose text is still to come

    def feed(self, chunk: Chunk) -> list[ResponseEvent]:
        """Take the next chunk; return the events that tell of it."""
        events = self._start()
        if self._logprobs_of is not None:
            self._waiting += self._logprobs_of(chunk.logprobs)
        for piece in chunk.pieces:
            if piece.text or piece.call is not None:
                events += self._add(piece)
        if chunk.completion is not None:
            events += self._finish(chunk.completion)
        return events

    def failed(self, error: ApiError) -> bytes:
        """Return the event that ends a stream for an error, after those that begin it."""
        events = self._start()
        if self._open is not None:
            self._items.append(self._open.item("incomplete"))
            self._open = None
        self.response = replace(
            self.response,
            status="failed",
            output=self._items,
            error=ResponseError(
                code="server_error" if error.status >= 500 else "invalid_prompt",
                message=error.message,
                type=error.code,
                param=error.param,
            ),
        )
        return encoded([*events, self._event("response.failed", response=self.response)])

    def _start(self) -> list[ResponseEvent]:
        """Return the events that begin a stream, where it has none yet."""
        if self._num_events:
            return []
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=self.response) for kind in kinds]

    def _add(self, piece: Piece) -> list[ResponseEvent]:
        if piece.part is not Part.CONTENT:
            self._waiting = []
        if piece.part is Part.REASONING and not self._tells_reasoning:
            return []
        events: list[ResponseEvent] = []
        if self._open is None or (piece.part, piece.call) != (self._open.part, self._open.call):
            events += self._close("completed")
            events += self._begin(piece.part, piece.call)
        if piece.text:
            events.append(self._delta(piece.text))
        return events

    def _begin(self, part: Part, call: Call | None) -> list[ResponseEvent]:
        item_id = _PREFIXES[part] + secrets.token_hex(_ID_BYTES)
        call_id = "" if call is None else call.id or new_id(self._tool_use)
        self._open = opened = _OpenItem(part, item_id, call, call_id)
        begun = opened.item("in_progress", has_content=False)
        events = [self._event("response.output_item.added", item=begun, output_index=self._index)]
        if call is None:
            added = self._of_part(opened, "response.content_part.added")
            events.append(replace(added, part=opened.content))
        return events

    def _delta(self, text: str) -> ResponseEvent:
        opened = self._open
        assert opened is not None
        opened.texts.append(text)
        told = self._of_part(opened, f"{_DELTAS[opened.part]}.delta")
        if opened.part is not Part.CONTENT:
            return replace(told, delta=text)
        entries, self._waiting = self._waiting, []
        opened.logprobs += entries
        return replace(told, delta=text, logprobs=entries)

    def _close(self, status: Status) -> list[ResponseEvent]:
        if (opened := self._open) is None:
            return []
        done = self._of_part(opened, f"{_DELTAS[opened.part]}.done")
        if opened.part is Part.TOOL_CALL:
            events = [replace(done, arguments=opened.text)]
        else:
            is_content = opened.part is Part.CONTENT
            done = replace(done, text=opened.text)
            done = replace(done, logprobs=list(opened.logprobs)) if is_content else done
            whole = self._of_part(opened, "response.content_part.done")
            events = [done, replace(whole, part=opened.content)]
        item = opened.item(status)
        events.append(self._event("response.output_item.done", item=item, output_index=self._index))
        self._items.append(item)
        self._open = None
        return events

    def _finish(self, completion: Completion) -> list[ResponseEvent]:
        is_whole = completion.finish_reason is not FinishReason.LENGTH
        status: Status = "completed" if is_whole else "incomplete"
        events: list[ResponseEvent] = []
        is_answered = self._open is not None and self._open.part is not Part.REASONING
        if is_whole and not is_answered:  # an answer is a message, though an empty one
            events += self._close("completed")
            events += self._begin(Part.CONTENT, None)
        if self._waiting and self._open is not None and self._open.part is Part.CONTENT:
            events.append(self._delta(""))  # of the tokens that ended the answer
        events += self._close(status)
        self.response = replace(
            self.response,
            status=status,
            completed_at=int(time.time()) if is_whole else None,
            incomplete_details=None if is_whole else IncompleteDetails(),
            output=self._items,
            usage=self._usage(completion),
        )
        return [*events, self._event(f"response.{status}", response=self.response)]

    def _usage(self, completion: Completion) -> ResponseUsage:
        given, new = self._num_prompt_tokens, completion.usage.completion_tokens
        return ResponseUsage(
            input_tokens=given,
            input_tokens_details=InputTokensDetails(completion.usage.cached_tokens),
            output_tokens=new,
            output_tokens_details=OutputTokensDetails(completion.usage.reasoning_tokens),
            total_tokens=given + new,
        )

    @property
    def _index(self) -> int:
        return len(self._items)

    def _of_part(self, opened: _OpenItem, kind: str) -> ResponseEvent:
        """Return an event of the open item, or of its one part of content."""
        told = self._event(kind, item_id=opened.id, output_index=self._index)
        return told if opened.part is Part.TOOL_CALL else replace(told, content_index=0)

    def _event(
        self,
        kind: str,
        *,
        response: ResponseObject | msgspec.UnsetType = msgspec.UNSET,
        item: OutputItem | msgspec.UnsetType = msgspec.UNSET,
        item_id: str | msgspec.UnsetType = msgspec.UNSET,
        output_index: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> ResponseEvent:
        number = self._num_events
        self._num_events += 1
        return ResponseEvent(
            type=kind,
            sequence_number=number,
            response=response,
            item=item,
            item_id=item_id,
            output_index=output_index,
        )


def encoded(events: Sequence[ResponseEvent]) -> bytes:
    """Return events as server-sent ones, which have their type as name."""
    return b"".join([event(_encode(each), each.type) for each in events])
