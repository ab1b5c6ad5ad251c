"""The corpus of the embedded models: what is held out stays out, and everything fits."""

from __future__ import annotations

import random
import re
import zlib
from collections import Counter, defaultdict
from itertools import islice, pairwise

import pytest
import torch
from demo_batches import IGNORED, LONGEST_ROW, Batch, draw_batches
from demo_corpus import Document, Piece, documents
from demo_exam import EXAM, carries, is_about, is_told_throughout, items_of
from demo_exchange import Exchange, dressed, mistyped
from demo_names import GIRLS, person_name
from demo_plots_topic import TOPIC_PLOTS
from demo_split import canonical
from demo_stories import KINDS, KNOWN_NAMES, Story, tell
from demo_story_talk import short_story, story_talk
from demo_themes import PLOTS, Theme, theme
from demo_worlds import world_of
from tokenizers import Tokenizer

from inferno.demo import MODEL_FOLDERS

END_ID = 1
_SPLIT_KINDS = (
    "facts in tables",
    "other facts",
    "facts in unseen wordings",
    "one-digit arithmetic",
    "division",
    "two-digit arithmetic",
    "word problems",
    "comparisons",
    "about inferno",
    "I don't know",
)
# After a story "Who is Ivy?" is another question than without one, which is not to be answered.
ABOUT_A_STORY = re.compile(r"It was about \w+, an? |The friend was ")


def draw(seed: str, number: int, *, held_out: bool = False) -> list[Document]:
    return list(islice(documents(random.Random(seed), held_out=held_out), number))


def questions(drawn: list[Document]) -> set[str]:
    texts = ("".join(piece.text for piece in document) for document in drawn)
    asked = re.compile(r"<\|user\|>(.*?)<\|end\|><\|assistant\|>(.*?)<\|end\|>", re.DOTALL)
    pairs = [pair for text in texts for pair in asked.findall(text)]
    return {canonical(question) for question, answer in pairs if not ABOUT_A_STORY.match(answer)}


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL_FOLDERS["demo"] / "tokenizer.json"))


@pytest.fixture(scope="module")
def corpus() -> list[Document]:
    return draw("training", 12_000)


@pytest.fixture(scope="module")
def batches(corpus: list[Document], tokenizer: Tokenizer) -> list[Batch]:
    """Two pools or so, each sorted by length and cut."""
    return list(islice(draw_batches(iter(corpus), tokenizer, random.Random(0)), 140))


@pytest.fixture(scope="module")
def talks() -> list[Exchange]:
    """Requests for stories, and the stories."""
    rng = random.Random("clauses")
    return [story_talk(rng)[0] for _ in range(7000)]


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    rng = random.Random("stories")
    return [tell(rng) for _ in range(6000)]


@pytest.mark.slow
def test_no_question_of_the_exam_is_trained_on(corpus: list[Document]) -> None:
    trained_on = questions(corpus)
    for kind in _SPLIT_KINDS:
        asked = {canonical(item.question) for item in items_of(kind, seed=1, size=300)}
        assert asked.isdisjoint(trained_on), kind


def test_one_question_in_twenty_is_held_out_however_it_is_typed() -> None:
    for text in ("What's 3 + 4?", "whats 3 + 4", "Is it ON fire", "Tom"):
        assert canonical(text.upper() + " !?") == canonical(text)
    held_out = sum(zlib.crc32(f"what is {n}".encode()) % 20 == 0 for n in range(2000))
    assert 60 < held_out < 140


def test_held_out_names_are_never_told(corpus: list[Document]) -> None:
    told = {
        name
        for document in corpus
        for piece in document
        for name in re.findall(r"(?:Nice to meet you, |Your name is |named )(\w+)", piece.text)
    }
    rng = random.Random("new names")
    assert len(told) > 500
    assert told.isdisjoint(person_name(rng, held_out=True) for _ in range(500))


