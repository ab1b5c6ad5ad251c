"""Tokenizers that are made in steps, against those that llguidance reads in one call; masks."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from inferno.demo import MODEL_FOLDERS
from inferno.engine.sampling.constraints import Mask, empty_mask
from inferno.grammar.recognizer import State
from inferno.requests import Request, SamplingParams
from inferno.structured import StructuredOutput
from tests.data import data_path
from tests.grammar.schemas import SCHEMAS

llguidance = pytest.importorskip("llguidance")

from inferno.engine.sampling import grammar, grammar_tokenizer  # noqa: E402
from inferno.engine.sampling.grammar import GrammarCompiler, KeptMasks  # noqa: E402
from inferno.engine.sampling.grammar_child import grammar_source  # noqa: E402

WORDS = [
    *(
        '{"name":',
        '"',
        '": "',
        " hello",
        "world",
        "\n  ",
        "été",
        "日本語",
        "🙂",
        "e\u0301",
        "\u2581",
    ),
    *("<|im_end|>", "</s>", "<s>", "<think>", "<|return|>", "123", "  ", "\t", "a", "ing", "},{"),
]
SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is waited for."""
    monkeypatch.setattr(grammar_tokenizer, "_STEP_SECONDS", 0.0)


def folder_of(name: str) -> Path:
    return MODEL_FOLDERS["demo"] if name == "demo" else data_path("hf", name)


def texts(count: int) -> list[bytes]:
    """Texts of such words, some of which are cut within a character."""
    rng = random.Random(1)
    found = []
    for i in range(count):
        text = "".join(rng.choices(WORDS, k=rng.randint(1, 7))).encode()
        found.append(
            text[rng.randint(0, 2) : len(text) - rng.randint(0, 2)] if i % 7 == 0 else text
        )
    return found


