"""The fewest tokens to an end, against a search through all tokens at every place."""

from __future__ import annotations

import random
from typing import Any

import pytest

from inferno.grammar import token_paths
from inferno.grammar.json_schema import compile_schema
from inferno.grammar.recognizer import Recognizer, State, text_of_mark
from inferno.grammar.regex import literal
from inferno.grammar.rules import START, Grammar, Mark, Terminal
from inferno.grammar.syntax import parse_regex
from inferno.grammar.token_paths import TokenPaths, Vocabulary
from tests.grammar.acceptor import Sampler

WORDS = ("red", "green", "xq", "zw9", "hello", "magenta", "a", "b c", "lorem ipsum")
PIECES = (
    *('{"', '":', '":"', '","', '"}', '":{"', '":[', '"]', '],"', "},{", '{"a', '"a"', "[]", "{}"),
    *("null", "true", "false", "10", "100", "12", "2024", "-0", "0.", "  ", "    ", "aaaa", "aa"),
    *("id", "name", "kind", "hello", "magenta", "green", "lo", "rem", "00", "----", "--"),
)


def make_vocabulary(seed: int) -> Vocabulary:
    generator = random.Random(seed)
    texts = [bytes((byte,)) for byte in range(255)]
    texts += [b'""'] + [piece.encode() for piece in PIECES if generator.random() < 0.7]
    by_length = sorted(texts, key=len, reverse=True)
    ids = {text: i for i, text in enumerate(texts)}

    def encode(text: bytes, is_whole: bool) -> list[int]:
        found = []
        place = 0
        while place < len(text):
            token = next(each for each in by_length if text.startswith(each, place))
            place += len(token)
            if place < len(text) or is_whole:  # what follows may change the last one
                found.append(ids[token])
        return found

    return Vocabulary(dict(enumerate(texts)), encode)


def make_schema(generator: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = ["enum", "integer", "string", "pattern", "format", "boolean", "null", "number"]
    if depth < 2:
        kinds += ["object", "object", "array", "anyOf"]
    match generator.choice(kinds):
        case "enum":
            return {"enum": generator.sample([*WORDS, 7, None, True], generator.randint(1, 4))}
        case "integer":
            low = generator.choice([0, 1, 7, 10, 99, 100, 1000])
            return {"type": "integer", "minimum": low, "maximum": low * 3 + 5}
        case "string":
            return {"type": "string", "minLength": generator.choice([0, 0, 1, 4, 9])}
        case "pattern":
            return {"type": "string", "pattern": generator.choice(["^[a-f]{3}$", "^(ab|hello)+$"])}
        case "format":
            return {"type": "string", "format": generator.choice(["date", "uuid", "ipv4"])}
        case "object":
            names = generator.sample(["id", "name", "kind", "x1", "a"], generator.randint(1, 3))
            return {
                "type": "object",
                "properties": {name: make_schema(generator, depth + 1) for name in names},
                "required": generator.sample(names, generator.randint(0, len(names))),
                "additionalProperties": False,
            }
        case "array":
            least = generator.randint(0, 2)
            items = make_schema(generator, depth + 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + 2}
        case "anyOf":
            return {"anyOf": [make_schema(generator, depth + 1) for _ in range(2)]}
        case kind:
            return {"type": kind}


def fewest(paths: TokenPaths, vocabulary: Vocabulary, start: State) -> int:
    """Count tokens by a search through all that the constraint allows at each place."""
    seen = {start}
    level, count = [start], 0
    while not any(state.is_end for state in level):
        following = []
        for state in level:
            forced = paths.forced(state)
            token_ids = vocabulary.ids if forced is None else [forced]
            for token_id in token_ids:
                end = paths.recognizer.advance(state, vocabulary.by_id[token_id])
                if end is not None and end not in seen:
                    seen.add(end)
                    following.append(end)
        level, count = following, count + 1
    return count


@pytest.mark.parametrize("part", range(8))
def test_the_known_length_is_a_tenth_above_the_fewest_at_most(part: int) -> None:
    longer = []
    for seed in range(part * 25, part * 25 + 25):
        generator = random.Random(seed)
        schema = make_schema(generator)
        vocabulary = make_vocabulary(seed)
        recognizer = Recognizer(compile_schema(schema))
        paths = TokenPaths(recognizer, vocabulary)
        assert paths.find_way(recognizer.start)
        known = paths.num_to_end(recognizer.start)
        true = fewest(paths, vocabulary, recognizer.start)
        assert known >= true, schema
        if known > 1.1 * true:
            longer.append((known, true, schema))
        state, count = recognizer.start, 0
        while not state.is_end:  # the way is there, step by step
            assert paths.num_to_end(state) == known - count
            following = recognizer.advance(state, vocabulary.by_id[paths.next_to_end(state)])
            assert following is not None
            state, count = following, count + 1
        assert count == known
    assert not longer


@pytest.mark.parametrize("part", range(4))
def test_a_budget_fits_that_is_enough_and_none_that_is_too_small(part: int) -> None:
    for seed in range(part * 7, part * 7 + 7):
        schema = make_schema(random.Random(seed))
        vocabulary = make_vocabulary(seed)
        recognizer = Recognizer(compile_schema(schema))
        start = recognizer.start
        exact = TokenPaths(recognizer, vocabulary)
        known, true = exact.num_to_end(start), fewest(exact, vocabulary, start)
        asked = TokenPaths(recognizer, vocabulary)
        # From large to small, and then from small to large: what was asked before is no matter.
        budgets = range(max(true - 3, 0), start.distance + 2)
        fitting = [n for n in reversed(budgets) if asked.fits(start, n)]
        assert fitting == [n for n in reversed(budgets) if asked.fits(start, n)], schema
        assert min(fitting) >= true, schema
        assert set(fitting) >= {n for n in budgets if n >= known}, schema
        state = start
        while not state.is_end:  # along a way that fits, all that is left does
            assert TokenPaths(recognizer, vocabulary).fits(state, known)
            text = vocabulary.by_id[exact.next_to_end(state)]
            following = recognizer.advance(state, text)
            assert following is not None
            state, known = following, known - 1


def test_banned_tokens_are_on_no_way() -> None:
    vocabulary = make_vocabulary(1)
    recognizer = Recognizer(compile_schema({"enum": ["hello", "xq"]}, whitespace=None))
    hello = {i for i, text in vocabulary.by_id.items() if text in (b"hello", b"h")}
    plain = TokenPaths(recognizer, vocabulary)
    banned = TokenPaths(recognizer, vocabulary, frozenset(hello))
    quote = recognizer.advance(recognizer.start, b'"')
    assert quote is not None
    assert plain.num_to_end(quote) <= banned.num_to_end(quote)
    assert banned.next_to_end(quote) not in hello
    all_of = TokenPaths(recognizer, vocabulary, frozenset(vocabulary.by_id))
    assert not all_of.fits(recognizer.start, 10_000)


@pytest.mark.parametrize("seed", range(30))
def test_the_way_from_a_place_is_the_same_whatever_was_asked_before(seed: int) -> None:
    generator = random.Random(seed)
    grammar = compile_schema(make_schema(generator))
    vocabulary = make_vocabulary(seed)
    asked = TokenPaths(Recognizer(grammar), vocabulary)
    texts = [Sampler(grammar, seed + i).text(20).encode() for i in range(5)]
    places = [text[:size] for text in texts for size in range(len(text))]
    generator.shuffle(places)
    for place in places[:12]:
        found = []
        for paths in (asked, TokenPaths(Recognizer(grammar), vocabulary)):
            state = paths.recognizer.advance(paths.recognizer.start, place)
            assert state is not None
            found.append((paths.num_to_end(state), state.is_end or paths.next_to_end(state)))
        assert found[0] == found[1], (place, found)


def test_what_takes_too_long_is_reckoned_in_bytes_and_leads_to_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_paths, "_LATER_WORK", 3000)
    vocabulary = make_vocabulary(1)
    recognizer = Recognizer(Grammar({START: ((Terminal(parse_regex("(a|b)*a(a|b){40}")),),)}))
    paths = TokenPaths(recognizer, vocabulary)
    state: State | None = recognizer.start
    for _ in range(6):
        assert state is not None
        before = recognizer.meter.spent
        assert paths.num_to_end(state) == state.distance
        assert recognizer.meter.spent - before < 10_000
        state = recognizer.advance(state, b"ab")
    while state is not None and not state.is_end:
        num_left = paths.num_to_end(state)
        state = paths.advance(state, paths.next_to_end(state))
        assert state is not None
        assert paths.num_to_end(state) < num_left
    assert state is not None


