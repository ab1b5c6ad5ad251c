"""One choice of a completion: its text, after the prompt where that is to be echoed."""

from __future__ import annotations

from msgspec import UNSET

from inferno.server.answers import CompletionChoice, CompletionLogprobs, PromptLogprobs
from inferno.server.call import finish_reason, stop_reason
from inferno.server.fields import CompletionRequest
from inferno.server.jobs import Job
from inferno.server.logprobs import (
    CompletionLogprobsWriter,
    TokenNames,
    joined,
    prompt_logprobs,
)
from inferno.text.completion import Chunk


class ChoiceWriter:
    """Writes one choice, whole or chunk by chunk; the first begins with the echo."""

    def __init__(
        self, fields: CompletionRequest, job: Job, sample_index: int, names: TokenNames
    ) -> None:
        self._fields = fields
        self._job = job
        self._index = job.texts.prompt_index * fields.n + sample_index
        self._names = names
        self._logprobs = CompletionLogprobsWriter(
            names,
            fields.logprobs or 0,
            skip_special_tokens=fields.skip_special_tokens,
            is_beginning=fields.echo,
        )
        self._is_first = True

    @property
    def waits_for_prompt(self) -> bool:
        """Return whether the echo still lacks its log-probabilities: another choice brings them."""
        is_scored = self._fields.echo and self._fields.logprobs is not None
        return is_scored and self._is_first and self._job.texts.prompt_logprobs is None

    def write(self, chunk: Chunk) -> CompletionChoice:
        """Return the choice's new part for a chunk; the first has the echo, the last the ending."""
        is_first, self._is_first = self._is_first, False
        done, fields = chunk.completion, self._fields
        prompt_ids = list(self._job.texts.prompt_token_ids)
        tells_prompt = is_first and fields.return_token_ids
        return CompletionChoice(
            index=self._index,
            text=(self._echo() if is_first and fields.echo else "") + chunk.text,
            logprobs=self._logprobs_of(chunk, is_first=is_first),
            finish_reason=None if done is None else finish_reason(done),
            stop_reason=None if done is None else stop_reason(done, fields),
            token_ids=list(chunk.token_ids) if fields.return_token_ids else UNSET,
            prompt_token_ids=prompt_ids if tells_prompt else UNSET,
            prompt_logprobs=self._prompt_logprobs() or UNSET,
        )

    def plain(self, text: str) -> CompletionChoice:
        """Return a new part with nothing but text, which is neither the first nor the last."""
        return CompletionChoice(
            index=self._index, text=text, logprobs=None, finish_reason=None, stop_reason=None
        )

    def _echo(self) -> str:
        if self._job.prompt is not None:
            return self._job.prompt
        return self._names.text(
            self._job.texts.prompt_token_ids,
            skip_special_tokens=self._fields.skip_special_tokens,
        )

    def _logprobs_of(self, chunk: Chunk, *, is_first: bool) -> CompletionLogprobs | None:
        if self._fields.logprobs is None:
            return None
        if not (is_first and self._fields.echo):
            return self._logprobs.write(chunk.token_ids, chunk.logprobs)
        texts = self._job.texts
        echoed = self._logprobs.write(
            texts.prompt_token_ids, texts.prompt_logprobs or (), spelled=self._job.prompt
        )
        return joined(echoed, self._logprobs.write(chunk.token_ids, chunk.logprobs))

    def _prompt_logprobs(self) -> PromptLogprobs | None:
        entries = self._job.texts.prompt_logprobs
        if self._fields.prompt_logprobs is None or entries is None:
            return None
        return prompt_logprobs(entries, self._names, self._fields.prompt_logprobs)
