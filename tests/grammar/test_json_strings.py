"""Formats against the standard library, and the spellings of strings against its JSON."""

from __future__ import annotations

import ipaddress
import json
import random
from datetime import date, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno.grammar.decide import matches
from inferno.grammar.json_strings import any_of, format_texts, known_formats, spelled_string
from inferno.grammar.regex import ANY_TEXT, Regex, without
from inferno.grammar.rules import START, Grammar, Terminal
from inferno.grammar.syntax import parse_pattern
from tests.data import data_path
from tests.grammar.acceptor import Sampler


def texts_of(name: str) -> Regex:
    texts = format_texts(name)
    assert texts is not None
    return texts


def samples(name: str, number: int) -> list[str]:
    sampler = Sampler(Grammar({START: ((Terminal(texts_of(name)),),)}), seed=4)
    return [sampler.text() for _ in range(number)]


@pytest.mark.parametrize("name", known_formats())
def test_a_format_is_that_of_the_official_suite(name: str) -> None:
    path = data_path("json-schema", "draft2020-12", "optional", "format", f"{name}.json")
    [group] = json.loads(path.read_text())
    texts = texts_of(name)
    for test in group["tests"]:
        if isinstance(test["data"], str):
            assert matches(texts, test["data"]) == test["valid"], test["description"]


def test_dates_are_those_of_the_calendar() -> None:
    texts = texts_of("date")
    for year in (1, 1900, 1999, 2000, 2023, 2024, 2100, 2400, 9999):
        days = {date(year, 1, 1) + timedelta(day) for day in range(365)}
        if year < 9999:
            days = {day for day in days if day.year == year}
        real = {day.isoformat() for day in days}
        if (year % 4 == 0 and year % 100) or year % 400 == 0:
            real.add(date(year, 12, 31).isoformat())
        every = {f"{year:04}-{month:02}-{day:02}" for month in range(14) for day in range(33)}
        assert {text for text in every if matches(texts, text)} == real


def test_a_leap_second_is_at_23_59_in_utc_and_nowhere_else() -> None:
    texts = texts_of("time")
    chance = random.Random(5)
    for _ in range(400):
        offset = chance.randrange(-1439, 1440)
        minute = (1439 + offset) % 1440 if chance.random() < 0.5 else chance.randrange(1440)
        hours, minutes = divmod(abs(offset), 60)
        sign = "-" if offset < 0 else "+"
        text = f"{minute // 60:02}:{minute % 60:02}:60{sign}{hours:02}:{minutes:02}"
        assert matches(texts, text) == ((minute - offset) % 1440 == 1439), text


@pytest.mark.parametrize(
    ("name", "kind"), [("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)]
)
def test_addresses_are_what_the_standard_library_reads(name: str, kind: type) -> None:
    texts = texts_of(name)
    chance = random.Random(6)
    for text in samples(name, 100):
        kind(text)
        place = chance.randrange(len(text))
        changed = text[:place] + chance.choice("0:.9af1g") + text[place + chance.randrange(2) :]
        assert matches(texts, changed) == _is_read(kind, changed), changed
    for _ in range(100):
        value = kind(chance.getrandbits(32 if name == "ipv4" else 128) & chance.getrandbits(128))
        assert matches(texts, str(value))
        assert matches(texts, value.exploded)


def _is_read(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def test_uuids_are_what_the_standard_library_reads() -> None:
    assert [str(UUID(text)) for text in samples("uuid", 50)] == [
        text.lower() for text in samples("uuid", 50)
    ]


_TEXTS = st.text(max_size=8)


@given(_TEXTS)
def test_a_text_is_spelled_as_json_has_it(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    spelled = json.dumps(text, ensure_ascii=False)
    assert matches(spelled_string(any_of([text])), spelled)
    assert matches(spelled_string(without(any_of([text + "a"]))), spelled)
    assert not matches(spelled_string(without(any_of([text]))), spelled)
    assert matches(spelled_string(ANY_TEXT), spelled)
    assert matches(spelled_string(ANY_TEXT), json.dumps(text))


@given(st.lists(st.text("ab\u00e9", max_size=4), max_size=12), st.text("ab\u00e9", max_size=4))
def test_one_of_some_texts_is_one_of_them(texts: list[str], other: str) -> None:
    regex = any_of(texts)
    assert all(matches(regex, text) for text in texts)
    assert matches(regex, other) == (other in texts)


def test_a_pattern_of_controls_is_spelled_with_escapes() -> None:
    spelled = spelled_string(parse_pattern("^[\\x00-\\x1f]$"))
    for code in range(0x20):
        assert matches(spelled, json.dumps(chr(code)))
    assert not matches(spelled, '"a"')
    assert not matches(spelled, '"\t"')