def test_work_that_is_left_for_later_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_paths, "_LATER_WORK", 3000)
    monkeypatch.setattr(token_paths, "_LITTLE_WORK", 100)
    vocabulary = make_vocabulary(1)
    recognizer = Recognizer(Grammar({START: ((Terminal(parse_regex("(a|b)*a(a|b){40}")),),)}))
    paths = TokenPaths(recognizer, vocabulary)
    monkeypatch.setattr(paths, "_work_left", 5000)
    state = recognizer.start
    for _ in range(3):
        paths.num_to_end(state)
    before = recognizer.meter.spent
    paths.num_to_end(state)
    assert recognizer.meter.spent - before < 1000


def test_a_search_that_is_made_again_takes_no_more_memory() -> None:
    vocabulary = make_vocabulary(1)
    recognizer = Recognizer(compile_schema(make_schema(random.Random(1))))
    paths = TokenPaths(recognizer, vocabulary)
    assert paths.find_way(recognizer.start)
    kept = paths.work_kept
    assert kept > 0
    paths._ways.clear()
    assert paths.find_way(recognizer.start)
    assert paths.work_kept == kept


def test_none_of_several_special_tokens_is_forced_that_may_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = (300, 301, 70_000)
    texts = {byte: bytes((byte,)) for byte in range(255)}
    texts |= {each: text_of_mark(each) for each in marks}
    vocabulary = Vocabulary(texts, lambda text, is_whole: list(text))
    content = Terminal(literal("x"))
    for several in (marks, marks[:2]):
        grammar = Grammar({START: tuple((Mark(each), content, Mark(300)) for each in several)})
        recognizer = Recognizer(grammar)
        paths = TokenPaths(recognizer, vocabulary)
        assert paths.forced(recognizer.start) is None
        inside = paths.advance(recognizer.start, 301)
        assert inside is not None
        assert paths.forced(inside) == ord("x")
        assert paths.enough(recognizer.start) == 3
        assert paths.num_to_end(recognizer.start) == 3
        assert paths.tokens_to_end(recognizer.start)[0] in several
        with monkeypatch.context() as patched:  # nor where nobody may look for a way
            patched.setattr(token_paths, "_MOST_PLACES", 0)
            unsearched = TokenPaths(recognizer, vocabulary)
            assert unsearched.next_to_end(recognizer.start) in several
