"""Tools of a request: which are taken, and the grammar of answers that may call them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from inferno.engine.sampling.grammar import GrammarCompiler
from inferno.engine.sampling.grammar_child import grammar_source
from inferno.errors import InvalidRequest
from inferno.grammar.rules import Grammar
from inferno.sampling_params import SamplingParams
from inferno.structured import StructuredOutput
from inferno.text.model_text import ModelText
from inferno.text.parsers.answer import Answer, ToolCall, join_pieces
from inferno.text.parsers.calls.parser import CallMarks, CallParser
from inferno.text.parsers.calls.syntax import (
    SYNTAXES,
    Encoding,
    ToolDialect,
    ToolUse,
    make_tool_use,
)
from inferno.text.sequence_texts import SequenceTexts
from inferno.text.tools import MAX_TOOLS, Tools, read_tools
from tests.data import data_path
from tests.grammar.acceptor import Acceptor, Sampler
from tests.grammar.schemas import SCHEMAS
from tests.text.parsers.calling import SPECIAL, Spoken, answer_of_texts, spelled, tokenizer_of

PARAMETERS = {
    "type": "object",
    "properties": {"place": {"enum": ["Rome", "Oslo"]}},
    "required": ["place"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "parameters": PARAMETERS, "strict": True}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": {"name": "t"}}]
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
OPTIONAL = {
    "type": "object",
    "properties": {
        "word": {"enum": ["null", "5", "two words"]},
        "text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "color": {"$ref": "#/$defs/color"},
        "mixed": {"enum": ["x", 5, None, True]},
        "any": {},
        "more": {"type": "object"},
    },
    "required": ["text", "color"],
    "$defs": {"color": {"type": "string", "enum": ["null", "red"]}},
}
IN_CONTENT = [each for each in SYNTAXES if each is not ToolDialect.HARMONY]


def bound(
    dialect: ToolDialect, shape: StructuredOutput | None, choice: str | None = None
) -> tuple[StructuredOutput | None, ToolUse]:
    tools = read_tools(TOOLS, choice)
    use = make_tool_use(dialect, TOOLS)
    assert tools is not None
    assert use is not None
    params, use = tools.bind(SamplingParams(structured=shape), use)
    return params.structured, use


def grammar_of(shape: StructuredOutput | None) -> Grammar:
    assert shape is not None
    grammar = grammar_source(shape).grammar
    assert grammar is not None
    return grammar


def acceptor(shape: StructuredOutput | None) -> Acceptor:
    return Acceptor(grammar_of(shape))


def call(dialect: ToolDialect, place: str = "Rome") -> str:
    """A call as the dialect has it, put together by hand of its texts."""
    syntax = SYNTAXES[dialect]
    arguments = json.dumps({"place": place})
    if syntax.encoding is Encoding.PARAMETERS:
        assert syntax.parameter is not None
        arguments = syntax.parameter.before_name + "place" + syntax.parameter.after_name
        arguments += place + syntax.parameter.end
    written = syntax.begin("get_weather") + arguments + syntax.end
    return syntax.opens + written + syntax.closes


@pytest.mark.parametrize("dialect", IN_CONTENT)
def test_an_answer_is_a_call_or_a_document(dialect: ToolDialect) -> None:
    shape, use = bound(dialect, StructuredOutput(json=CITY))
    assert use.has_document
    answers = acceptor(shape)
    for document in ('{"name": "Rome"}', '{"name":"get_weather", "size": 3}', '{"name": "a<b"}'):
        assert answers.accepts(document), document
    assert answers.accepts(call(dialect))
    assert not answers.accepts(call(dialect, "Bonn"))
    assert not answers.accepts("It rains.")
    assert not answers.accepts("Well: " + call(dialect))
    assert not answers.accepts('{"size": 3}')


@pytest.mark.parametrize("dialect", IN_CONTENT)
@pytest.mark.parametrize(
    ("shape", "document"),
    [
        (StructuredOutput(json_object=True), '{"a": [1, {}]}'),
        (StructuredOutput(regex=r"[a-z]+ \d{2}"), "abc 12"),
        (StructuredOutput(choice=["yes (a+b)?", "no\n- 'c'", "<|x|> #1 & \\d"]), "no\n- 'c'"),
        (StructuredOutput(choice=["yes (a+b)?", "<|x|> #1 & \\d"]), "<|x|> #1 & \\d"),
        (StructuredOutput(json=CITY, disable_any_whitespace=True), '{"name":"a"}'),
    ],
)
def test_documents_of_any_shape_stand_beside_calls(
    dialect: ToolDialect, shape: StructuredOutput, document: str
) -> None:
    answers = acceptor(bound(dialect, shape)[0])
    assert answers.accepts(document)
    assert not answers.accepts(document + "!")
    written = call(dialect)
    if shape.disable_any_whitespace:
        written = written.replace('{"place": ', '{"place":')
        if dialect is ToolDialect.LLAMA:  # whose calls are JSON from the first letter on
            written = written.replace(" ", "")
    assert answers.accepts(written)


NODE = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
    "required": ["next"],
}


def test_references_of_a_schema_are_found_beside_calls_that_are_json() -> None:
    tools = [{"name": "go", "parameters": {"type": "object", **NODE}, "strict": True}]
    read, use = read_tools(tools), make_tool_use(ToolDialect.LLAMA, tools)
    assert read is not None
    assert use is not None
    shape = StructuredOutput(json={**NODE, "default": {"$ref": "#"}})
    answers = acceptor(read.bind(SamplingParams(structured=shape), use)[0].structured)
    assert answers.accepts('{"next": {"next": {}}}')
    assert not answers.accepts('{"next": 1}')
    assert answers.accepts('{"name": "go", "parameters": {"next": {"next": {}}}}')


def test_references_below_names_that_keywords_have_are_found_beside_calls() -> None:
    own = {"default": {"$ref": "#/$defs/number"}, "enum": {"$ref": "#/$defs/number"}}
    document = {
        "$defs": {"number": {"type": "integer"}, "const": {"$ref": "#/$defs/number"}},
        "type": "object",
        "properties": {**own, "examples": {"$ref": "#/$defs/const"}},
    }
    answers = acceptor(bound(ToolDialect.LLAMA, StructuredOutput(json=document))[0])
    assert answers.accepts('{"default": 1, "enum": 2, "examples": 3}')
    assert not answers.accepts('{"examples": "a"}')


@pytest.mark.parametrize("dialect", IN_CONTENT)
@pytest.mark.parametrize("name", ["pydantic model", "pydantic nested", "any of by hand"])
def test_a_call_that_is_bound_is_read_as_one_by_its_schema(dialect: ToolDialect, name: str) -> None:
    schema = OPTIONAL if name == "any of by hand" else SCHEMAS[name]
    tools = [{"name": "f", "parameters": schema, "strict": True}]
    read, use = read_tools(tools, "required"), make_tool_use(dialect, tools)
    assert read is not None
    assert use is not None
    grammar = grammar_of(read.bind(SamplingParams(), use)[0].structured)
    marks = CallMarks(dialect, tokenizer_of("hf/Qwen3-0.6B"), is_shown=False)
    for seed in range(20):
        text = Sampler(grammar, seed).text()
        answer = answer_of_texts(dialect, list(spelled(text, marks)), marks, tools)
        assert answer.content == "", text
        for each in answer.tool_calls:
            jsonschema.validate(json.loads(each.arguments), schema)
        assert answer.tool_calls, text


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize(
    "parameters", [{}, {"anyOf": [{"type": "integer"}, {"type": "object"}]}, {"$ref": "#/$defs/a"}]
)
@pytest.mark.parametrize("dialect", [ToolDialect.HERMES, ToolDialect.LLAMA, ToolDialect.DEEPSEEK])
def test_arguments_are_an_object_whatever_their_schema_allows(
    dialect: ToolDialect, parameters: dict[str, Any], is_strict: bool
) -> None:
    schema = {**parameters, "$defs": {"a": {"type": ["array", "object"]}}}
    tools = [{"name": "f", "parameters": schema, "strict": is_strict}]
    read, use = read_tools(tools, "required"), make_tool_use(dialect, tools)
    assert read is not None
    assert use is not None
    answers = acceptor(read.bind(SamplingParams(), use)[0].structured)
    syntax = SYNTAXES[dialect]
    for arguments, is_taken in (("{}", True), ('{"x": 1}', True), ("5", False), ("[]", False)):
        written = syntax.opens + syntax.begin("f") + arguments + syntax.end + syntax.closes
        assert answers.accepts(written) is is_taken, arguments


def test_harmony_writes_a_document_in_its_final_channel() -> None:
    answers = acceptor(bound(ToolDialect.HARMONY, StructuredOutput(json=CITY))[0])
    assert answers.accepts('final<|message|>{"name": "Rome"}')
    assert not answers.accepts("final<|message|>Rome")
    written = call(ToolDialect.HARMONY).removeprefix("<|channel|>").removesuffix("<|call|>")
    assert answers.accepts(written)
    assert not answers.accepts(written.replace("Rome", "Bonn"))


@pytest.mark.parametrize("shape", [None, StructuredOutput(json=CITY)])
def test_an_answer_that_goes_on_within_a_message_of_harmony_is_no_call(
    shape: StructuredOutput | None,
) -> None:
    model = ModelText(data_path("hf", "gpt-oss-20b"))
    begun = '{"name": "Ro'
    tools, use = read_tools(TOOLS), make_tool_use(ToolDialect.HARMONY, TOOLS)
    assert tools is not None
    assert use is not None
    asked = SamplingParams(structured=shape)
    params, use = tools.bind(asked, use, is_continuation=True)
    assert params == asked
    assert use.has_document == (shape is not None)
    texts = SequenceTexts(
        model.tokenizer,
        params,
        prompt_index=0,
        prompt=None,
        prompt_token_ids=(1,),
        dialect=model.dialect,
        tool_use=use,
        is_continuation=True,
    )
    size = model.tokenizer.vocab_size
    request = model.request(texts, request_id="r", vocab_size=size, answer_so_far=begun)
    assert request.reasoning is None
    assert tools.bind(asked, use)[0] != asked


@pytest.mark.parametrize("dialect", [ToolDialect.HERMES, ToolDialect.QWEN_XML])
def test_many_tools_that_are_not_strict_make_no_shape_that_is_refused(
    dialect: ToolDialect,
) -> None:
    words = {"type": "string", "description": "how it is meant " * 40}
    properties = {f"p{i}": {"type": "array", "items": words} for i in range(10)}
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    functions = [{"name": f"f{i}", "parameters": parameters} for i in range(MAX_TOOLS)]
    use = make_tool_use(dialect, functions)
    tools = read_tools(functions)
    assert use is not None
    assert tools is not None
    grammar = grammar_of(tools.bind(SamplingParams(), use)[0].structured)
    assert sum(map(len, grammar.rules.values())) < 3000
    answers = Acceptor(grammar)
    if dialect is ToolDialect.HERMES:
        begin, end = SYNTAXES[dialect].begin, SYNTAXES[dialect].end
        assert answers.accepts(begin("f0") + '{"p0": ["x"]}' + end)
        assert not answers.accepts(begin("f0") + '{"p0": 5}' + end)
        assert answers.accepts(begin("f127") + '{"p0": 5}' + end)


@pytest.mark.parametrize("dialect", SYNTAXES)
def test_a_required_call_leaves_the_document_out(dialect: ToolDialect) -> None:
    shape, use = bound(dialect, StructuredOutput(json=CITY), "required")
    assert not use.has_document
    assert (shape, use) == bound(dialect, None, "required")


@pytest.mark.parametrize(
    "shape", [StructuredOutput(grammar='start: "a"'), StructuredOutput(structural_tag="{}")]
)
def test_shapes_that_may_hold_a_call_are_refused(shape: StructuredOutput) -> None:
    with pytest.raises(InvalidRequest, match=r"json, json_object, regex or choice .* tool_choice"):
        bound(ToolDialect.HERMES, shape)


@pytest.mark.parametrize("dialect", IN_CONTENT)
@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize("model", [SPECIAL, "hf/Qwen3-0.6B"])
def test_calls_within_a_document_are_its_text(dialect: ToolDialect, step: int, model: str) -> None:
    use = make_tool_use(dialect, TOOLS)
    assert use is not None
    use = replace(use, has_document=True)
    marks = CallMarks(dialect, tokenizer_of(model), is_shown=False)

    def read(text: str) -> Answer:
        parser = CallParser(
            Spoken([text[i : i + step] for i in range(0, len(text), step)]), use, marks
        )
        pieces = [piece for i in range(-(-len(text) // step)) for piece in parser.feed([i])]
        return join_pieces(pieces + parser.finish())

    quoted = json.dumps({"size": 1, "said": call(dialect)}, ensure_ascii=False)
    assert read(quoted) == Answer("", quoted)
    assert read(spelled(call(dialect), marks)).tool_calls == (
        ToolCall("get_weather", '{"place": "Rome"}'),
    )
    assert read("  \n<tool") == Answer("", "  \n<tool")


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({}, "tools must be a list of 1 to 128 tools"),
        ([WEATHER] * (MAX_TOOLS + 1), "a list of 1 to 128"),
        (["f"], "tools[0] must be an object with a name"),
        ([{"type": "function", "function": {}}], "tools[0].function must be an object with a name"),
        ([{"type": "retrieval", "function": WEATHER}], 'tools[0].type must be "function", not \'r'),
        ([{"name": "get weather"}], "tools[0].name must be 1 to 64 letters"),
        ([{"name": 3}], "tools[0].name must be"),
        ([{"name": "f", "description": ["x"]}], "tools[0].description must be a text"),
        ([{"name": "f", "parameters": []}], "tools[0].parameters must be a JSON Schema"),
        (
            [{"name": "f", "parameters": {"type": "string"}}],
            'must be a JSON Schema of type "object"',
        ),
        (
            [{"name": "f", "parameters": {"const": object()}}],
            "must be a JSON Schema, not what JSON",
        ),
        ([{"name": "f", "parameters": {"const": "x" * 300_000}}], "at most 262,144 bytes"),
        ([{"name": "f", "strict": "yes"}], "tools[0].strict must be true or false"),
        ([{"name": "f"}, {"name": "f"}], "tools[1] has the name 'f' of another tool"),
    ],
)
def test_what_are_no_tools_is_refused_by_its_place(tools: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)) as caught:
        read_tools(tools)
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("sometimes", "tool_choice must be none, auto, required or"),
        ({"type": "function"}, "tool_choice must be none, auto"),
        ({"type": "function", "function": {"name": "f"}}, "tool_choice names 'f', which is none"),
    ],
)
def test_a_choice_that_is_none_is_refused(choice: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        read_tools(TOOLS, choice)
    assert caught.value.param == "tool_choice"


def test_a_choice_needs_tools() -> None:
    assert read_tools(None) is None
    assert read_tools(None, "none") is None
    with pytest.raises(InvalidRequest, match="tool_choice needs tools"):
        read_tools(None, "auto")


@pytest.mark.parametrize("none", [[], ()])
def test_an_empty_list_is_no_tools(none: object) -> None:
    assert [read_tools(none, choice) for choice in (None, "none", "auto")] == [None] * 3
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        with pytest.raises(InvalidRequest, match="tool_choice needs tools"):
            read_tools(none, choice)


def shown(tools: Sequence[Mapping[str, Any]], **more: Any) -> Any:
    read = read_tools(list(tools), **more)
    assert isinstance(read, Tools)
    return read.for_template()


def test_a_template_is_shown_what_models_were_trained_on() -> None:
    [first, second] = shown(TOOLS)
    told = {"name": "get_weather", "description": "", "parameters": PARAMETERS}
    assert json.dumps(first) == json.dumps({"type": "function", "function": told})
    assert second["function"]["parameters"] == {"type": "object", "properties": {}}
    assert shown([WEATHER]) == [first]
    assert shown(TOOLS, choice="none") is None


@pytest.mark.parametrize(
    ("model", "dialect", "before"),
    [
        ("Qwen3-0.6B", ToolDialect.HERMES, ""),
        ("gpt-oss-20b", ToolDialect.HARMONY, "final<|message|>"),
    ],
)
def test_calls_and_documents_are_told_apart_in_a_models_own_tokens(
    model: str, dialect: ToolDialect, before: str
) -> None:
    path = data_path("hf", model)
    text = ModelText(path)
    shape, _ = bound(dialect, StructuredOutput(json=CITY))
    assert shape is not None
    shape = replace(shape, special_tokens=tuple(text.tokenizer.marks.items()))
    vocab_size = text.tokenizer.vocab_size
    compiler = GrammarCompiler(path, vocab_size, 4096)
    ending = text.eos_token_ids(vocab_size)
    matcher = compiler.compile(grammar_source(shape).to_json(), ending).matcher

    def accepts(answer: str) -> bool:
        ids = text.tokenizer.encode(answer, add_special_tokens=False)
        copy = matcher.deep_copy()
        return copy.try_consume_tokens(ids) == len(ids) and copy.is_accepting()

    written = call(dialect).removeprefix("<|channel|>").removesuffix("<|call|>")
    assert accepts(written)
    assert not accepts(written.replace("Rome", "Bonn"))
    assert accepts(before + '{"name": "Rome", "size": 3}')
    assert accepts(before + '{"name": "<b>[x]"}')
    assert not accepts(before + '{"size": 3}')
    assert not accepts(before + "It rains.")
