"""A conversation without a terminal: turns, the prefix cache, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferno import LLM, SamplingParams
from inferno.cli.chat.session import Session
from inferno.cli.chat.stats import notice, trim_notice
from inferno.cli.chat.transcript import as_json
from inferno.cli.model_options import template_args
from inferno.errors import InvalidRequest, NeverFits
from inferno.text.parsers.choose import Dialect
from tests.tiny import save_tiny_model

# Printable tokens only: bytes that are no text can't come back in the next prompt as they were.
TEXT_IDS = range(6, 100)
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True, allowed_token_ids=TEXT_IDS)
BLOCK = 16


@pytest.fixture
def session(llm: LLM) -> Session:
    return Session(llm, "tiny", GREEDY)


def ask(session: Session, question: str) -> str:
    return "".join(chunk.text for chunk in session.ask(question))


def test_each_turn_continues_the_conversation(session: Session) -> None:
    first, second = ask(session, "hello"), ask(session, "again")
    assert [turn.answer for turn in session.turns] == [first, second]
    assert session.messages == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": second},
    ]
    expected = session.llm.encode_chat([*session.messages[:3]])
    assert session.turns[1].num_prompt_tokens == len(expected)


def test_the_system_prompt_comes_first(session: Session) -> None:
    session.system = "be kind"
    ask(session, "hello")
    assert session.messages[0] == {"role": "system", "content": "be kind"}
    assert session.turns[0].num_prompt_tokens == len(session.llm.encode_chat(session.messages[:2]))


@pytest.mark.parametrize("model", ["tiny", "demo"])
def test_a_turn_computes_only_what_is_new(llm: LLM, model: str) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=40)
    with LLM("demo", threads=1, max_num_seqs=1) as demo:
        session = Session(llm, "tiny", GREEDY) if model == "tiny" else Session(demo, "demo", greedy)
        ask(session, "What is 2 + 3? Please say it slowly.")
        for question in ("Are you quite sure?", "Thank you!"):
            before = session.num_context_tokens
            ask(session, question)
            completion = session.turns[-1].completion
            assert completion is not None
            # An output's last token is computed only when something follows it.
            full_blocks = (before - 1) // BLOCK * BLOCK
            assert full_blocks > 0
            assert completion.usage.cached_tokens >= full_blocks


def test_an_odd_spelling_is_found_in_the_cache_as_well() -> None:
    with LLM("demo", threads=1, max_num_seqs=1) as demo:
        letters = [demo.tokenizer.token_to_id(letter) for letter in "abcdefghijklmnop"]
        ids = [token_id for token_id in letters if token_id is not None]
        params = replace(GREEDY, max_tokens=50, temperature=2.0, seed=2, allowed_token_ids=ids)
        session = Session(demo, "demo", params)
        text = ask(session, "hello")
        assert len(demo.tokenizer.encode(text)) < 50  # it would spell this with longer tokens
        before = session.num_context_tokens
        ask(session, "again")
        completion = session.turns[-1].completion
        assert completion is not None
        assert completion.usage.cached_tokens == (before - 1) // BLOCK * BLOCK


def test_an_answer_that_is_left_stays_in_part_and_is_marked(session: Session) -> None:
    session.params = replace(GREEDY, max_tokens=100)
    with closing(session.ask("hello")) as pieces:
        first = next(pieces).text + next(pieces).text
    [turn] = session.turns
    assert turn.answer == first
    assert turn.completion is None
    assert session.num_context_tokens == turn.num_prompt_tokens + len(turn.token_ids)
    assert (session.totals.num_answers, session.totals.new_tokens) == (1, len(turn.token_ids))
    assert ask(session, "go on")  # and the conversation goes on from there
    assert session.messages[1] == {"role": "assistant", "content": first}


def test_retry_asks_the_last_question_again(session: Session) -> None:
    with pytest.raises(InvalidRequest):
        session.retry()
    first = ask(session, "hello")
    ask(session, "again")
    assert session.retry() == "again"
    assert [turn.answer for turn in session.turns] == [first]


def test_a_question_that_does_not_fit_is_kept_for_a_retry(session: Session) -> None:
    ask(session, "x" * 150)
    for _ in range(2):  # a retry without more room says the same, and forgets nothing
        with pytest.raises(NeverFits, match="First /trim 1 or /reset, then /retry"):
            ask(session, "y" * 150)
        assert session.has_unanswered
        assert [turn.question for turn in session.turns] == ["x" * 150]
        assert session.retry() == "y" * 150


@pytest.mark.parametrize("makes_room", ["trim", "reset"])
def test_what_makes_room_lets_the_refused_question_be_asked(
    session: Session, makes_room: str
) -> None:
    for letter in "abc":
        ask(session, letter * 50)
    with pytest.raises(NeverFits) as refused:
        ask(session, "y" * 50)
    [num_turns] = re.findall(r"First /trim (\d)", str(refused.value))
    session.trim(int(num_turns)) if makes_room == "trim" else session.reset()
    assert len(session.turns) == (3 - int(num_turns) if makes_room == "trim" else 0)
    assert session.retry() == "y" * 50
    assert len(session.turns) < 3
    assert ask(session, session.retry())
    assert not session.has_unanswered
    assert session.num_context_tokens < session.llm.max_model_len


@pytest.mark.parametrize("num_turns_before", [0, 1])
def test_a_question_that_never_fits_says_so(session: Session, num_turns_before: int) -> None:
    for _ in range(num_turns_before):
        ask(session, "hello")
    with pytest.raises(NeverFits, match=r"the message takes 1003 tokens.*shorten it$"):
        ask(session, "x" * 1000)
    assert len(session.turns) == num_turns_before


def test_where_the_cache_is_smaller_than_the_context_it_is_what_is_full(folder: Path) -> None:
    with LLM(folder, threads=1, max_num_seqs=1, num_blocks=6) as llm:  # 96 of 256 tokens
        session = Session(llm, "tiny", replace(GREEDY, max_tokens=None))
        with pytest.raises(NeverFits, match="the KV cache: shorten it; a larger --num-blocks"):
            ask(session, "x" * 200)
        ask(session, "hello")
        assert "cut: the KV cache is full" in str(notice(session, session.turns[-1]))
        with pytest.raises(
            NeverFits, match=r"the KV cache is full.*takes.*First /trim 1 or /reset"
        ):
            ask(session, "again")
        session.reset()
        session.params = replace(GREEDY, max_tokens=200)
        with pytest.raises(NeverFits, match="First /set max_tokens none, then /retry"):
            ask(session, session.retry())


def test_reset_begins_anew(session: Session) -> None:
    first = ask(session, "hello")
    session.reset()
    assert (session.turns, session.num_context_tokens) == ([], 0)
    assert ask(session, "hello") == first


def test_totals_count_every_answer(session: Session) -> None:
    ask(session, "hello")
    ask(session, "again")
    usages = [turn.completion.usage for turn in session.turns if turn.completion]
    assert session.totals.num_answers == 2
    assert session.totals.new_tokens == 40
    assert session.totals.prompt_tokens == sum(usage.prompt_tokens for usage in usages)
    assert session.totals.cached_tokens == sum(usage.cached_tokens for usage in usages) > 0


THINKER = """\
{% for m in messages %}[{{ m.role }}{{ m.reasoning_content }}]{{ m.content }}{% endfor %}
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"""


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """A model whose template and tokenizer know <think>."""
    folder = tmp_path_factory.mktemp("thinker")
    save_tiny_model(folder)
    spec = json.loads((folder / "tokenizer.json").read_text())
    marks = {"<think>": 98, "</think>": 99}
    named = {token_id: name for name, token_id in marks.items()}
    vocab = spec["model"]["vocab"]
    spec["model"]["vocab"] = {named.get(i, token): i for token, i in vocab.items()}
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "chat_template.jinja").write_text(THINKER)
    with LLM(folder, threads=1, max_num_seqs=1) as llm:
        yield llm


def test_reasoning_stands_apart_and_goes_back_to_the_template(thinker: LLM) -> None:
    assert thinker.dialect is Dialect.THINK
    opens, closes = (thinker.tokenizer.token_to_id(mark) for mark in ("<think>", "</think>"))
    assert opens is not None and closes is not None  # noqa: PT018
    params = replace(GREEDY, allowed_token_ids=(opens,), max_tokens=1)
    session = Session(thinker, "thinker", params)
    assert ask(session, "hello") == ""
    session.turns[-1].reasoning, session.turns[-1].answer = "Hm.", "Hello!"
    assert session.messages[-1] == {
        "role": "assistant",
        "content": "Hello!",
        "reasoning_content": "Hm.",
    }
    assert json.loads(as_json(session))["messages"][-1]["reasoning"] == "Hm."


def test_effort_reaches_the_template_or_is_refused(thinker: LLM, llm: LLM) -> None:
    assert template_args(thinker, None) == {}
    assert template_args(thinker, "none") == {"enable_thinking": False}
    with pytest.raises(InvalidRequest, match="--reasoning-effort high is no choice"):
        template_args(thinker, "high")
    with pytest.raises(InvalidRequest, match="--reasoning-effort none is no choice"):
        template_args(llm, "none")
    quiet = Session(thinker, "thinker", GREEDY, template_args={"enable_thinking": False})
    loud = Session(thinker, "thinker", GREEDY)
    ask(quiet, "hello"), ask(loud, "hello")
    assert quiet.turns[0].num_prompt_tokens > loud.turns[0].num_prompt_tokens


@pytest.mark.parametrize("limit", [{"max_model_len": 128}, {"num_blocks": 8}], ids=str)
@pytest.mark.parametrize("max_tokens", [None, 10])
def test_the_oldest_turns_can_be_dropped_by_themselves(
    tmp_path: Path, limit: dict[str, Any], max_tokens: int | None
) -> None:
    save_tiny_model(tmp_path)
    with LLM(tmp_path, threads=1, max_num_seqs=1, **limit) as llm:
        session = Session(llm, "tiny", replace(GREEDY, max_tokens=max_tokens))
        session.trims = True
        told = 0
        for number in range(12):
            ask(session, f"message {number}")
            assert session.turns[-1].question == f"message {number}"
            assert session.turns[-1].token_ids
            words = trim_notice(session)
            assert (words is None) == (session.num_trimmed == 0)
            told += session.num_trimmed
        assert told == 12 - len(session.turns) > 0
        assert session.turns[-1].num_prompt_tokens <= 128
        if max_tokens is not None:
            assert len(session.turns) > 1  # no more than need be


def test_turns_are_kept_where_nobody_asked_to_drop_them(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    with LLM(tmp_path, threads=1, max_num_seqs=1, max_model_len=64) as llm:
        session = Session(llm, "tiny", replace(GREEDY, max_tokens=None))
        ask(session, "one")
        assert "/set context trim does so by itself" in (notice(session, session.turns[-1]) or "")
        with pytest.raises(NeverFits, match="/set context trim"):
            ask(session, "two")
        assert [turn.question for turn in session.turns] == ["one"]
        session.trims = True
        ask(session, session.retry())
        assert [turn.question for turn in session.turns] == ["two"]
        assert trim_notice(session) is not None


@pytest.mark.parametrize(
    ("question", "max_tokens"), [("two", 200), ("two " * 36, 10)], ids=["max_tokens", "message"]
)
def test_what_fits_not_even_alone_costs_no_turn(
    tmp_path: Path, question: str, max_tokens: int
) -> None:
    save_tiny_model(tmp_path)
    with LLM(tmp_path, threads=1, max_num_seqs=1, num_blocks=8) as llm:
        session = Session(llm, "tiny", replace(GREEDY, max_tokens=10))
        session.trims = True
        ask(session, "one"), ask(session, "one more")
        num_tokens = session.num_context_tokens
        session.params = replace(GREEDY, max_tokens=max_tokens)
        with pytest.raises(NeverFits):
            ask(session, question)
        assert [turn.question for turn in session.turns] == ["one", "one more"]
        assert session.num_context_tokens == num_tokens
        session.params = replace(GREEDY, max_tokens=10)
        ask(session, "three")
        assert [turn.question for turn in session.turns] == ["one", "one more", "three"]
        assert trim_notice(session) is None
