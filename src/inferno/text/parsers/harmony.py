"""Parse gpt-oss's output, which has messages in channels: OpenAI's Harmony format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.harmony_header import Header, Mark
from inferno.text.parsers.parser import Call, Part, Piece
from inferno.text.tokenizer import Tokenizer

MAX_HEADER_TOKENS = 64
SEPARATOR = "\n\n"
_CONTENT_CHANNELS = (None, "final", "commentary")


class HarmonyParser:
    """A parser of `<|start|>role<|channel|>name<|message|>text<|end|>`; any mark may be missing.

    A message for a tool is a call, whatever its channel. Otherwise `final`, `commentary` (plans
    that the user may read) and messages without a channel are content; `analysis`, channels that
    don't exist and messages in another's name are reasoning. SEPARATOR stands between two messages
    of a part.

    A header that another mark than `<|message|>` ends, or that goes on for too long, is a message
    whose `<|message|>` is missing: what it says beside role and channel is the text. Only special
    tokens count as marks, not the same letters in other tokens (github.com/openai/harmony,
    docs/format.md).

    prompt_token_ids    the prompt, whose end is usually `<|start|>assistant`, or more of a message.
    """

    def __init__(
        self, tokenizer: Tokenizer, decoder: IncrementalDecoder, prompt_token_ids: Sequence[int]
    ) -> None:
        self._decoder = decoder
        self._marks = {tokenizer.token_to_id(mark): mark for mark in Mark}
        self._header: Header | None = Header()  # None within a message
        self._part = Part.CONTENT
        self._call: Call | None = None
        self._num_calls = 0
        self._separator = ""
        self._seen: set[Part] = set()
        self.num_reasoning_tokens = 0
        self._continue(prompt_token_ids)
        self.num_reasoning_tokens = 0

    def feed(self, token_ids: Iterable[int]) -> list[Piece]:
        """Take more token ids, and return the pieces of text that are certain now."""
        return [piece for token_id in token_ids for piece in self._token(token_id)]

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back, as no more ids come."""
        return [*self._text(self._decoder.finish()), *self._end()]

    def _continue(self, prompt_token_ids: Sequence[int]) -> None:
        for index in reversed(range(len(prompt_token_ids))):
            if self._marks.get(prompt_token_ids[index]) is Mark.START:
                self.feed(prompt_token_ids[index:])
                list(self._text(self._decoder.finish()))
                self._seen.clear()
                self._separator = ""
                return

    def _token(self, token_id: int) -> Iterator[Piece]:
        mark = self._marks.get(token_id)
        if mark is None:
            if self._header is None and self._part is Part.REASONING:
                self.num_reasoning_tokens += 1
            yield from self._text(self._decoder.feed((token_id,)))
        else:
            yield from self._text(self._decoder.finish())
            yield from self._mark(mark)

    def _mark(self, mark: Mark) -> Iterator[Piece]:
        match mark:
            case Mark.MESSAGE if self._header is not None:
                yield from self._begin_message(self._header)
            case Mark.CHANNEL | Mark.CONSTRAIN if self._header is not None:
                self._header.begin(mark)
            case Mark.MESSAGE | Mark.CONSTRAIN:
                pass  # of no meaning within a message
            case _:
                yield from self._end()
                self._header = Header(mark)

    def _text(self, text: str) -> Iterator[Piece]:
        if self._header is not None:
            self._header.add(text)
            if self._header.num_tokens > MAX_HEADER_TOKENS:
                yield from self._begin_broken(self._header)
        elif text:
            yield self._piece(text)

    def _begin_message(self, header: Header) -> Iterator[Piece]:
        if header.tool is None or header.is_by_another:
            self._enter(_part(header))
            return
        self._enter(Part.TOOL_CALL)
        name = header.tool.removeprefix("functions.") or header.tool
        self._call = Call(self._num_calls, name)
        self._num_calls += 1
        yield self._piece("")

    def _begin_broken(self, header: Header) -> Iterator[Piece]:
        self._enter(_part(header) if header.tool is None else Part.REASONING)
        if text := header.rest:
            yield self._piece(text)

    def _end(self) -> Iterator[Piece]:
        if self._header is not None:
            yield from self._begin_broken(self._header)
        self._header = Header()

    def _enter(self, part: Part) -> None:
        self._header = None
        self._part = part
        self._call = None
        self._separator = SEPARATOR if part in self._seen else ""

    def _piece(self, text: str) -> Piece:
        if self._call is not None:
            return Piece(Part.TOOL_CALL, text, self._call)
        self._seen.add(self._part)
        separator, self._separator = self._separator, ""
        return Piece(self._part, separator + text)


def _part(header: Header) -> Part:
    is_content = header.channel in _CONTENT_CHANNELS and not header.is_by_another
    return Part.CONTENT if is_content else Part.REASONING
