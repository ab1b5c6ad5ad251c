"""Answers keep to their grammars, whatever the model would rather say."""

from __future__ import annotations

import json
import re
import shutil
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pydantic
import pytest

from inferno import LLM, InfernoError, SamplingParams, StructuredOutput
from inferno.demo import MODEL_FOLDERS
from inferno.engine.scheduling import steering
from inferno.errors import InvalidRequest
from inferno.grammar import expressions, turns
from inferno.grammar.turns import Aside
from inferno.model_files import model_files
from inferno.text.tokenizer import load_tokenizer

llguidance = pytest.importorskip("llguidance")

from inferno.engine.sampling import grammar  # noqa: E402

SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"enum": ["red", "green", 3, None]}, "minItems": 1, "maxItems": 4},
    {
        "type": "object",
        "properties": {
            "at": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
            "size": {"type": "number", "minimum": 0, "maximum": 2},
            "tree": {"$ref": "#/$defs/tree"},
        },
        "required": ["at", "size", "tree"],
        "additionalProperties": False,
        "$defs": {
            "tree": {
                "anyOf": [
                    {"type": "null"},
                    {
                        "type": "object",
                        "properties": {"left": {"$ref": "#/$defs/tree"}},
                        "required": ["left"],
                        "additionalProperties": False,
                    },
                ]
            }
        },
    },
]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("demo", threads=1) as llm:
        yield llm


def ask(llm: LLM, shape: StructuredOutput, **params: Any) -> tuple[str, str]:
    asked = {"temperature": 1.0, "max_tokens": 300, "seed": 1, **params}
    [done] = llm.generate("Tell me something.", SamplingParams(structured=shape, **asked))
    return done.text, str(done.finish_reason)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema["type"]))
@pytest.mark.parametrize("is_compact", [False, True])
def test_json_is_valid_by_its_schema(llm: LLM, schema: dict[str, Any], is_compact: bool) -> None:
    shape = StructuredOutput(json=schema, disable_any_whitespace=is_compact)
    for seed in range(8):
        text, reason = ask(llm, shape, seed=seed)
        assert reason == "stop"
        jsonschema.validate(json.loads(text), schema)
        if is_compact:
            assert text == json.dumps(json.loads(text), separators=(",", ":")) or "." in text


def test_any_object_is_a_json_object(llm: LLM) -> None:
    text, reason = ask(llm, StructuredOutput(json_object=True), logit_bias={}, max_tokens=400)
    assert text.startswith("{")
    assert reason == "stop"
    assert isinstance(json.loads(text), dict)


def test_a_choice_is_one_of_the_texts(llm: LLM) -> None:
    texts = ('a "quoted" one', "zwölf", "no\nline")
    found = {
        ask(llm, StructuredOutput(choice=texts), seed=seed, temperature=2.0) for seed in range(9)
    }
    assert {reason for _, reason in found} == {"stop"}
    assert {text for text, _ in found} <= set(texts)


def test_a_regular_expression_matches_the_whole_answer(llm: LLM) -> None:
    for seed in range(5):
        text, reason = ask(llm, StructuredOutput(regex="[a-c]{2,5}-[0-9]{3}"), seed=seed)
        assert reason == "stop"
        assert re.fullmatch("[a-c]{2,5}-[0-9]{3}", text)


def test_a_grammar_is_kept_to(llm: LLM) -> None:
    grammar = 'start: "[" item ("," item){0,3} "]"\nitem: /[0-9]{1,2}/'
    text, reason = ask(llm, StructuredOutput(grammar=grammar))
    assert reason == "stop"
    assert re.fullmatch(r"\[[0-9]{1,2}(,[0-9]{1,2}){0,3}\]", text)


