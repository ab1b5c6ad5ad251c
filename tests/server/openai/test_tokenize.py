"""POST /tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

import pytest

from inferno import LLM
from tests.server.hosting import Host
from tests.server.openai.calling import TIME


def test_tokens_of_a_prompt_and_back(demo: Host, llm: LLM) -> None:
    fields = {"prompt": "Grüße, café", "return_token_strs": True}
    found = demo.http.post("/tokenize", json=fields).json()
    ids = llm.tokenizer.encode("Grüße, café")
    assert (found["tokens"], found["count"], found["max_model_len"]) == (ids, len(ids), 1024)
    assert found["token_strs"] == [llm.tokenizer.id_to_token(i) for i in ids]
    plain = demo.http.post("/tokenize", json={"prompt": "a", "add_special_tokens": False})
    assert plain.json()["tokens"] == llm.tokenizer.encode("a", add_special_tokens=False)
    back = demo.http.post("/detokenize", json={"tokens": ids}).json()
    assert back["prompt"] == llm.tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user"}]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a", "tools": [{"type": "function"}]}, "tools"),
        ("/tokenize", {"prompt": "a", "tools": [TIME]}, "tools"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "tools": [TIME]}, "tools"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [2048]}, "tokens"),
        ("/detokenize", {"tokens": [2**40]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
    ],
)
def test_bad_values_are_refused_by_name(
    demo: Host, path: str, fields: dict[str, Any], param: str
) -> None:
    answer = demo.http.post(path, json=fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("unit", ["a", " ", "^", "\n", "👩‍👩‍👧", "<|end|>"])
def test_texts_far_too_long_are_refused_before_the_work(demo: Host, unit: str) -> None:
    text = unit * (4_000_000 // len(unit.encode()))
    refused = demo.http.post("/tokenize", json={"prompt": text})
    assert refused.status_code == 400
    answer = demo.chat(text)
    assert answer.status_code == (400 if unit.strip() else 200)  # the template strips spaces