@pytest.mark.parametrize(
    ("name", "vocab_size", "is_in_steps"),
    [
        ("demo", 2048, None),
        ("TinyLlama-1.1B-Chat-v1.0", 32000, False),
        ("Qwen3-0.6B", 151936, True),
    ],
)
def test_a_tokenizer_is_the_one_that_llguidance_reads(
    name: str, vocab_size: int, is_in_steps: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (folder_of(name) / "tokenizer.json").read_text()
    in_steps: list[bool] = []
    usual = grammar_tokenizer._of_bytes

    def of_bytes(*given: Any) -> Any:
        in_steps.append(True)
        return usual(*given)

    monkeypatch.setattr(grammar_tokenizer, "_of_bytes", of_bytes)
    ours = grammar_tokenizer.llguidance_tokenizer(content, vocab_size, [2])
    assert is_in_steps is None or bool(in_steps) == is_in_steps
    theirs = llguidance.LLTokenizer(content, n_vocab=vocab_size, eos_token=[2], slices=[])
    ids = range(vocab_size)
    assert (ours.vocab_size, ours.eos_tokens) == (theirs.vocab_size, theirs.eos_tokens)
    assert ours.is_canonical == theirs.is_canonical
    assert list(map(ours.is_special_token, ids)) == list(map(theirs.is_special_token, ids))
    assert [ours.decode_bytes([i]) for i in ids] == [theirs.decode_bytes([i]) for i in ids]
    for text in texts(600):
        assert ours.tokenize_bytes(text) == theirs.tokenize_bytes(text)
        assert ours.tokenize_partial(text) == theirs.tokenize_partial(text)
    masks = []
    for tokenizer in (ours, theirs):
        matcher = llguidance.LLMatcher(
            tokenizer, llguidance.LLMatcher.grammar_from_json_schema(SCHEMA)
        )
        masks.append([matcher.compute_bitmask()])
        for token_id in theirs.tokenize_bytes(b'{"a": "hel'):
            assert matcher.consume_token(token_id)
            masks[-1].append(matcher.compute_bitmask())
    assert masks[0] == masks[1]


def byte_level(**changes: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({chr(0x61 + i): i for i in range(26)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    return tokenizer


def test_a_tokenizer_that_changes_texts_is_left_to_llguidance() -> None:
    assert grammar_tokenizer._is_of_bytes(byte_level())
    assert grammar_tokenizer._is_of_bytes(byte_level(normalizer=normalizers.NFC()))
    others: list[dict[str, Any]] = [
        {"normalizer": normalizers.Lowercase()},
        {"normalizer": normalizers.Prepend("_")},
        {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
        {"pre_tokenizer": pre_tokenizers.Metaspace()},
        {"pre_tokenizer": None},
        {"decoder": decoders.Metaspace()},
        {"decoder": None},
        {"model": models.WordLevel({"a": 0}, unk_token="a")},
        {"model": models.BPE({"a": 0}, [], dropout=0.5)},
    ]
    for changes in others:
        assert not grammar_tokenizer._is_of_bytes(byte_level(**changes)), changes
    cut = byte_level()
    cut.enable_truncation(5)
    assert not grammar_tokenizer._is_of_bytes(cut)


def test_tokens_are_read_once_where_requests_with_and_without_tools_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[list[int]] = []
    usual = grammar_tokenizer.llguidance_tokenizer

    def reading(content: str, vocab_size: int, eos_token_ids: list[int]) -> Any:
        read.append(eos_token_ids)
        return usual(content, vocab_size, eos_token_ids)

    monkeypatch.setattr(grammar, "llguidance_tokenizer", reading)
    compiler = GrammarCompiler(MODEL_FOLDERS["demo"], 2048, 4096)
    source = grammar_source(StructuredOutput(regex="[a-z]+")).to_json()
    made = [compiler.compile(source, frozenset(ends)) for ends in ([0], [0, 2]) * 3]
    assert read == [[0], [0, 2]]
    assert len({id(each.vocabulary) for each in made}) == 1
    for each, may_end in zip(made, (False, True) * 3, strict=True):
        each.matcher.consume_tokens(each.vocabulary.encode(b"a", True))
        mask = each.matcher.compute_bitmask()
        assert [bool(mask[0] >> token_id & 1) for token_id in (0, 2)] == [True, may_end]
    for ends in ([0, 3], [0, 4], [0, 5], [0, 2]):
        compiler.prepare(frozenset(ends))
    assert read[2:] == [[0, 3], [0, 4], [0, 5]]
    compiler.prepare(frozenset([0]))  # the least lately used
    assert read[5:] == [[0]]


def test_a_text_whose_usual_token_is_banned_goes_on_in_others() -> None:
    shape, ends = StructuredOutput(regex="(name|5)[0-9]-"), frozenset({0})
    compiler = GrammarCompiler(MODEL_FOLDERS["demo"], 2048, 4096)
    compiled = compiler.compile(grammar_source(shape).to_json(), ends)
    ids = {text: token_id for token_id, text in compiled.vocabulary.by_id.items()}
    assert b"me" in ids  # which is forced after the first, were it not banned
    allowed = [ids[text] for text in (b"na", b"m", b"e", b"5", b"-")]
    params = SamplingParams(structured=shape, max_tokens=9, allowed_token_ids=allowed)
    request = Request(request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=ends)
    [constraint] = compiler.constrain(compiled, request)
    for token_id in allowed:
        mask = empty_mask(2048)
        constraint.mask_into(mask)
        assert mask[token_id // 32] >> token_id % 32 & 1
        constraint.accept((token_id,))
    assert constraint.is_complete


def test_how_much_is_enough_does_not_depend_on_who_asked_before() -> None:
    shape, ends = (
        StructuredOutput(regex='\\{"name": [0-9]{9}, "other": [a-z]{9}\\}'),
        frozenset({0}),
    )
    compiler = GrammarCompiler(MODEL_FOLDERS["demo"], 2048, 4096)
    source = grammar_source(shape).to_json()

    def asking(room: int) -> Request:
        params = SamplingParams(structured=shape, max_tokens=room)
        return Request(request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=ends)

    def answers(rooms: Sequence[int], waiting: Sequence[int] = ()) -> dict[int, bool]:
        grammar = compiler.compile(source, ends, [asking(room) for room in waiting])
        found = {}
        for room in rooms:
            compiler.constrain(grammar, asking(room))
            found[room] = grammar.suffices(room)
            assert not compiler.is_costly(grammar, asking(room))
        return found

    rooms = range(22, 44)
    each_alone = {room: answers([room])[room] for room in rooms}
    assert len(set(each_alone.values())) == 2
    assert answers(rooms) == each_alone
    assert answers(rooms[::-1]) == each_alone
    assert answers(rooms, [40]) == each_alone
    assert answers(rooms, [43, 22]) == each_alone


@pytest.mark.parametrize("size", [150, 300])
def test_steps_do_not_look_again_for_what_was_looked_for_in_vain(size: int) -> None:
    shape = StructuredOutput(regex=f"(a|b)*a(a|b){{{size}}}[c-e]*(a|b)*a(a|b){{{size}}}")
    ends, compiler = frozenset({0}), GrammarCompiler(MODEL_FOLDERS["demo"], 2048, 4096)
    params = SamplingParams(structured=shape, max_tokens=50)
    request = Request(request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=ends)
    compiled = compiler.compile(grammar_source(shape).to_json(), ends, [request])
    assert compiler.is_costly(compiled, request)
    [constraint] = compiler.constrain(compiled, request)
    assert compiled.searched is not None
    paths, state = compiled.searched
    assert paths is not None
    assert state is not None
    before = paths.recognizer.meter.spent
    assert not constraint.fits(50)
    needed = constraint.num_to_end
    assert needed is not None
    assert 50 < needed <= state.distance == 2 * size + 2
    assert constraint.fits(needed)
    assert paths.recognizer.meter.spent - before < 1000


# Masks that are kept


def test_a_mask_is_the_same_wherever_its_state_was_met() -> None:
    folder, ends = MODEL_FOLDERS["demo"], frozenset({0})
    keeping = GrammarCompiler(folder, 2048, 4096)
    alone = GrammarCompiler(folder, 2048, 4096, most_mask_bytes=0)
    shapes = [StructuredOutput(json=SCHEMAS[name]) for name in list(SCHEMAS)[::6]]
    shapes += [StructuredOutput(regex=regex) for regex in ("a*a+b?", "(ab|a)(bc|c)*", ".*x.*")]
    rng = random.Random(3)
    for shape in shapes:
        params = SamplingParams(structured=shape, max_tokens=2000)
        request = Request(request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=ends)
        source = grammar_source(shape).to_json()
        kept, fresh = (each.compile(source, ends) for each in (keeping, alone))
        for _ in range(3):
            [ours], [theirs] = keeping.constrain(kept, request), alone.constrain(fresh, request)
            for _ in range(40):
                masks = [empty_mask(2048), empty_mask(2048)]
                ours.mask_into(masks[0])
                theirs.mask_into(masks[1])
                assert masks[0].tolist() == masks[1].tolist()
                bits = np.unpackbits(masks[0].view(np.uint8), bitorder="little")
                token_id = int(rng.choice(np.flatnonzero(bits)))
                if token_id in ends:
                    break
                ours.accept((token_id,))
                theirs.accept((token_id,))


def test_a_mask_does_not_depend_on_the_tokens_before_its_state() -> None:
    # By itself llguidance takes one token of a forced text after the one, and another after this.
    shape, ends = StructuredOutput(regex=r'\s[^x]"a[0-9]the [^x]*'), frozenset({151645})
    compiler = GrammarCompiler(folder_of("Qwen3-0.6B"), 151936, 4096, most_mask_bytes=0)
    compiled = compiler.compile(grammar_source(shape).to_json(), ends)
    ids = {text: token_id for token_id, text in compiled.vocabulary.by_id.items()}
    params = SamplingParams(structured=shape, max_tokens=2000)
    request = Request(request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=ends)
    masks = []
    for begun in (" 😉", " ר"):
        [constraint] = compiler.constrain(compiled, request)
        constraint.accept((ids[begun.encode()],))
        masks.append(empty_mask(151936))
        constraint.mask_into(masks[-1])
    assert masks[0].tolist() == masks[1].tolist()


def test_masks_keep_no_grammar_alive() -> None:
    def num_states() -> int:
        gc.collect()
        return sum(isinstance(each, State) for each in gc.get_objects())

    shape, ends = StructuredOutput(regex="[a-z]+"), frozenset({0})
    params = SamplingParams(structured=shape, max_tokens=99)
    request = Request(request_id="a", prompt_token_ids=(1,), params=params, eos_token_ids=ends)
    compiler, before = GrammarCompiler(MODEL_FOLDERS["demo"], 2048, 4096), num_states()
    grammar = compiler.compile(grammar_source(shape).to_json(), ends)
    [constraint] = compiler.constrain(grammar, request)
    constraint.mask_into(empty_mask(2048))
    assert num_states() > before
    del grammar, constraint
    assert num_states() == before


def test_masks_that_were_used_last_are_kept_within_their_bytes() -> None:
    def mask(number: int) -> Mask:
        return np.full(4, number, np.int32)  # of 16 bytes

    kept = KeptMasks(40)
    first, second, third = (State((), is_end=True, distance=0) for _ in range(3))
    kept.keep(first, mask(1))
    kept.keep(second, mask(2))
    assert kept.find(first) is not None
    kept.keep(third, mask(3))
    assert [kept.find(each) is not None for each in (first, second, third)] == [True, False, True]
    assert kept.find(None) is None
    own = mask(4)
    kept.keep(first, own)
    own[:] = 0
    found = kept.find(first)
    assert found is not None
    assert found.tolist() == [4, 4, 4, 4]
