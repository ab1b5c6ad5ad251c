"""`inferno generate`: complete one prompt or many."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import inferno
from inferno.cli.download import fetch_draft_if_absent, fetch_if_absent
from inferno.cli.errors import one_line_errors, say
from inferno.cli.model_options import (
    MODEL_HELP,
    Debug,
    ReasoningEffort,
    Revision,
    Verbose,
    Yes,
    load_model,
    log_to_stderr,
    set_values,
    template_args,
)
from inferno.cli.options import options_of, takes_options
from inferno.cli.terminal import (
    as_text,
    has_colours,
    is_terminal,
    print_of_others,
    print_text,
    summary_table,
    terminal_size,
)
from inferno.cli.word_wrap import DIM, WordWrap
from inferno.errors import InvalidRequest
from inferno.options import EngineOptions
from inferno.requests import FinishReason, SamplingParams
from inferno.structured import MAX_GRAMMAR_BYTES, StructuredOutput
from inferno.text.completion import Chunk, Completion
from inferno.text.parsers.choose import Dialect

_MAX_PROMPT_BYTES = 64 * 2**20
_MOST_SHOWN = 4000  # characters of a prompt, before the text that continues it


@takes_options(EngineOptions, without=("prefix_cache",))
@takes_options(SamplingParams)
def generate(
    model: Annotated[
        str,
        typer.Option("--model", "-m", help=MODEL_HELP),
    ] = "demo",
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt",
            "-p",
            help="A prompt; may be repeated. - reads standard input, without its last newline.",
        ),
    ] = None,
    prompts_file: Annotated[
        Path | None, typer.Option(help="A file with one prompt per line.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Prompts are messages to an assistant.")
    ] = False,
    json_schema: Annotated[
        Path | None, typer.Option(help="A file with a JSON Schema that the output keeps to.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="A regular expression that the whole output matches.")
    ] = None,
    choice: Annotated[
        list[str] | None, typer.Option(help="The output is one of these; to be repeated.")
    ] = None,
    grammar: Annotated[
        Path | None, typer.Option(help="A file with a grammar in Lark's notation.")
    ] = None,
    reasoning_effort: ReasoningEffort = None,
    priority: Annotated[int, typer.Option(help="Higher runs first.", min=-(2**31), max=2**31)] = 0,
    revision: Revision = None,
    yes: Yes = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, as each prompt is done.")
    ] = False,
    verbose: Verbose = False,
    debug: Debug = False,
    **given: Any,
) -> None:
    """Complete one prompt, as a stream, or many at once."""
    with one_line_errors(debug=debug):
        options = options_of(EngineOptions, given)
        if reasoning_effort is not None and not chat:
            raise InvalidRequest("--reasoning-effort goes with --chat", param="reasoning_effort")
        if verbose:
            log_to_stderr()
        prompts = _read_prompts(prompt or [], prompts_file)
        chosen = set_values(**options_of(SamplingParams, given))
        chosen |= set_values(structured=_structured(json_schema, regex, choice or [], grammar))
        SamplingParams(**chosen)  # refuses bad values before the model is loaded
        fetch_if_absent(model, revision, yes=yes, options=options)
        fetch_draft_if_absent(options, yes=yes)
        llm = load_model(model, revision=revision, **options)
        params = replace(llm.default_params, **chosen)
        chat_args = template_args(llm, reasoning_effort)
        _run(
            llm, prompts, params, priority=priority, chat=chat, chat_args=chat_args, as_json=as_json
        )
        llm.close()


def _structured(
    json_schema: Path | None, regex: str | None, choice: list[str], grammar: Path | None
) -> StructuredOutput | None:
    """Return the shape that the options ask for; InvalidRequest where several do."""
    asked: dict[str, Any] = {
        "json": _read_grammar(json_schema) if json_schema else None,
        "regex": regex,
        "choice": tuple(choice) or None,
        "grammar": _read_grammar(grammar) if grammar else None,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) > 1:
        raise InvalidRequest(
            "an output has one shape: give one of --json-schema, --regex, --choice and --grammar",
            param="structured",
        )
    return StructuredOutput(**given) if given else None


def _read_grammar(path: Path) -> str:
    with path.open("rb") as file:
        return _decode(file.read(MAX_GRAMMAR_BYTES + 1), str(path))


def _read_prompts(given: list[str], prompts_file: Path | None) -> list[str]:
    if given.count("-") > 1:
        raise typer.BadParameter("standard input can be read once: give --prompt - once")
    prompts = [_read_stdin() if text == "-" else as_text(text) for text in given]
    if prompts_file is not None:
        prompts += _read_file(prompts_file)
    if not prompts and sys.stdin is not None and not sys.stdin.isatty():
        prompts = [_read_stdin()]
    if not prompts:
        raise typer.BadParameter("give a prompt: --prompt TEXT, or --prompts-file FILE")
    return prompts


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InvalidRequest("standard input is closed; give a prompt with --prompt")
    text = _decode(sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1), "standard input")
    # A line break ends the last line too: `echo` and editors add it, and no model expects it.
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _read_file(path: Path) -> list[str]:
    with path.open("rb") as file:
        lines = _decode(file.read(_MAX_PROMPT_BYTES + 1), str(path)).split("\n")
    prompts = [line.removesuffix("\r") for line in lines if line.strip()]
    if not prompts:
        raise InvalidRequest(f"{path} holds no prompt: it must have one per line")
    return prompts


def _decode(content: bytes, source: str) -> str:
    if len(content) > _MAX_PROMPT_BYTES:
        raise InvalidRequest(f"{source} holds more than {_MAX_PROMPT_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"{source} is not UTF-8 text: {problem}") from None


def _run(
    llm: inferno.LLM,
    texts: list[str],
    params: SamplingParams,
    *,
    priority: int,
    chat: bool,
    chat_args: Mapping[str, Any],
    as_json: bool,
) -> None:
    prompts: list[str | list[int]] = [
        llm.encode_chat([{"role": "user", "content": text}], template_args=chat_args)
        if chat
        else text
        for text in texts
    ]
    how: dict[str, Any] = {"priority": priority, "dialect": llm.dialect if chat else Dialect.PLAIN}
    if as_json:
        finished = _print_objects(llm, texts, prompts, params, how)
    elif len(prompts) == 1:
        finished = _stream(llm, prompts[0], params, how, shown="" if chat else texts[0])
    else:
        finished = _print_all(llm, texts, prompts, params, how)
    for completion in sorted(finished, key=lambda done: done.prompt_index):
        _check(completion)
    _tell_of_cuts(finished, params, llm.max_model_len)


def _print_objects(
    llm: inferno.LLM,
    texts: list[str],
    prompts: list[str | list[int]],
    params: SamplingParams,
    how: Mapping[str, Any],
) -> list[Completion]:
    finished = []
    for completion in llm.as_completed(prompts, params, **how):
        finished.append(completion)
        # In ASCII, so that no encoding spoils it and no odd line separator splits it.
        print_text(json.dumps(_as_object(completion, texts)) + "\n")
    return finished


def _as_object(completion: Completion, texts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "index": completion.prompt_index,
        "prompt": texts[completion.prompt_index],
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "usage": asdict(completion.usage),
        "timings": asdict(completion.timings),
    }
    if completion.reasoning:
        found["reasoning"] = completion.reasoning
    return found if completion.error is None else {**found, "error": completion.error}


def _stream(
    llm: inferno.LLM,
    prompt: str | list[int],
    params: SamplingParams,
    how: Mapping[str, Any],
    *,
    shown: str,
) -> list[Completion]:
    """Print the text as it comes; on a terminal after the prompt that it continues."""
    if not is_terminal():  # piped output is the text and nothing else
        return _follow(llm.stream(prompt, params, **how), print_text)
    wrap = WordWrap(print_text, terminal_size)
    cut = "[…] " if len(shown) > _MOST_SHOWN else ""
    wrap.feed(cut + shown[-_MOST_SHOWN:], DIM if has_colours() else "")
    try:
        return _follow(llm.stream(prompt, params, **how), wrap.feed)
    finally:
        wrap.end_line()


def _follow(chunks: Iterable[Chunk], write: Callable[[str], None]) -> list[Completion]:
    finished = []
    for chunk in chunks:
        write(chunk.text)
        if chunk.completion is not None:
            _check(chunk.completion)
            finished.append(chunk.completion)
    return finished


def _print_all(
    llm: inferno.LLM,
    texts: list[str],
    prompts: list[str | list[int]],
    params: SamplingParams,
    how: Mapping[str, Any],
) -> list[Completion]:
    """Print each text once it is done and those of the prompts before it are printed."""
    finished: list[Completion] = []
    waiting: dict[int, Completion] = {}
    for completion in llm.as_completed(prompts, params, **how):
        waiting[completion.prompt_index] = completion
        while (done := waiting.pop(len(finished), None)) is not None:
            finished.append(done)
            print_of_others(
                f"=== {len(finished)}/{len(prompts)}: {_shorten(texts[done.prompt_index])}\n"
            )
            _print_wrapped(done.text + "\n\n")
    print_text(summary_table(finished))
    return finished


def _print_wrapped(text: str) -> None:
    if not is_terminal():
        print_text(text)
        return
    wrap = WordWrap(print_text, terminal_size)
    wrap.feed(text)
    wrap.end_line()


def _tell_of_cuts(finished: Sequence[Completion], params: SamplingParams, context: int) -> None:
    """Tell of outputs that the full context cut before --max-tokens tokens, or that have none."""
    if params.max_tokens == 0:
        say("note: --max-tokens 0 asks for no new tokens, so there are none")
    num_cut = sum(
        done.finish_reason is FinishReason.LENGTH and len(done.token_ids) < (params.max_tokens or 0)
        for done in finished
    )
    if num_cut:
        which = f"{num_cut} of {len(finished)} outputs" if len(finished) > 1 else "the output"
        say(
            f"note: {which} ended where the context of {context} tokens was full, "
            f"before --max-tokens {params.max_tokens}"
        )


def _check(completion: Completion) -> None:
    if completion.error is not None:
        raise inferno.InfernoError(f"prompt {completion.prompt_index + 1}: {completion.error}")


def _shorten(text: str, longest: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