def test_names_are_many_and_mostly_new() -> None:
    rng = random.Random("many names")
    assert len({person_name(rng) for _ in range(2000)}) > 700


def test_equal_seeds_draw_equal_documents() -> None:
    assert draw("a", 200) == draw("a", 200)
    assert draw("a", 200) != draw("b", 200)


def test_a_document_is_a_chat_or_a_story(corpus: list[Document]) -> None:
    turn = r"<\|user\|>[^<]+<\|end\|><\|assistant\|>[^<]+<\|end\|>"
    chat = re.compile(rf"<\|bos\|>(<\|system\|>[^<]+<\|end\|>)?({turn})+")
    story = re.compile(r"<\|bos\|>[^<]{200,}<\|end\|>")
    kinds = [0, 0]
    for document in corpus[:1000]:
        text = "".join(piece.text for piece in document)
        kinds[chat.fullmatch(text) is not None] += 1
        assert chat.fullmatch(text) or story.fullmatch(text), text
    assert min(kinds) > 20


@pytest.mark.slow
def test_documents_fit_the_longest_row_and_some_fill_it(batches: list[Batch]) -> None:
    assert LONGEST_ROW >= max(batch.ids.shape[1] for batch in batches) > 900


def test_a_chat_that_is_too_long_ends_with_an_answer(tokenizer: Tokenizer) -> None:
    turns = [Piece(f"<|user|>Count to {n}.<|end|><|assistant|>", False) for n in range(200)]
    answer = Piece("1, 2, 3.<|end|>", True)
    chat = (Piece("<|bos|>", False), *(piece for turn in turns for piece in (turn, answer)))
    batch = next(draw_batches(iter([chat] * 1000), tokenizer, random.Random(0)))
    ids, labels = batch.ids[0].tolist(), batch.labels[0].tolist()
    assert LONGEST_ROW - 30 < len(ids) <= LONGEST_ROW
    assert tokenizer.decode(ids, skip_special_tokens=False).endswith("1, 2, 3.<|end|>")
    assert labels[-2] == ids[-1] == END_ID


def test_what_follows_the_hero_in_a_request_happens_in_the_story(talks: list[Exchange]) -> None:
    for clause, happens in {
        "in space|on the moon|to the moon": "rocket|landed on the moon",
        "who .* brave|saves a friend": "brave|breath|loud song",
        "in the snow|a snowman": "snow",
        "who (breaks|broke)": "broke|Crash",
        "(at|to) school": "school",
    }.items():
        told = [e.answer for e in talks if re.search(clause, e.question)]
        assert told, clause
        assert all(re.search(happens, story) for story in told), clause
    lives = [(e.question.partition("who lives ")[2], e.answer) for e in talks]
    homes = [
        (re.split(r"\.|\?|, please| in a story", home)[0], story) for home, story in lives if home
    ]
    assert len(homes) > 20
    assert all(home in story for home, story in homes)


def test_only_what_the_model_says_is_learned(
    corpus: list[Document], batches: list[Batch], tokenizer: Tokenizer
) -> None:
    said = {"".join(p.text for p in d): "".join(p.text for p in d if p.is_learned) for d in corpus}
    # No document that is this short was cut off.
    rows = [
        row
        for batch in batches
        if batch.ids.shape[1] < LONGEST_ROW // 2
        for row in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True)
    ]
    assert len(rows) > 1000
    for ids, labels in rows[::10]:
        learned = [i for i, label in enumerate(labels) if label != IGNORED]
        assert [labels[i] for i in learned] == [ids[i + 1] for i in learned]
        end = len(ids) - ids[::-1].index(END_ID)
        document = tokenizer.decode(ids[:end], skip_special_tokens=False)
        heard = tokenizer.decode([labels[i] for i in learned], skip_special_tokens=False)
        assert heard == said[document]


def test_batches_hold_no_more_than_they_should(batches: list[Batch]) -> None:
    for batch in batches:
        assert batch.ids.shape == batch.labels.shape
        assert batch.ids.numel() <= 2048
        assert torch.all(batch.ids[:, 0] == 0)


