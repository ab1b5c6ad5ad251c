"""What the embedded model is taught about inferno is so: its commands, options and routes exist."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import fields

import pytest
from demo_about import REFERENCE, SIZES, SPOKEN, TOPICS, about_inferno, from_the_tables
from demo_commands import commands_in, problems
from demo_exam import BY_HAND, EXAM, items_of
from demo_questions import HAND_WRITTEN
from demo_reference import command_names, slash_commands
from demo_speech import Said
from demo_split import canonical, is_held_out
from demo_topic import Topic

from inferno.errors import ModelError
from inferno.hub.kinds import refuse_config
from inferno.option_table import table
from inferno.options import EngineOptions, ServerOptions, WorkerOptions
from inferno.server.routes import ROUTES, WORKER_ROUTES
from inferno.structured import StructuredOutput
from tests.fp8 import SECTION, compressed

ANSWERS = [topic.answer for topic in (*TOPICS, *SIZES, *REFERENCE)]


def test_every_command_that_the_corpus_utters_exists() -> None:
    assert [(answer, found) for answer in ANSWERS if (found := problems(answer))] == []


@pytest.mark.parametrize(("beginning", "asked"), SPOKEN)
def test_what_people_say_belongs_to_one_answer(beginning: str, asked: tuple[str, ...]) -> None:
    [topic] = [topic for topic in TOPICS if topic.answer.startswith(beginning)]
    assert set(asked) <= set(topic.asking)


def test_many_answers_show_a_command() -> None:
    shown = {command for answer in ANSWERS for command in commands_in(answer)}
    assert len(shown) > 30
    assert {command.split()[1] for command in shown if " " in command} >= {
        name.split()[0] for name in command_names()
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("To stop it, type: inferno stop", "no command stop"),
        ("To serve it, type: inferno serve demo --bogus 3", "No such option"),
        ("To serve it, type: inferno serve demo qwen", "unexpected extra argument"),
        ("To quantize, add --quantise int8", "no option --quantise"),
        ("To quantize, type: inferno play demo --quantize int3", "int3"),
        ("Ask GET /status for it.", "no route /status"),
        ("Type /restart to begin anew.", "no command /restart"),
        ("See what inferno heal says.", "no command heal"),
        ('To chat, type: inferno play "demo', "No closing quotation"),
    ],
)
def test_what_does_not_exist_is_found(text: str, problem: str) -> None:
    assert any(problem in found for found in problems(text))


def test_every_option_and_route_is_taught() -> None:
    for kind in (EngineOptions, ServerOptions, WorkerOptions):
        for row in table(kind).values():
            assert row.facts.is_python_only or any(a.startswith(f"{row.flag}:") for a in ANSWERS)
    for route in (*ROUTES, *WORKER_ROUTES):
        if "{" not in route.path and len(route.path) > 1:
            assert f"{route.methods[0]} {route.path}: {route.summary}" in ANSWERS


def test_every_command_is_taught_by_its_own_help() -> None:
    assert {f"The command is: inferno {name} --help" for name in command_names()} <= set(ANSWERS)


def test_every_shape_that_an_answer_may_have_is_shown_by_a_command() -> None:
    without_a_flag = {"json_object", "structural_tag"}
    details = {"disable_any_whitespace", "disable_additional_properties"}
    details |= {"whitespace_pattern", "special_tokens"}
    shapes = {field.name for field in fields(StructuredOutput)} - without_a_flag - details
    flags = {"json": "--json-schema"} | {
        name: f"--{name}" for name in ("regex", "choice", "grammar")
    }
    assert shapes == set(flags)
    shown = [command for answer in ANSWERS for command in commands_in(answer)]
    for flag in flags.values():
        assert any(f" {flag} " in command for command in shown), flag


def test_what_is_said_to_be_missing_is_missing() -> None:
    [missing] = [answer for answer in ANSWERS if answer.startswith("Not yet")]
    assert "embeddings" in missing
    assert not any("embeddings" in route.path for route in ROUTES)
    for kind in ("awq", "gptq"):
        assert kind.upper() in missing
        with pytest.raises(ModelError, match=kind.upper()):
            refuse_config("a-model", {"quantization_config": {"quant_method": kind}})
    assert "structured" not in missing
    assert "tools" not in missing


def test_what_is_said_of_fp8_is_so() -> None:
    said = [answer for answer in ANSWERS if "FP8" in answer]
    assert any("files are read" in answer for answer in said)
    assert not any("refused" in answer for answer in said)
    for kind in (SECTION, compressed("channel")):
        refuse_config("a-model", {"quantization_config": kind})
    [forms] = [answer for answer in said if "128 by 128" in answer]
    assert "compressed-tensors" in forms


def test_speculation_is_on_by_default_as_is_said() -> None:
    assert any(answer.startswith("Speculation is on by default") for answer in ANSWERS)
    assert table(EngineOptions)["speculative"].default == "auto"


def test_some_questions_come_in_two_wordings() -> None:
    rng = random.Random("two wordings")
    topic = Topic("It is.", asking=("is it on", "does it run", 'what says: "is it"'))
    asked = [topic.ask(rng).question for _ in range(1000)]
    twice = [question for question in asked if len(re.findall(r"(?:Is|Does) it", question)) == 2]
    assert 0.01 < len(twice) / len(asked) < 0.15
    assert not any('"' in question for question in twice)


def test_a_question_that_is_held_out_is_no_part_of_a_longer_one() -> None:
    rng = random.Random("parts")
    asked = {about_inferno(rng)[0].question for _ in range(6000)}
    held_out = {question for question in asked if is_held_out(question)}
    alone = {question for question in held_out if len(re.findall(r"[.?!]", question)) == 1}
    ends = {question[at.end() :] for question in asked for at in re.finditer(r"[.?!] ", question)}
    begins = {
        question[: at.end() - 1] for question in asked for at in re.finditer(r"[.?!] ", question)
    }
    assert len(alone) > 100
    assert len(ends) > 300
    assert len(alone & (ends | begins)) < 5  # "Prefix caching?" begins a wording of its own


def test_every_command_of_a_chat_is_taught() -> None:
    assert {"/help", "/exit", "/reset", "/set"} <= set(slash_commands())
    [listed] = [answer for answer in ANSWERS if answer.startswith("In a chat you can type")]
    assert all(name in listed for name in slash_commands())


@pytest.mark.parametrize("kind", [about_inferno, from_the_tables], ids=lambda kind: kind.__name__)
def test_a_question_about_inferno_has_many_wordings(kind: object) -> None:
    assert callable(kind)
    rng = random.Random("wordings")
    asked = [kind(rng)[0] for _ in range(4000)]
    assert len({canonical(exchange.question) for exchange in asked}) > 2000
    assert 0.03 < sum(exchange.is_held_out for exchange in asked) / len(asked) < 0.08


@pytest.mark.slow
def test_no_question_about_inferno_has_two_answers() -> None:
    rng = random.Random("two answers")
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for _ in range(20_000):
        exchange = about_inferno(rng)[0]
        answers[canonical(exchange.question)].add(exchange.answer)
    several = {question: found for question, found in answers.items() if len(found) > 1}
    assert len(several) < 5, several  # by chance a dropped word makes two questions one


def test_other_words_leave_commands_as_they_are() -> None:
    rng = random.Random("other words")
    topic = Topic("It checks a machine.", asking=("what does inferno download check",))
    asked = {topic.ask(rng).question.lower() for _ in range(500)}
    assert any("inferno download test" in question for question in asked)
    assert not any("inferno fetch" in question for question in asked)


@pytest.mark.parametrize("kept", ["how many users wait", "set up a server", "find out the speed"])
def test_other_words_do_not_break_what_belongs_together(kept: str) -> None:
    rng = random.Random("together")
    topic = Topic("It is.", asking=(f"tell me {kept}",))
    asked = {topic.ask(rng).question.lower() for _ in range(500)}
    first, second, *_ = kept.split()
    assert len(asked) > 10
    assert all(f"{first} {second}" in q for q in asked if f"{first} " in q or f" {second}" in q)


def test_little_words_are_added_after_who_does_it() -> None:
    rng = random.Random("little words")
    topic = Topic("It is.", asking=("what is the exit code that I get",))
    asked = {topic.ask(rng).question.lower() for _ in range(500)}
    assert any("i really get" in question for question in asked)
    assert not any("exit really code" in question for question in asked)


def test_the_questions_by_hand_are_in_no_wording_of_the_corpus() -> None:
    rng = random.Random("by hand")
    drawn = {canonical(about_inferno(rng)[0].question) for _ in range(30_000)}
    assert drawn.isdisjoint(canonical(asked.question) for asked in HAND_WRITTEN)


def test_the_questions_by_hand_can_be_answered_from_what_is_taught() -> None:
    assert len(HAND_WRITTEN) == 40
    for asked in HAND_WRITTEN:
        assert any(asked.is_right(answer) for answer in ANSWERS), asked
        share = sum(asked.is_right(answer) for answer in ANSWERS) / len(ANSWERS)
        assert share < 0.1, "any answer would do"


def test_the_exam_puts_each_question_by_hand_once() -> None:
    assert BY_HAND in EXAM
    items = items_of(BY_HAND, seed=0, size=3)
    assert [item.question for item in items] == [asked.question for asked in HAND_WRITTEN]


def test_the_exam_refuses_a_right_answer_with_a_command_that_does_not_exist() -> None:
    [item] = [item for item in items_of(BY_HAND, seed=0, size=1) if "HTTP server" in item.question]
    assert item.is_right(Said("To serve a model, type: inferno serve demo", has_ended=True))
    assert not item.is_right(Said("Type: inferno serve demo --now", has_ended=True))
    assert not item.is_right(Said("To serve a model, type: inferno serve demo", has_ended=False))
