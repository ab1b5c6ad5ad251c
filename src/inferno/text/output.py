"""Turn one sequence's token events into text: parsed, and cut at stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from inferno.requests import SamplingParams, TokenEvent
from inferno.text.detokenize import IncrementalDecoder
from inferno.text.parsers.calls.parser import CallMarks, CallParser
from inferno.text.parsers.calls.syntax import ToolUse
from inferno.text.parsers.choose import Dialect, make_parser
from inferno.text.parsers.parser import Part, Piece
from inferno.text.stops import StopStrings
from inferno.text.tokenizer import Tokenizer


class Delta(NamedTuple):
    """The new text of a sequence, and whether to abort the sequence because its text ends here.

    stop            the stop string that ends the text, if one does.
    is_cut          whether the text ends because one call too many would come.
    """

    pieces: tuple[Piece, ...]
    stop: str | None = None
    is_cut: bool = False

    @property
    def is_last(self) -> bool:
        """Return whether the text ends here, whatever the model says after it."""
        return self.stop is not None or self.is_cut

    @property
    def text(self) -> str:
        """Return the new content."""
        return "".join(piece.text for piece in self.pieces if piece.part is Part.CONTENT)


class OutputText:
    """The text of a sequence: feed it events in order; all deltas put together are the text.

    stop_reason     the stop string or the stop token's id that ended the text; None until then, and
                    where it ended for another reason.
    may_end_within  whether the text may end before the model does.
    dialect         how the model sets its reasoning apart; plain: all is content.
    prompt_token_ids    the prompt, in which reasoning may have begun.
    tool_use        the tools that the model may call, whose calls are taken out of the content.
                    None: calls are content, except Harmony's.
    is_continuation     the text continues the prompt's last sentence, and keeps the leading space
                        that SentencePiece drops where a text begins.
    max_tool_calls  the text ends where more calls would begin; None takes all.

    Stop strings are sought in the content alone, not in reasoning.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        *,
        dialect: Dialect = Dialect.PLAIN,
        prompt_token_ids: Sequence[int] = (),
        tool_use: ToolUse | None = None,
        is_continuation: bool = False,
        max_tool_calls: int | None = None,
    ) -> None:
        marks = None
        if tool_use is not None and dialect is not Dialect.HARMONY:  # its parser finds calls
            is_shown = not params.skip_special_tokens
            marks = CallMarks(tool_use.dialect, tokenizer, is_shown=is_shown)
        decoder = IncrementalDecoder(
            tokenizer,
            skip_special_tokens=params.skip_special_tokens,
            prompt_token_ids=prompt_token_ids if is_continuation else (),
            marks=None if marks is None else marks.by_id,
        )
        parser = make_parser(dialect, tokenizer, decoder, prompt_token_ids)
        if tool_use is not None and marks is not None:
            parser = CallParser(parser, tool_use, marks)
        self._parser = parser
        self._stops = StopStrings(params.stops, include=params.include_stop_in_output)
        self.may_end_within = not self._stops.is_empty or max_tool_calls is not None
        self._include_stop = params.include_stop_in_output
        self._max_tool_calls = max_tool_calls
        self._is_over = False
        self.stop_reason: str | int | None = None

    @property
    def num_reasoning_tokens(self) -> int:
        """Return how many of the tokens so far were reasoning."""
        return self._parser.num_reasoning_tokens

    def feed(self, event: TokenEvent) -> Delta:
        """Return the text that an event makes certain; with the last event, all that is left.

        A stop token contributes text only if `include_stop_in_output` is set, and special tokens
        only if `skip_special_tokens` is not. Whatever comes after a stop string is dropped, and so
        is what begins with a call too many.
        """
        if self._is_over:
            return Delta(())
        if event.finish_reason is None and not self.may_end_within:
            return Delta(tuple(_not_empty(self._parser.feed(event.token_ids))))
        pieces = self._parser.feed(self._shown(event))
        if event.finish_reason is not None:
            pieces += self._parser.finish()
        pieces, is_cut = self._up_to_last_call(pieces)
        shown, stop = self._up_to_stop(pieces)
        is_cut = is_cut and stop is None
        if stop is None and (is_cut or event.finish_reason is not None):
            shown += _content(self._stops.finish())
        delta = Delta(tuple(shown), stop, is_cut)
        self._is_over = delta.is_last
        if stop is not None:
            self.stop_reason = stop
        elif event.finish_reason is not None and not is_cut:
            self.stop_reason = event.stop_token_id
        return delta

    def _up_to_last_call(self, pieces: list[Piece]) -> tuple[list[Piece], bool]:
        """Return the pieces before a call too many, and whether there is one."""
        most = self._max_tool_calls
        if most is not None:
            for i, piece in enumerate(pieces):
                if piece.call is not None and piece.call.index >= most:
                    return pieces[:i], True
        return pieces, False

    def _up_to_stop(self, pieces: Sequence[Piece]) -> tuple[list[Piece], str | None]:
        if self._stops.is_empty:
            return _not_empty(pieces), None
        shown: list[Piece] = []
        for piece in pieces:
            if piece.part is not Part.CONTENT:
                shown.append(piece)
                continue
            text, stop = self._stops.feed(piece.text)
            shown += _content(text)
            if stop is not None:
                return shown, stop
        return shown, None

    def _shown(self, event: TokenEvent) -> tuple[int, ...]:
        ends_in_stop = event.stop_token_id is not None and event.finish_reason is not None
        return event.token_ids[:-1] if ends_in_stop and not self._include_stop else event.token_ids


def _not_empty(pieces: Sequence[Piece]) -> list[Piece]:
    return [each for each in pieces if each.text or each.part is not Part.CONTENT]


def _content(text: str) -> list[Piece]:
    return [Piece(Part.CONTENT, text)] if text else []
