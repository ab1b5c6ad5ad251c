"""Write log-probabilities in OpenAI's three forms: of a chat, a completion, a prompt."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import takewhile

from inferno.requests import TokenLogprobs
from inferno.server.openai.response_types import (
    ChatLogprob,
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
)
from inferno.text.detokenize import is_byte_token, token_bytes
from inferno.text.tokenizer import Tokenizer

_LOWEST = -9999.0  # for tokens that can't be: JSON has no infinity


class TokenNames:
    """The spelling of tokens in answers: their text, or with `as_ids` token_id:123."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def bytes_of(self, token_id: int) -> bytes:
        """Return the UTF-8 bytes that a token adds to the text."""
        return token_bytes(self._tokenizer, token_id)

    def is_byte(self, token_id: int) -> bool:
        """Return whether the token is one byte, as SentencePiece spells a character it lacks."""
        return is_byte_token(self._tokenizer, token_id)

    def text(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of several tokens."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def name(self, token_id: int) -> str:
        """Return a token's text; U+FFFD stands for bytes that are no whole character."""
        if self._as_ids:
            return f"token_id:{token_id}"
        return self.bytes_of(token_id).decode(errors="replace")

    def key(self, token_id: int) -> str:
        """Return a token's text; parts of characters, which look alike, as bytes:\\xe2\\x82."""
        name = self.name(token_id)
        if "\ufffd" not in name:
            return name
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.bytes_of(token_id))

    def num_dropped(self, token_id: int) -> int:
        """Return how many spaces the token loses where a text begins, as SentencePiece has it."""
        in_mid_sentence, alone = self.bytes_of(token_id), self._tokenizer.decode([token_id])
        num_spaces = len(in_mid_sentence) - len(in_mid_sentence.lstrip(b" "))
        return num_spaces - (len(alone) - len(alone.lstrip(" ")))

    def is_special(self, token_id: int) -> bool:
        """Return whether the token is a special one, which is no text."""
        return token_id in self._tokenizer.special_tokens

    def num_added(self, token_ids: Sequence[int], spelled: str) -> int:
        """Return how many special tokens were put before the tokens of a text."""
        first = [self.bytes_of(i).decode() for i in takewhile(self.is_special, token_ids)]
        places = range(len(first) + 1)
        return next(num for num in places if spelled.startswith("".join(first[num:])))


def chat_logprobs(
    entries: Sequence[TokenLogprobs], names: TokenNames, num_top: int | None
) -> ChatLogprobs:
    """Return the log-probabilities of a chat's tokens, each with other tokens at its place.

    num_top     how many other tokens, the likeliest; None tells all.
    """
    return ChatLogprobs([_chat_logprob(entry, names, num_top) for entry in entries])


def prompt_logprobs(
    entries: Sequence[TokenLogprobs | None], names: TokenNames, num_top: int
) -> PromptLogprobs:
    """Return a prompt's log-probabilities by token id; None for the first, which has no context."""
    return [None if entry is None else _ranked(entry, names, num_top) for entry in entries]