def test_a_document_that_is_complete_ends(llm: LLM) -> None:
    shape = StructuredOutput(choice=("yes", "no"))
    text, reason = ask(llm, shape, ignore_eos=True, min_tokens=50)
    assert (text in ("yes", "no"), reason) == (True, "stop")


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema["type"]))
def test_no_document_is_cut_off_by_its_budget(llm: LLM, schema: dict[str, Any]) -> None:
    shape = StructuredOutput(json=schema)
    with pytest.raises(InvalidRequest, match=r"the shortest answer of this shape has \d+") as told:
        ask(llm, shape, max_tokens=1)
    assert told.value.param == "max_tokens"
    least = int(re.findall(r"has (\d+)", str(told.value))[0])
    with pytest.raises(InvalidRequest):
        ask(llm, shape, max_tokens=least - 1)
    for max_tokens in range(least, least + 12):
        text, reason = ask(llm, shape, max_tokens=max_tokens, seed=max_tokens)
        assert reason == "stop"
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("is_library_slow", [False, True])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema["type"]))
def test_answers_that_sit_out_are_the_same(
    llm: LLM, schema: dict[str, Any], is_library_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here no search is quick or goes on for long, nor does the library if that is asked for."""
    expected = [
        ask(llm, StructuredOutput(json=schema), max_tokens=40 + seed, seed=seed)
        for seed in range(3)
    ]
    asides: list[Aside] = []

    def make_aside(task: Callable[[], object]) -> Aside:
        asides.append(Aside(task))
        return asides[-1]

    monkeypatch.setattr(steering, "Aside", make_aside)
    monkeypatch.setattr(steering, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(turns, "_QUICK_STEPS", 0)
    monkeypatch.setattr(expressions, "_STEPS_OF_A_LOOK", 0)
    if is_library_slow:
        monkeypatch.setattr(grammar, "_SLOW_SECONDS", -1.0)
    changed = {**schema, "description": f"compiled anew {is_library_slow}"}
    for number, shape in enumerate([schema, changed]):
        for seed, answer in enumerate(expected):
            params = {"max_tokens": 40 + seed, "seed": seed}
            assert ask(llm, StructuredOutput(json=shape), **params) == answer, number
    assert len(asides) > 10
    assert all(each.is_done and each.problem is None for each in asides)


def test_an_output_keeps_to_places_from_which_an_end_is_known(llm: LLM) -> None:
    # After a slash fifty characters must come; to find that out takes too long.
    schema = {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 50, "pattern": "/"}]}
    [slash] = llm.generate("/", SamplingParams(max_tokens=1))
    biases = dict.fromkeys(slash.prompt_token_ids[-1:], 100.0)
    for max_tokens in range(3, 20):
        text, reason = ask(
            llm,
            StructuredOutput(json=schema),
            max_tokens=max_tokens,
            seed=max_tokens,
            logit_bias=biases,
        )
        assert reason == "stop"
        jsonschema.validate(json.loads(text), schema)


def test_what_a_budget_steers_is_the_same_beside_others(llm: LLM) -> None:
    params = [
        SamplingParams(
            structured=StructuredOutput(json=schema), max_tokens=26 + seed, seed=seed, logprobs=2
        )
        for seed in range(5)
        for schema in SCHEMAS
    ]
    together = llm.generate(["Tell me."] * len(params), params)
    for each, done in zip(params, together, strict=True):
        [alone] = llm.generate("Tell me.", each)
        assert (alone.token_ids, alone.logprobs) == (done.token_ids, done.logprobs)


def test_a_stop_string_cuts_and_is_named(llm: LLM) -> None:
    shape = StructuredOutput(json=SCHEMAS[0])
    [done] = llm.generate("x", SamplingParams(structured=shape, stop=":", max_tokens=60))
    assert ("".join(done.text.split()), done.stop_reason) == ('{"name"', ":")


def test_bans_hold_up_to_the_end(llm: LLM) -> None:
    shape = StructuredOutput(json={"type": "array", "items": {"enum": ["aa", "bb"]}})
    for seed in range(6):
        params = SamplingParams(structured=shape, bad_words=["b", "bb"], max_tokens=20, seed=seed)
        [done] = llm.generate("x", params)
        assert set(json.loads(done.text)) <= {"aa"}


def test_a_token_that_ends_outputs_and_is_text_cuts_no_document_off(tmp_path: Path) -> None:
    shutil.copytree(MODEL_FOLDERS["demo"], tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    letter = load_tokenizer(model_files(tmp_path)).encode("a", add_special_tokens=False)
    for name in ("config.json", "generation_config.json"):
        ending = {**config, "eos_token_id": [config["eos_token_id"], *letter]}
        (tmp_path / name).write_text(json.dumps(ending))
    with LLM(str(tmp_path), threads=1) as llm:
        for seed in range(4):
            text, reason = ask(llm, StructuredOutput(choice=("banana", "kiwi")), seed=seed)
            assert (text in ("banana", "kiwi"), reason) == (True, "stop")
            text, _ = ask(llm, StructuredOutput(regex="x[ab]{3}y"), seed=seed, max_tokens=6)
            assert re.fullmatch("x[ab]{3}y", text)


def test_min_tokens_puts_off_an_end_that_need_not_be(llm: LLM) -> None:
    shape = StructuredOutput(regex="(ab ?)*")
    [done] = llm.generate("x", SamplingParams(structured=shape, min_tokens=20, max_tokens=40))
    assert done.usage.completion_tokens >= 20


def test_requests_have_the_same_answers_alone_and_beside_others(llm: LLM) -> None:
    shapes = [StructuredOutput(json=schema) for schema in SCHEMAS]
    params = [
        SamplingParams(structured=shape, max_tokens=40, seed=seed, logprobs=2)
        for seed, shape in enumerate([*shapes, None, *shapes])
    ]
    together = llm.generate(["Tell me."] * len(params), params)
    for each, done in zip(params, together, strict=True):
        [alone] = llm.generate("Tell me.", each)
        assert (alone.token_ids, alone.logprobs) == (done.token_ids, done.logprobs)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (StructuredOutput(json={"items": {"uniqueItems": True}}), "uniqueItems"),
        (StructuredOutput(json={"$ref": "https://example.com/schema"}), "example.com"),
        (StructuredOutput(regex="(a"), "unclosed group"),
        (StructuredOutput(grammar="start: missing"), "missing"),
    ],
)
def test_what_cant_be_honoured_is_refused_by_name(
    llm: LLM, shape: StructuredOutput, said: str
) -> None:
    with pytest.raises(InfernoError, match=f"structured can't be honoured.*{said}"):
        ask(llm, shape)
    assert ask(llm, StructuredOutput(choice=("yes",))) == ("yes", "stop")


def test_bans_that_leave_nothing_end_that_request_alone(llm: LLM) -> None:
    shape = StructuredOutput(choice=("yes", "no"))
    with pytest.raises(InfernoError, match="allowed_token_ids and bad_words together leave no"):
        ask(llm, shape, allowed_token_ids=[0])
    assert ask(llm, shape)[1] == "stop"


def test_what_is_allowed_leads_to_an_end_or_is_refused(llm: LLM) -> None:
    texts = ("n", "no", "y", "e", "s", "ye")
    asked = llm.generate(texts, SamplingParams(max_tokens=1))
    ids = {text: done.prompt_token_ids[-1] for text, done in zip(texts, asked, strict=True)}
    shape = StructuredOutput(choice=("yes", "no"))
    for left_out in ids:  # some beginnings lead nowhere now
        allowed = [token_id for text, token_id in ids.items() if text != left_out]
        for seed in range(4):
            if left_out == "no":
                with pytest.raises(InvalidRequest, match="leave no way to its end"):
                    ask(llm, shape, allowed_token_ids=allowed, seed=seed)
            else:
                asked_for = {"allowed_token_ids": allowed, "seed": seed, "temperature": 3.0}
                assert ask(llm, shape, **asked_for) == ("no", "stop")


def test_a_limit_that_an_answer_meets_ends_it_alone(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = llguidance.LLParserLimits(step_max_items=1, verbose_errors=False)
    monkeypatch.setattr("inferno.engine.sampling.grammar.LIMITS", few)
    shape = StructuredOutput(json={"type": "object", "properties": {"new": {}}})
    assert ask(llm, shape)[1] == "error"
    assert ask(llm, StructuredOutput(choice=("yes", "no")))[1] == "stop"


def test_chat_returns_values_of_a_schema(llm: LLM) -> None:
    hello = [{"role": "user", "content": "Hello!"}]
    params = SamplingParams(max_tokens=200, temperature=1.0, seed=3)
    [done] = llm.chat(hello, params, schema=SCHEMAS[0])
    assert done.parsed == json.loads(done.text)
    jsonschema.validate(done.parsed, SCHEMAS[0])

    class Answer(pydantic.BaseModel):
        word: typing.Literal["yes", "no"]
        count: int = pydantic.Field(ge=0, le=9)

    [done] = llm.chat(hello, params, schema=Answer)
    assert isinstance(done.parsed, Answer)
    [done] = llm.chat(hello, params, schema=pydantic.TypeAdapter(list[int]))
    assert isinstance(done.parsed, list)
    with pytest.raises(InvalidRequest, match="must be a Pydantic model"):
        llm.chat(hello, params, schema=3)
    bound = SamplingParams(structured=StructuredOutput(choice=("a",)))
    with pytest.raises(InvalidRequest, match="both say the answer's shape"):
        llm.chat(hello, bound, schema=Answer)