def test_every_story_passes_the_exam_for_stories(stories: list[Story]) -> None:
    told = stories[:500]
    assert all(is_about(story.text, story.hero.kind, story.hero.name) for story in told)


def test_a_story_names_what_it_was_asked_to_be_about_at_once() -> None:
    rng = random.Random("themes")
    for asked in (Theme("a kite", PLOTS[2]), Theme("football", TOPIC_PLOTS[0])):
        for _ in range(100):
            opening = " ".join(tell(rng, asked).text.split(". ")[:2])
            assert asked.about in opening or asked.as_known in opening


def test_a_story_carries_what_it_was_asked_to_be_about_to_its_end() -> None:
    rng = random.Random("carried")
    asked = [found for _ in range(1500) if (found := theme(rng, KINDS))]
    assert len({found.about for found in asked}) > 500
    for found in asked:
        story = tell(rng, found).text
        assert carries(story, found.as_known.removeprefix("the "), least=2)
        assert not found.item or carries(story, found.item.split()[-1], least=3)
        assert found.plot not in TOPIC_PLOTS or carries(story, found.about, least=5)


def test_an_adjective_asks_for_a_plot() -> None:
    rng = random.Random("adjectives")
    asked = [found for _ in range(3000) if (found := theme(rng, KINDS)) and found.item]
    told = {
        adjective: {found.plot.topic for found in asked if f"{adjective} " in found.about}
        for adjective in ("lost", "broken", "magic")
    }
    assert told == {"lost": {"a lost toy"}, "broken": {"telling the truth"}, "magic": {"magic"}}


def test_the_likeliest_friend_differs_from_hero_to_hero(stories: list[Story]) -> None:
    friends: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for story in stories:
        friends[story.hero.kind][story.friend.name, story.friend.kind] += 1
    often = [told for told in friends.values() if told.total() > 40]
    likeliest = [told.most_common(1)[0] for told in often]
    assert len(often) > 30
    assert all(
        times > 0.2 * told.total() for told, (_, times) in zip(often, likeliest, strict=True)
    )
    assert len({friend for friend, _ in likeliest}) > 0.9 * len(often)


def test_a_hero_that_was_not_named_has_a_name_that_fits(stories: list[Story]) -> None:
    people = [story.friend for story in stories]
    girls = {friend.name for friend in people if friend.kind == "girl"}
    assert len(girls) > 5
    assert girls <= set(GIRLS)
    assert {friend.is_female for friend in people if friend.kind in ("boy", "king")} == {False}


def test_a_story_that_was_asked_for_fits_its_request(talks: list[Exchange]) -> None:
    heroes = [(re.search(r"(?:named|story of) (\w+)", e.answer), e.question) for e in talks]
    assert all(hero is None or hero[1] in KNOWN_NAMES | words_of(q) for hero, q in heroes)
    named = [e for e in talks if re.search(r"about an? \w+ (named|called) ", e.question)]
    assert len(named) > 50
    for exchange in named:
        found = re.search(r"about an? (\w+) (?:named|called) (\w+)", exchange.question)
        assert found is not None
        opening = ". ".join(exchange.answer.split(". ")[:2])
        assert found[1] in opening
        assert found[2] in opening


@pytest.mark.parametrize("question", ["What is rain?", "Is it?", "Stop.", "I am Tom."])
def test_a_dressed_question_keeps_its_words(question: str) -> None:
    rng = random.Random("dressed")
    drawn = [dressed(question, rng) for _ in range(1000)]
    words = question.lower().rstrip("?.").split()
    for text in drawn:
        kept = [word for word in re.findall(r"[\w']+", text.lower()) if word in words]
        assert kept == words
    assert 0.85 < drawn.count(question) / len(drawn) < 0.95
    assert len(set(drawn)) > 10


