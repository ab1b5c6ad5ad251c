"""Define the dialects of tool calls by their texts, and find the one that a template asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from inferno.text.chat import template_names
from inferno.text.parsers.harmony_header import Mark

MAX_NAME_LENGTH = 256


class ToolDialect(StrEnum):
    """The way in which a model writes calls of tools."""

    HERMES = "hermes"  # JSON between <tool_call> and </tool_call>: Hermes, Qwen2.5, Qwen3
    QWEN_XML = "qwen_xml"  # <function=name> and <parameter=name>: Qwen3-Coder, Qwen3.5
    LLAMA = "llama"  # bare JSON, or Python's calls in a list: Llama 3 and 4
    MISTRAL_LIST = "mistral_list"  # [TOOL_CALLS] and a list in JSON: Mistral up to v7
    MISTRAL_ARGS = "mistral_args"  # [TOOL_CALLS]name[ARGS] and JSON: Mistral from v11 on
    DEEPSEEK = "deepseek"  # JSON fenced by ```json: DeepSeek-V3 and -R1
    HARMONY = "harmony"  # messages to functions.name: gpt-oss
    UNKNOWN = "unknown"  # the template takes tools, but writes calls in a way that no reader knows
    NONE = "none"  # the template knows nothing of tools

    @property
    def is_readable(self) -> bool:
        """Return whether there is a reader for calls in this dialect."""
        return self not in (ToolDialect.UNKNOWN, ToolDialect.NONE)


class Encoding(StrEnum):
    """The way in which the arguments of a call are written."""

    JSON = "json"  # an object in JSON
    PARAMETERS = "parameters"  # one parameter after the other, each between its ParameterSyntax


@dataclass(frozen=True, slots=True)
class ParameterSyntax:
    """The texts around the name and the value of a parameter.

    A value is the text itself where the parameter's schema says `string`, and JSON elsewhere.
    """

    before_name: str
    after_name: str
    end: str


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """The texts of which the calls of an answer are made, as the model is taught to write them.

    `opens`, then each call with `separator` between two, then `closes`. A call is `before_name`,
    the name, `after_name`, the arguments in `encoding`, `end`.

    marks       the parts of the texts that may be tokens of their own; where such a token is
                special, the same letters in other tokens are text.
    is_single   an answer has one call at most.
    ending      tokens that end an answer with calls, beside those that end any answer.
    """

    before_name: str
    after_name: str
    end: str
    opens: str = ""
    separator: str = ""
    closes: str = ""
    marks: tuple[str, ...] = ()
    is_single: bool = False
    ending: tuple[str, ...] = ()
    encoding: Encoding = Encoding.JSON
    parameter: ParameterSyntax | None = None

    @property
    def first_mark(self) -> str | None:
        """Return the mark that begins an answer's calls, or None without such a mark."""
        first = self.opens or self.before_name
        return next((mark for mark in self.marks if first.startswith(mark)), None)

    def begin(self, name: str) -> str:
        """Return the text with which a call of a tool begins, up to the arguments."""
        return self.before_name + name + self.after_name


TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
PYTHON_TAG, END_OF_MESSAGE = "<|python_tag|>", "<|eom_id|>"
TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEP, FENCE, FENCE_END = "<｜tool▁sep｜>", "```json", "```"

