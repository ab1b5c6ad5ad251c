"""Turn a conversation into a prompt by the model's chat template, and tell which names it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from inferno.errors import InvalidRequest, TemplateError
from inferno.json_file import MAX_TEMPLATE_BYTES, TEMPLATE_FILES, read_file
from inferno.limited.pool import Job
from inferno.model_files import TOKENIZER_CONFIG, ModelFiles
from inferno.text.call_form import call_form
from inferno.text.conversation import checked_kwargs, checked_messages, checked_tools
from inferno.text.renderer import TemplateRenderer
from inferno.text.special_token_escape import END_MARK, RenderedChat, SpecialTokenEscaper
from inferno.text.special_tokens import read_named_tokens, read_tokenizer_config
from inferno.text.tokenizer import Tokenizer

_END = END_MARK + " "
_QUOTES = "\"'"


def load_chat_template(
    files: ModelFiles, tokenizer: Tokenizer, instead: Path | None = None
) -> ChatTemplate | None:
    """Return the chat template of a model, or None; raise TemplateError if it's damaged.

    chat_template.jinja comes before tokenizer_config.json's `chat_template`, as in transformers.

    instead  a file whose template replaces all templates of the model.
    """
    if instead is None:
        templates = read_templates(files)
    else:
        content = read_file(instead, error=TemplateError, max_bytes=MAX_TEMPLATE_BYTES)
        templates = {"default": _decoded(content, str(instead))}
    if not templates:
        return None
    named = read_named_tokens(files).named
    texts = {name: token.content for name, token in named.items()}
    return ChatTemplate(templates, texts, tokenizer)


def read_templates(files: ModelFiles) -> dict[str, str]:
    """Return a model's templates by their names; empty where it has none."""
    return _from_files(files) or _from_config(files)


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation being rendered: pass the result of the future of `start` to `finish`."""

    _renderer: TemplateRenderer
    _job: Job
    _escaper: SpecialTokenEscaper
    _is_cut: bool

    def start(self) -> Future[str]:
        """Start the rendering, and return a future of the text that the template writes.

        Raises Overloaded at once; errors of the template come from the future.
        """
        return self._renderer.start(self._job)

    def finish(self, written: str) -> RenderedChat:
        """Return the prompt of a rendered text, with its special tokens found."""
        return self._escaper.unescape(_up_to_end(written) if self._is_cut else written)


class ChatTemplate:
    """A model's chat template, rendered in child processes, which close() ends.

    templates   by name: `default`, and perhaps `tool_use` for conversations with tools; `source` is
                the text of all templates.
    tokens      bos_token, eos_token and the like, which a template may use.
    """

    def __init__(
        self,
        templates: Mapping[str, str],
        tokens: Mapping[str, str],
        tokenizer: Tokenizer,
        renderer: TemplateRenderer | None = None,
    ) -> None:
        self._templates = templates
        self.source = "\n".join(templates.values())
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._renderer = renderer or TemplateRenderer(templates.values())

    def begin(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, object] | None = None,
        template: str | None = None,
    ) -> Rendering:
        """Prepare the prompt of a conversation; call `start` and `finish` of the result.

        add_generation_prompt   end where the assistant's answer begins.
        continue_final_message  end in the middle of the last message, for the model to go on.
        kwargs                  the template's own options, such as enable_thinking.
        template                another template, to be used instead.

        InvalidRequest names what is wrong with the messages, tools or options, in the template's
        words where it refuses them; TemplateError is the template's own fault; Overloaded means
        that too many renderings wait.
        """
        if continue_final_message and add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message goes on with the last message and add_generation_prompt "
                "begins a new one; set only one of them",
                param="continue_final_message",
            )
        escaper = self._tokenizer.escaper
        chosen = self._choose(has_tools=tools is not None) if template is None else template
        conversation = checked_messages(messages, escaper, call_form(chosen))
        if continue_final_message:
            _mark_end(conversation[-1])
        variables = {
            **self._tokens,
            "documents": None,
            **checked_kwargs(kwargs or {}, escaper),
            "messages": conversation,
            "tools": checked_tools(tools, escaper),
            "add_generation_prompt": add_generation_prompt,
        }
        job = self._renderer.prepare(chosen, variables)
        return Rendering(self._renderer, job, escaper, continue_final_message)

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> RenderedChat:
        """Return the prompt of a conversation; options and errors are the same as of `begin`."""
        rendering = self.begin(messages, **options)
        return rendering.finish(rendering.start().result())

    def encode(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Return the token ids of a conversation's prompt; see `begin` for the options."""
        return self._tokenizer.encode_rendered(self.render(messages, **options))

    def close(self) -> None:
        """End the child processes; the next rendering starts others."""
        self._renderer.close()

    def _choose(self, *, has_tools: bool) -> str:
        if has_tools and "tool_use" in self._templates:
            return self._templates["tool_use"]
        if "default" not in self._templates:
            names = ", ".join(sorted(self._templates))
            raise TemplateError(
                f"the model has chat templates for {names:.200} but no default; "
                "give it a chat_template.jinja"
            )
        return self._templates["default"]


