"""Turn prompts into requests, and events of requests into text, by a model's own files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferno.errors import InvalidRequest, NeverFits, TemplateError, TokenizerError
from inferno.model_files import model_files
from inferno.requests import Request, TokenEvent
from inferno.text.chat import Rendering, TemplateNames, load_chat_template, template_names
from inferno.text.completion import Chunk
from inferno.text.generation_config import default_params, eos_token_ids
from inferno.text.parsers.calls.syntax import (
    SYNTAXES,
    ToolDialect,
    ToolUse,
    choose_tool_dialect,
    make_tool_use,
)
from inferno.text.parsers.choose import Dialect, choose_dialect, ending_ids
from inferno.text.parsers.reasoning_marks import reasoning_marks
from inferno.text.sequence_texts import SequenceTexts
from inferno.text.tokenizer import load_tokenizer

_TOKENS_BEFORE = 8  # of the prompt, behind which a prediction is tokenized
_PREDICTED_LENGTH = 16  # characters of a prediction that are looked at per token; texts have 3 to 5
_MAX_TOKEN_LENGTH = 256  # characters; the longest tokens of real vocabularies have 128


class ModelText:
    """The tokenizer, chat template and defaults of a model. Raises ModelError.

    path        of the model's folder or GGUF file.

    needs_tokenizer False: the folder may lack a tokenizer.json, as with random weights.
    chat_template   a Jinja file that replaces the model's own template; None: no file does.
    dialect     how the model sets its reasoning apart.
    defaults    sampling parameters that the model's authors recommend, by name.

    May be used from several threads.
    """

    def __init__(
        self, path: Path, *, needs_tokenizer: bool = True, chat_template: Path | None = None
    ) -> None:
        files = model_files(path)
        self.tokenizer = load_tokenizer(files, is_optional=not needs_tokenizer)
        self.defaults: Mapping[str, Any] = default_params(files)
        self._chat_template = load_chat_template(files, self.tokenizer, chat_template)
        self._template_source = self._chat_template.source if self._chat_template else ""
        self.dialect = choose_dialect(self._template_source, self.tokenizer)
        ending = ending_ids(self.dialect, self.tokenizer)
        self._eos_token_ids = eos_token_ids(files, self.tokenizer) | ending

    @property
    def has_chat_template(self) -> bool:
        """Return whether `encode_chat` works with this model."""
        return self._chat_template is not None

    def takes_template_arg(self, name: str, template: str | None = None) -> bool:
        """Return whether the chat template, or the given one, reads a variable of that name."""
        return name in self._names(template).variables

    def reads_message_key(self, key: str, template: str | None = None) -> bool:
        """Return whether the chat template, or the given one, reads that key of messages."""
        return key in self._names(template).keys

    def tool_dialect(self, template: str | None = None) -> ToolDialect:
        """Return the dialect of calls in the chat template, or in the given one."""
        source = self._template_source if template is None else template
        dialect = choose_tool_dialect(source)
        if dialect is ToolDialect.HARMONY and self.dialect is not Dialect.HARMONY:
            return ToolDialect.UNKNOWN  # the tokenizer lacks the marks
        return dialect

    def tool_use(
        self, tools: Sequence[Mapping[str, Any]] | None, template: str | None = None
    ) -> ToolUse | None:
        """Return how the model calls a request's tools, or None without tools.

        Raises InvalidRequest where the chat template, or the given one, takes no tools, and where
        it isn't known how the model writes calls.
        """
        if not tools:
            return None
        if not self.takes_template_arg("tools", template):
            raise InvalidRequest(
                "this model's chat template takes no tools: leave tools out and describe them in a "
                "message, or give a template that takes them with --chat-template FILE",
                param="tools",
            )
        dialect = self.tool_dialect(template)
        if not dialect.is_readable:
            raise InvalidRequest(
                "this model's chat template takes tools, but in what form the model then writes "
                f"its calls is none of those known ({', '.join(SYNTAXES)}): leave tools out, or "
                "give a template that asks for one of these with --chat-template FILE",
                param="tools",
            )
        return make_tool_use(dialect, tools)

    def eos_token_ids(self, vocab_size: int) -> frozenset[int]:
        """Return the ids of the tokens that end an output, those below `vocab_size`.

        Larger ids are left out: a config may declare tokens of related models.
        """
        return frozenset(i for i in self._eos_token_ids if i < vocab_size)

    def encode(
        self, prompt: str, *, max_model_len: int, add_special_tokens: bool = True
    ) -> list[int]:
        """Return the token ids of a raw prompt; refuse a prompt that is far too long at once."""
        if not self.tokenizer.vocab_size:
            raise TokenizerError(
                "the model's folder has no tokenizer.json: give prompts as lists of token ids"
            )
        _check_length(prompt, max_model_len, param="prompt")
        return self.tokenizer.encode(prompt, add_special_tokens=add_special_tokens)

    def encode_prediction(
        self, prediction: str | None, prompt_token_ids: Sequence[int], *, max_model_len: int
    ) -> tuple[int, ...]:
        """Return the token ids of a text that may follow a prompt, cut to the model's context.

        The text is encoded as it is after the prompt's last tokens, for a SentencePiece vocabulary
        spells a word in another way at the beginning of a text.
        """
        if not prediction or not self.tokenizer.vocab_size:
            return ()
        prediction = prediction[: _PREDICTED_LENGTH * max_model_len]
        last = prompt_token_ids[-_TOKENS_BEFORE:]
        before = self.tokenizer.decode(last, skip_special_tokens=False)
        ids_before = self.tokenizer.encode(before, add_special_tokens=False)
        ids = self.tokenizer.encode(before + prediction, add_special_tokens=False)
        if ids[: len(ids_before)] == ids_before:
            ids = ids[len(ids_before) :]
        else:  # the text joins the prompt's last word, as a token behind the prompt can't
            ids = self.tokenizer.encode(prediction, add_special_tokens=False)
        return tuple(ids[: max(0, max_model_len - len(prompt_token_ids))])

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, max_model_len: int, **options: Any
    ) -> list[int]:
        """Return the token ids of a conversation; options are the same as of ChatTemplate.begin."""
        rendering = self.begin_chat(messages, **options)
        return self.finish_chat(rendering, rendering.start().result(), max_model_len=max_model_len)

    def begin_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Rendering:
        """Begin what `encode_chat` does; await the rendering, then call `finish_chat`."""
        if self._chat_template is None:
            raise TemplateError(
                "this model has no chat template; give a plain prompt, or a template with "
                "--chat-template FILE"
            )
        return self._chat_template.begin(messages, **options)

    def finish_chat(self, rendering: Rendering, written: str, *, max_model_len: int) -> list[int]:
        """Return the token ids of a rendered conversation."""
        rendered = rendering.finish(written)
        _check_length(rendered.text, max_model_len, param="messages")
        return self.tokenizer.encode_rendered(rendered)

    def request(
        self,
        texts: SequenceTexts,
        *,
        request_id: str,
        vocab_size: int,
        priority: int = 0,
        cache_salt: str = "",
        answer_so_far: str = "",
    ) -> Request:
        """Return the engine's request for a prompt; raise InvalidRequest for a bad priority.

        answer_so_far   the beginning of the answer, if the prompt ends with one.
        """
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > 2**31:
            is_short = type(priority) is int and priority.bit_length() <= 64
            shown = priority if is_short else f"a value of type {type(priority).__name__}"
            raise InvalidRequest(
                f"priority must be an integer within ±2**31, not {shown}", param="priority"
            )
        params = texts.params
        if params.prediction is not None:
            params = replace(params, prediction=None)  # it goes as tokens
        is_bound = params.structured is not None
        if params.structured is not None and params.structured.structural_tag is not None:
            marks = tuple(self.tokenizer.marks.items())
            structured = replace(params.structured, special_tokens=marks)
            params = replace(params, structured=structured)
        reasoning = None
        is_reasoned = bool(answer_so_far)  # whoever answers has thought
        if not is_reasoned and (is_bound or params.thinking_token_budget is not None):
            reasoning = reasoning_marks(
                texts.dialect,
                self.tokenizer,
                texts.prompt_token_ids,
                has_calls=is_bound and texts.tool_use is not None,
            )
        return Request(
            request_id=request_id,
            prompt_token_ids=texts.prompt_token_ids,
            params=params,
            eos_token_ids=self._eos_of(texts, vocab_size),
            bad_words_ids=self._bad_words(texts.params.bad_words),
            reasoning=reasoning,
            answer_so_far=answer_so_far,
            prediction_ids=texts.prediction_ids,
            priority=priority,
            cache_salt=cache_salt,
        )

    def close(self) -> None:
        """End the processes that render the chat template; the next rendering starts others."""
        if self._chat_template is not None:
            self._chat_template.close()

    def _eos_of(self, texts: SequenceTexts, vocab_size: int) -> frozenset[int]:
        ending = self.eos_token_ids(vocab_size)
        if texts.tool_use is None:
            return ending
        ids = map(self.tokenizer.token_to_id, SYNTAXES[texts.tool_use.dialect].ending)
        return ending | {i for i in ids if i is not None and i < vocab_size}

    def _names(self, template: str | None) -> TemplateNames:
        return template_names(self._template_source if template is None else template)

    def _bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Tokenize each word as it is at the start of a text and after a space."""
        found = {
            tuple(self.tokenizer.encode(prefix + word, add_special_tokens=False)): None
            for word in words
            for prefix in ("", " ")
        }
        return tuple(ids for ids in found if ids)


async def chunks_of(
    texts: SequenceTexts,
    events: AsyncGenerator[TokenEvent, None],
    abort: Callable[[str, int], None],
) -> AsyncGenerator[Chunk, None]:
    """Yield a request's events as text, and abort the rest of a sequence that a stop string ended.

    Leaving the generator early closes the events' generator, which aborts the request.
    """
    try:
        async for event in events:
            for chunk in texts.feed(event):
                yield chunk
                if chunk.completion is not None and event.finish_reason is None:
                    abort(event.request_id, chunk.sequence_index)
    finally:
        await events.aclose()


def _check_length(text: str, max_model_len: int, *, param: str) -> None:
    if len(text) > _MAX_TOKEN_LENGTH * max_model_len:
        raise NeverFits(
            f"the prompt has {len(text)} characters, far more than a context of "
            f"{max_model_len} tokens holds; shorten it",
            param=param,
        )