@pytest.mark.parametrize("question", ["What is a penguin?", "Where do models come from?"])
def test_a_slip_is_one_letter_of_one_long_word(question: str) -> None:
    rng = random.Random("slips")
    drawn = [mistyped(question, rng) for _ in range(300)]
    for text in drawn:
        pairs = list(zip(question.split(), text.split(), strict=True))
        changed = [(was, now) for was, now in pairs if was != now]
        assert len(changed) <= 1  # two equal letters may have changed places
        for was, now in changed:
            assert len(was) > 4
            assert abs(len(was) - len(now)) <= 1
            assert (was[0], was[-1]) == (now[0], now[-1])
            assert set(now) <= set(was)
    assert len(set(drawn)) > 5


@pytest.mark.parametrize("question", ["Is it on?", "7 + 12 = ?", "What is --top-k?"])
def test_short_words_numbers_and_options_have_no_slips(question: str) -> None:
    assert mistyped(question, random.Random("no slips")) == question


def test_a_quarter_of_what_is_asked_about_the_world_is_in_capitals(
    corpus: list[Document],
) -> None:
    answer = re.compile(r"The capital of |The opposite of |\w+ is the capital of ")
    asked = [
        question.text.removeprefix("<|user|>").partition("<|end|>")[0]
        for document in corpus
        for question, said in pairwise(document)
        if question.text.startswith("<|user|>") and answer.match(said.text)
    ]
    assert len(asked) > 200
    assert 0.2 < sum(question.isupper() for question in asked) / len(asked) < 0.35


def test_a_story_in_one_sentence_begins_as_no_other_does() -> None:
    rng = random.Random("short stories")
    short = [short_story(rng)[0].answer for _ in range(50)]
    assert all(story.startswith("In short: ") for story in short)
    assert not any(tell(rng, is_plain=True).text.startswith("In short") for _ in range(500))


def test_a_hero_that_is_asked_for_alone_gets_a_story_of_its_world(talks: list[Exchange]) -> None:
    alone = re.compile(r"story about an? (\w+)(?: (?:named|called) \w+)?[.?]")
    told = [
        (found[1], exchange.answer)
        for exchange in talks
        if (found := alone.search(exchange.question))
    ]
    told = [(kind, story) for kind, story in told if kind in KINDS]
    fits = [is_told_throughout(story, world_of(kind).words) for kind, story in told]
    assert len(told) > 300
    assert sum(fits) / len(fits) > 0.98


def test_some_chats_begin_with_a_greeting(corpus: list[Document]) -> None:
    greeted = [
        document[1].text
        for document in corpus
        if re.match(r"<\|user\|>(hi|hello|hey)\b", document[1].text, re.IGNORECASE)
    ]
    assert 0.08 < len(greeted) / len(corpus) < 0.3


_STORY = (
    "Once upon a time, a little cat named Tom lived in a house. He liked to sing. His best friend "
    "was an old dog named Rex. One day, Tom lost a ball, but Rex found it. Then Tom was happy."
)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("cat", "pig"), ("Tom lost", "Sam lost"), ("He liked", "She liked"), ("but Rex", "but Ben")],
)
def test_the_exam_refuses_stories_that_mix_things_up(wrong: str, right: str) -> None:
    assert is_about(_STORY, "cat", "Tom")
    changed = _STORY.replace(wrong, right)
    assert changed != _STORY
    assert not is_about(changed, "cat", "Tom")


@pytest.mark.parametrize("dropped", ["by the key", "with the key", "(lost a|missed the) key"])
def test_the_exam_refuses_a_story_that_drops_what_it_was_asked_for(dropped: str) -> None:
    story = (
        "Tom lived in a house by the key. He liked to sing. One day, Tom lost a key. "
        "He missed the key. Then Rex came with the key."
    )
    assert carries(story, "key", least=3)
    assert not carries(re.sub(dropped, "it", story), "key", least=3)


def test_the_exam_asks_many_kinds() -> None:
    assert set(_SPLIT_KINDS) < set(EXAM)