def _from_files(files: ModelFiles) -> dict[str, str]:
    return {name: _read(files, file) for name, file in TEMPLATE_FILES.items() if files.has(file)}


def _read(files: ModelFiles, name: str) -> str:
    content = files.read(name, error=TemplateError, max_bytes=MAX_TEMPLATE_BYTES)
    return _decoded(content, files.place(name))


def _decoded(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as problem:
        raise TemplateError(f"{place} is not UTF-8 ({problem}); download it again") from None


def _from_config(files: ModelFiles) -> dict[str, str]:
    match read_tokenizer_config(files).get("chat_template"):
        case None:
            return {}
        case str(template):
            templates: dict[str, str] = {"default": template}
        case list(entries):
            templates = dict(_named_template(entry, files) for entry in entries)
        case _:
            raise _bad_config(files)
    if any(len(template) > MAX_TEMPLATE_BYTES for template in templates.values()):
        raise _bad_config(files)
    return templates


def _named_template(entry: object, files: ModelFiles) -> tuple[str, str]:
    match entry:
        case {"name": str(name), "template": str(template)}:
            return name, template
    raise _bad_config(files)


def _bad_config(files: ModelFiles) -> TemplateError:
    return TemplateError(
        f"chat_template in {files.place(TOKENIZER_CONFIG)} must be a text of at most "
        f'{MAX_TEMPLATE_BYTES:,} bytes, or a list of {{"name": ..., "template": ...}}'
    )


def _mark_end(message: dict[str, Any]) -> None:
    if "content" not in message or (message.get("tool_calls") and not message["content"]):
        raise InvalidRequest(
            "continue_final_message needs a last message that has a content", param="messages"
        )
    message["content"] += _END


def _up_to_end(rendered: str) -> str:
    text, mark, after = rendered.rpartition(END_MARK)
    if not mark:
        raise InvalidRequest(
            "the model's chat template drops the last message, so it can't be continued",
            param="continue_final_message",
        )
    text = text.replace(_END, "")  # some templates write a message twice
    # A template that trims messages has taken the mark's space, and would take those before it.
    return text if after.startswith(" ") else text.rstrip()


@dataclass(frozen=True, slots=True)
class TemplateNames:
    """The names between `{{` and `}}` and between `{%` and `%}`.

    variables   variables, also those that the template sets itself, and Jinja's own words, such as
                `for`.
    keys        attributes, and string literals, which may be keys.
    """

    variables: frozenset[str]
    keys: frozenset[str]


@lru_cache(maxsize=8)  # of the model, and of requests that bring their own
def template_names(source: str) -> TemplateNames:
    """Return the names that a template reads."""
    variables: set[str] = set()
    keys: set[str] = set()
    at = 0
    while (at := source.find("{", at)) >= 0:
        kind = source[at + 1 : at + 2]
        if kind == "#":
            end = source.find("#}", at + 2)
            at = end + 2 if end >= 0 else len(source)
        elif kind and kind in "{%":
            at = _read_block(source, at + 2, ("}" if kind == "{" else "%") + "}", variables, keys)
        else:
            at += 1
    return TemplateNames(frozenset(variables), frozenset(keys))


def _read_block(source: str, at: int, end: str, variables: set[str], keys: set[str]) -> int:
    """Add the names up to the block's end, and return the place behind it."""
    before = ""  # the last character that is no space
    while at < len(source):
        character = source[at]
        if character in _QUOTES:
            start, at = at, _after_text(source, at)
            keys.add(source[start + 1 : at - 1])
        elif character.isidentifier():
            start = at
            while at < len(source) and (source[at] == "_" or source[at].isalnum()):
                at += 1
            at = max(at, start + 1)
            (keys if before == "." else variables).add(source[start:at])
        elif source.startswith(end, at):
            return at + len(end)
        else:
            at += 1
        before = before if character.isspace() else character
    return at


def _after_text(source: str, start: int) -> int:
    at = start + 1
    while at < len(source) and source[at] != source[start]:
        at += 2 if source[at] == "\\" else 1
    return at + 1
