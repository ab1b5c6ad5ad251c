"""What is accepted and has no effect is named in x-inferno-ignored, and nothing else is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from inferno.client.scripted import Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.text.chat import template_names
from inferno.text.model_text import ModelText
from tests.server.hosting import Host, hosting

TEMPLATE = (
    "{# documents, style #}documents {% for message in messages %}"
    "{{ message['name'] ~ message.tool_call_id }}{{ message.content }}"
    "{% if shout %}!{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A model whose template reads some keys."""
    folder = tmp_path_factory.mktemp("model")
    shutil.copytree(MODEL_FOLDERS["demo"], folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    script = Script(vocab_size=2048, max_model_len=1024)
    with hosting(lambda: ScriptedClient(script), ModelText(folder)) as host:
        yield host


def ignored(host: Host, /, **fields: Any) -> list[str]:
    told = [host.chat(**{"max_tokens": 1, "stream": stream, **fields}) for stream in (False, True)]
    assert [answer.status_code for answer in told] == [200, 200], told[0].text
    names = [answer.headers.get("x-inferno-ignored", "") for answer in told]
    assert names[0] == names[1]
    return [name for name in names[0].split(", ") if name]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"service_tier": "auto"}, []),
        ({"service_tier": "default", "store": False, "verbosity": "medium"}, []),
        ({"service_tier": "flex"}, ["service_tier"]),
        ({"service_tier": "priority", "store": True}, ["service_tier", "store"]),
        ({"verbosity": "low"}, ["verbosity"]),
        ({"session_id": "a"}, ["session_id"]),
        ({"user": "a", "metadata": {"a": "b"}, "prompt_cache_key": "c"}, []),
    ],
)
def test_hints_that_are_not_followed_are_named(
    host: Host, fields: dict[str, Any], names: list[str]
) -> None:
    assert ignored(host, **fields) == names
    answer = host.complete(prompt="Hi", max_tokens=1, **fields)
    assert answer.headers.get("x-inferno-ignored", "") == ", ".join(names)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"documents": [{"text": "a"}]}, ["documents"]),
        ({"chat_template_kwargs": {"shout": True}}, []),
        ({"chat_template_kwargs": {"style": 1, "shout": True}}, ["chat_template_kwargs.style"]),
        ({"chat_template_kwargs": {"content": 1}}, ["chat_template_kwargs.content"]),
        ({"reasoning_effort": "low"}, ["reasoning_effort"]),
    ],
)
def test_what_the_template_does_not_read_is_named(
    host: Host, fields: dict[str, Any], names: list[str]
) -> None:
    assert ignored(host, **fields) == names


def test_keys_of_messages_that_the_template_does_not_read_are_named(host: Host) -> None:
    message = {"role": "user", "content": "Hi", "name": "Ann", "tool_call_id": "1"}
    assert ignored(host, messages=[message]) == []
    more = {**message, "weight": 1, "reasoning": "hm", "refusal": None}
    names = ["messages[].reasoning", "messages[].weight"]
    assert ignored(host, messages=[message, more]) == names
    answer = host.http.post("/tokenize", json={"messages": [more], "documents": [{}]})
    assert answer.headers["x-inferno-ignored"] == ", ".join(["documents", *names])


def test_keys_of_parts_are_named(host: Host) -> None:
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, "detail": None}
    messages = [{"role": "user", "content": ["a", part]}, {"role": "user", "content": "b"}]
    assert ignored(host, messages=messages) == ["messages[].content[].cache_control"]


def test_a_real_template_reads_no_name(demo: Host) -> None:
    message = {"role": "user", "content": "Hi", "name": "Ann"}
    answer = demo.chat(messages=[message], max_tokens=1)
    assert answer.headers["x-inferno-ignored"] == "messages[].name"


@pytest.mark.parametrize(
    ("source", "variables", "keys"),
    [
        ("a {{ b.c['d'] }} {% if e %}f{% endif %}", {"b", "if", "e", "endif"}, {"c", "d"}),
        ("{{ '}}' ~ a }} b", {"a"}, {"}}"}),
        ('{{ "\\"b" ~ a }}', {"a"}, {'\\"b'}),
        ("{# {{ a }} #}{{ b", {"b"}, set()),
        ("{{ a . b }}{%- c -%}", {"a", "c"}, {"b"}),
        ("{# a", set(), set()),
        ("{{ '", set(), {""}),
    ],
)
def test_the_names_of_a_template(source: str, variables: set[str], keys: set[str]) -> None:
    names = template_names(source)
    assert names.variables == variables
    assert names.keys == keys


def test_a_request_may_ask_for_what_the_server_computes_and_queues() -> None:
    script = Script(vocab_size=2048, max_model_len=1024, max_num_seqs=4)
    with hosting(lambda: ScriptedClient(script), max_queue=6) as host:
        assert host.complete(prompt=["Hi"] * 5, n=2, max_tokens=1).status_code == 200
        for fields in ({"prompt": ["Hi"] * 11}, {"prompt": ["Hi"] * 2, "n": 6}):
            error = host.complete(**fields, max_tokens=1).json()["error"]
            assert error["param"] == ("n" if "n" in fields else "prompt")
            assert "more than 10 choices" in error["message"]
        assert host.chat(n=11, max_tokens=1).json()["error"]["param"] == "n"


def test_an_enum_error_names_the_choices(demo: Host) -> None:
    for fields, choices in (
        ({"truncation_side": "up"}, '"left" or "right"'),
        ({"service_tier": "fast"}, '"auto" or "default" or "flex" or "priority" or "scale"'),
        ({"reasoning_effort": "extreme"}, '"none" or "minimal" or "low"'),
    ):
        error = demo.chat(**fields).json()["error"]
        assert json.dumps(next(iter(fields.values())))[1:-1] in error["message"]
        for choice in choices.split(" or "):
            assert choice in error["message"]


def test_top_p_of_0_takes_the_likeliest_token(demo: Host) -> None:
    fields = {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 2}
    greedy = demo.complete(**{**fields, "temperature": 0}).json()["choices"][0]["text"]
    for seed in range(5):
        answer = demo.complete(**fields, top_p=0, seed=seed)
        assert answer.json()["choices"][0]["text"] == greedy
