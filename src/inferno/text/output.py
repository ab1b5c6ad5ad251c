"""The text of one sample, made of its token events: decoded, and cut at stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferno.requests import SamplingParams, TokenEvent
from inferno.text.detokenize import IncrementalDecoder
from inferno.text.stops import StopStrings
from inferno.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Delta:
    """New text, and the stop string that ends it, if one does: the request should be aborted."""

    text: str
    stop: str | None = None


class OutputText:
    """Feed it a sample's events in order; the deltas put together are the sample's text.

    stop_reason     the stop string or the stop token's id that ended the text; None until then, and
                    where it ended for another reason.
    prompt_token_ids    what the text continues, if it is to be read as a continuation.
    """

    def __init__(
        self, tokenizer: Tokenizer, params: SamplingParams, *, prompt_token_ids: Sequence[int] = ()
    ) -> None:
        self._decoder = IncrementalDecoder(
            tokenizer,
            skip_special_tokens=params.skip_special_tokens,
            prompt_token_ids=prompt_token_ids,
        )
        self._stops = StopStrings(params.stops, include=params.include_stop_in_output)
        self._include_stop = params.include_stop_in_output
        self.stop_reason: str | int | None = None

    def feed(self, event: TokenEvent) -> Delta:
        """The text that this event makes certain; with the last event, all that is left.

        A stop token contributes text only if `include_stop_in_output` is set, and special tokens
        only if `skip_special_tokens` is not. Whatever comes after a stop string is dropped.
        """
        if isinstance(self.stop_reason, str):
            return Delta("")
        text = self._decoder.feed(self._shown(event))
        if event.finish_reason is not None:
            text += self._decoder.finish()
        text, self.stop_reason = self._stops.feed(text)
        if self.stop_reason is not None:
            return Delta(text, self.stop_reason)
        if event.finish_reason is not None:
            text += self._stops.finish()
            self.stop_reason = event.stop_token_id
        return Delta(text)

    def _shown(self, event: TokenEvent) -> tuple[int, ...]:
        ends_in_stop = event.stop_token_id is not None and event.finish_reason is not None
        return event.token_ids[:-1] if ends_in_stop and not self._include_stop else event.token_ids