class CompletionLogprobsWriter:
    """A writer of a completion's log-probabilities, which follows where each token begins.

    skip_special_tokens whether the text is without special tokens.
    is_beginning        whether the text begins with the first tokens; else it continues another
                        text.
    """

    def __init__(
        self, names: TokenNames, num_top: int, *, skip_special_tokens: bool, is_beginning: bool
    ) -> None:
        self._names = names
        self._num_top = num_top
        self._skip_special_tokens = skip_special_tokens
        self._is_beginning = is_beginning
        self._offset = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._run = b""  # bytes of tokens that are one each
        self._run_start = 0

    def write(
        self,
        token_ids: Sequence[int],
        entries: Sequence[TokenLogprobs | None],
        *,
        spelled: str | None = None,
        is_all_told: bool = False,
    ) -> CompletionLogprobs:
        """Return the next tokens' entries.

        spelled         the text that the tokens were encoded from, if any.
        is_all_told     whether all tokens beside a chosen one are told, and not only the likeliest.
        """
        num_top = None if is_all_told else self._num_top
        return CompletionLogprobs(
            text_offset=self._places(token_ids, spelled),
            token_logprobs=[None if entry is None else _floor(entry.logprob) for entry in entries],
            tokens=[self._names.key(token_id) for token_id in token_ids],
            top_logprobs=[
                None if entry is None else self._top(entry, num_top) for entry in entries
            ],
        )

    def _places(self, token_ids: Sequence[int], spelled: str | None) -> list[int]:
        if spelled is None:
            return [self._place(i, is_shown=self._is_shown(i)) for i in token_ids]
        num_added = self._names.num_added(token_ids, spelled)
        return [self._place(i, is_shown=False) for i in token_ids[:num_added]] + [
            self._place_in(spelled, i) for i in token_ids[num_added:]
        ]

    def _is_shown(self, token_id: int) -> bool:
        return not (self._skip_special_tokens and self._names.is_special(token_id))

    def _place_in(self, text: str, token_id: int) -> int:
        offset, text_of_token = (
            self._offset,
            self._names.bytes_of(token_id).decode(errors="replace"),
        )
        is_there = text.startswith(text_of_token, offset)
        place = self._place(token_id, is_shown=is_there or not self._names.is_special(token_id))
        if text_of_token.startswith(" ") and not text.startswith(" ", offset):
            self._offset = (
                offset + len(text_of_token) - 1
            )  # which SentencePiece puts before each part
        return place

    def _place(self, token_id: int, *, is_shown: bool) -> int:
        if is_shown:
            self._end_character(token_id)
        offset = self._offset
        if is_shown:
            self._offset += len(self._utf8.decode(self._names.bytes_of(token_id)))
            if self._is_beginning:
                self._offset -= self._names.num_dropped(token_id)
                self._is_beginning = False
        return offset

    def _end_character(self, token_id: int) -> None:
        """Count what stands for bytes that no character came of, if the token doesn't go on."""
        if self._names.is_byte(token_id):
            if not self._run:
                self._run_start = self._offset
            self._run += self._names.bytes_of(token_id)
        elif self._run:
            if not _is_utf8(self._run):  # then each byte of such a run is a character by itself
                self._utf8.reset()
                self._offset = self._run_start + len(self._run)
            self._run = b""
        pending, _ = self._utf8.getstate()
        if pending and not _is_utf8(pending + self._names.bytes_of(token_id)[:1], is_whole=False):
            self._offset += len(self._utf8.decode(b"", final=True))
            self._utf8.reset()

    def _top(self, entry: TokenLogprobs, num_top: int | None) -> dict[str, float]:
        top = {self._names.key(i): _floor(logprob) for i, logprob in entry.top[:num_top]}
        return {**top, self._names.key(entry.token_id): _floor(entry.logprob)}


def _is_utf8(text: bytes, *, is_whole: bool = True) -> bool:
    try:
        codecs.utf_8_decode(text, "strict", is_whole)
    except UnicodeDecodeError:
        return False
    return True


def concatenated(first: CompletionLogprobs, more: CompletionLogprobs) -> CompletionLogprobs:
    """Return the log-probabilities of two successive pieces of a completion as one."""
    return CompletionLogprobs(
        text_offset=first.text_offset + more.text_offset,
        token_logprobs=first.token_logprobs + more.token_logprobs,
        tokens=first.tokens + more.tokens,
        top_logprobs=first.top_logprobs + more.top_logprobs,
    )


def _chat_logprob(entry: TokenLogprobs, names: TokenNames, num_top: int | None) -> ChatLogprob:
    return ChatLogprob(
        token=names.name(entry.token_id),
        logprob=_floor(entry.logprob),
        bytes=list(names.bytes_of(entry.token_id)),
        top_logprobs=[
            TopLogprob(names.name(i), _floor(logprob), list(names.bytes_of(i)))
            for i, logprob in entry.top[:num_top]
        ],
    )


def _ranked(entry: TokenLogprobs, names: TokenNames, num_top: int) -> dict[str, PromptLogprob]:
    ranked = {
        str(i): PromptLogprob(_floor(logprob), rank, names.name(i))
        for rank, (i, logprob) in enumerate(entry.top[:num_top], start=1)
    }
    own = PromptLogprob(_floor(entry.logprob), entry.rank, names.name(entry.token_id))
    return ranked if str(entry.token_id) in ranked else {str(entry.token_id): own, **ranked}


def _floor(logprob: float) -> float:
    return max(logprob, _LOWEST)
