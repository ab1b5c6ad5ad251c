"""docs/migrating-from-vllm.md says of each name what inferno itself answers to it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from inferno import LLM, AsyncLLM, SamplingParams
from inferno.parameters import ABSENT, OURS
from tests.docs.pages import rows, section

PAGE = "docs/migrating-from-vllm.md"
METHODS: tuple[Callable[..., Any], ...] = (LLM.generate, LLM.chat, LLM.stream, LLM.encode_chat)


def names(cell: str) -> list[str]:
    return [name.partition("=")[0] for name in re.findall(r"`([a-z_]+=?[^`]*)`", cell)]


@pytest.mark.parametrize(
    ("heading", "takers"),
    [
        ("## Names of the model's parameters", (LLM.__init__,)),
        ("## Names of the sampling parameters", (SamplingParams.__init__,)),
    ],
)
def test_each_name_is_taken_or_answered_as_the_page_says(
    heading: str, takers: tuple[Callable[..., Any], ...]
) -> None:
    known = set().union(*(inspect.signature(taker).parameters for taker in takers))
    table = [row for row in rows(section(PAGE, heading)) if row[0] != "vLLM"]
    assert len(table) > 8
    for theirs, ours in table:
        for name in names(theirs):
            if name == "lora_request":
                continue  # it goes with a call
            if ours.startswith("none"):
                assert name in ABSENT or OURS[name] in ours, name
            elif name not in known:
                meant = OURS.get(name, name)
                assert meant in ours, name
                with pytest.raises(TypeError, match=rf"`{meant}`|{meant}="):
                    takers[0](object(), **{name: 1})


def test_each_name_of_a_call_is_taken_or_answered() -> None:
    table = rows(section(PAGE, "## Names in calls and results"))
    known = set().union(*(inspect.signature(method).parameters for method in METHODS))
    for row in table:
        for name in [one for one in re.findall(r"`(\w+)=`", row[0]) if one not in known]:
            assert name in ABSENT or f"`{OURS[name]}=`" in row[1], name


def test_each_of_our_names_is_a_parameter_somewhere() -> None:
    takers: tuple[Callable[..., Any], ...] = (LLM, AsyncLLM, SamplingParams, *METHODS)
    known = set().union(*(inspect.signature(taker).parameters for taker in takers))
    assert set(OURS.values()) <= known
    assert not known & (set(OURS) | set(ABSENT)) - {
        "add_generation_prompt",
        "continue_final_message",
    }