SYNTAXES: Mapping[ToolDialect, CallSyntax] = {
    ToolDialect.HERMES: CallSyntax(
        before_name=f'{TOOL_CALL}\n{{"name": "',
        after_name='", "arguments": ',
        end=f"}}\n{TOOL_CALL_END}",
        separator="\n",
        marks=(TOOL_CALL, TOOL_CALL_END),
    ),
    ToolDialect.QWEN_XML: CallSyntax(
        before_name=f"{TOOL_CALL}\n{FUNCTION}",
        after_name=">\n",
        end=f"{FUNCTION_END}\n{TOOL_CALL_END}",
        separator="\n",
        marks=(TOOL_CALL, TOOL_CALL_END),
        encoding=Encoding.PARAMETERS,
        parameter=ParameterSyntax(PARAMETER, ">\n", f"\n{PARAMETER_END}\n"),
    ),
    ToolDialect.LLAMA: CallSyntax(
        before_name='{"name": "',
        after_name='", "parameters": ',
        end="}",
        separator="; ",
        marks=(PYTHON_TAG,),
        is_single=True,  # its template takes no more of them back
        ending=(END_OF_MESSAGE,),
    ),
    ToolDialect.MISTRAL_LIST: CallSyntax(
        opens=f"{TOOL_CALLS}[",
        before_name='{"name": "',
        after_name='", "arguments": ',
        end="}",
        separator=", ",
        closes="]",
        marks=(TOOL_CALLS,),
    ),
    ToolDialect.MISTRAL_ARGS: CallSyntax(
        before_name=TOOL_CALLS,
        after_name=ARGS,
        end="",
        marks=(TOOL_CALLS, CALL_ID, ARGS),
    ),
    ToolDialect.DEEPSEEK: CallSyntax(
        opens=CALLS_BEGIN,
        before_name=f"{CALL_BEGIN}function{SEP}",
        after_name=f"\n{FENCE}\n",
        end=f"\n{FENCE_END}{CALL_END}",
        separator="\n",
        closes=CALLS_END,
        marks=(CALLS_BEGIN, CALL_BEGIN, SEP, CALL_END, CALLS_END),
    ),
    ToolDialect.HARMONY: CallSyntax(
        before_name=f"{Mark.CHANNEL}commentary to=functions.",
        after_name=f" {Mark.CONSTRAIN}json{Mark.MESSAGE}",
        end=Mark.CALL,
        marks=tuple(Mark),
        is_single=True,
        ending=(Mark.CALL,),
    ),
}
# A template has all texts of a row: they stand in its instructions to the model, or in what it
# makes of calls that were made. The first row that fits says the dialect.
_SIGNS = (
    (ToolDialect.HARMONY, (Mark.CHANNEL, "functions.")),
    (ToolDialect.QWEN_XML, (TOOL_CALL, FUNCTION, PARAMETER)),
    (ToolDialect.HERMES, (TOOL_CALL, "arguments")),
    (ToolDialect.DEEPSEEK, (CALL_BEGIN, SEP, FENCE)),
    (ToolDialect.MISTRAL_ARGS, (TOOL_CALLS, ARGS)),
    (ToolDialect.MISTRAL_LIST, (TOOL_CALLS,)),
    (ToolDialect.LLAMA, ("<|start_header_id|>", '"parameters": ')),
    (ToolDialect.LLAMA, ("<|header_start|>", '"parameters": ')),
)


def choose_tool_dialect(template: str | None) -> ToolDialect:
    """Return the dialect of tool calls whose texts a chat template contains."""
    text = template or ""
    for dialect, signs in _SIGNS:
        if all(sign in text for sign in signs):
            return dialect
    takes_tools = "tools" in template_names(text).variables
    return ToolDialect.UNKNOWN if takes_tools else ToolDialect.NONE


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that a request has, and the dialect in which its model calls them.

    schemas     name -> the JSON schema of its parameters, as the request has it.
    has_document    an answer without calls has a shape: then an answer has calls only if it begins
                    with one.
    """

    dialect: ToolDialect
    schemas: Mapping[str, Mapping[str, Any]]
    has_document: bool = False


def make_tool_use(dialect: ToolDialect, tools: object) -> ToolUse | None:
    """Return how a request's tools are called; None without tools or a readable dialect.

    tools   a list of `{"type": "function", "function": {"name", "parameters"}}`, or of the inner
            objects alone; other items have no name to be called by.
    """
    if not isinstance(tools, list | tuple) or not tools or not dialect.is_readable:
        return None
    return ToolUse(dialect, dict(_schemas(tools)))


def _schemas(tools: list[object] | tuple[object, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name := function.get("name"), str):
            continue
        parameters = function.get("parameters")
        yield name, parameters if isinstance(parameters, Mapping) else {}


def is_name(text: str) -> bool:
    """Return whether a text may be meant as a tool's name."""
    return 0 < len(text) <= MAX_NAME_LENGTH and text.isprintable() and not re.search(r"\s", text)
