"""Lint of a model's files: each mistake is found, by name, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from inferno.lint.checks import CHECKS, Finding, Level
from inferno.lint.model import lint_model
from tests.data import data_path
from tests.docs.pages import rows, section
from tests.gguf.convert import write_gguf
from tests.tiny import edit_config, save_tiny, save_tokenizer

RIGHT = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
USUAL = {"BOS in both"}  # with a tokenizer that begins prompts with it
REFUSE = "{{ raise_exception('No.') }}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all but weights, in which nothing is wrong."""
    size = save_tokenizer(tmp_path)
    config = {"vocab_size": size, "max_position_embeddings": 64, "eos_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_template(tmp_path, RIGHT)
    return tmp_path


def write_template(folder: Path, template: str) -> None:
    edit(folder, "tokenizer_config.json", chat_template=template)


def edit(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **changes}))


def names(found: list[Finding]) -> set[str]:
    return {finding.check for finding in found}


def written(*pieces: str) -> dict[str, Any]:
    """A post-processor that writes these tokens before and behind the text A."""
    ids = {"<|bos|>": 1, "<|end|>": 2}
    single = [
        {"SpecialToken" if piece in ids else "Sequence": {"id": piece, "type_id": 0}}
        for piece in pieces
    ]
    special = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def test_nothing_is_found_where_nothing_is_wrong(folder: Path) -> None:
    assert names(lint_model(folder)) == USUAL


ROLE = "message.role == "


@pytest.mark.parametrize(
    ("old", "new", "due"),
    [
        ("{{ bos_token }}", "", {"no BOS"}),
        ("{{ bos_token }}", "{{ bos_token * 2 }}", {"two BOS"}),
        ("<|assistant|>", "", {"no generation prompt"}),
        (
            "<|{{ mess",
            f"{{% if {ROLE}'system' %}}{REFUSE}{{% endif %}}<|{{{{ mess",
            {"system is refused"},
        ),
        ("message.content", f"'' if {ROLE}'system' else message.content", {"system is lost"}),
        ("message.content", f"'' if {ROLE}'assistant' else message.content", {"answers are lost"}),
        ("<|end|>", "<|pad|>", {"turn has no end"}),
        ("<|end|>", "", {"answers have no end"}),
        ("<|end|>", "<|pda|>", {"answers have no end", "marks are text"}),
        ("<|end|>", "{{ eos_token if loop.last }}", set()),  # as trained with
        ("<|{{", "<|im_start|><|{{", {"marks are text", "another generation prompt"}),
        ("add_generation_prompt", "true", {"generation prompt always"}),
        ("<|assistant|>", "<|user|>", {"another generation prompt"}),
        ("<|assistant|>", "<|assistant|><think>\n", set()),
        ("<|{{ message.role }}|>", "<|user|>", {"roles are lost", "another generation prompt"}),
        ("<|{{ message.role }}|>", "", {"another generation prompt"}),
        ("in messages", "in messages[:2]", {"questions are lost"}),
        (
            "in messages",
            "in messages[-1:]",
            {"questions are lost", "answers are lost", "system is lost"},
        ),
        ("{{ bos_token }}", "{{ bos_token }} {{ bos_token }}", {"two BOS"}),
        ("{{ bos_token }}", "{{ bos_token }}\n\n{{ bos_token }}", {"two BOS"}),
        ("{{ bos_token }}", "\n{{ bos_token }}", {"BOS is not first"}),
        ("{{ bos_token }}", "<|pad|>{{ bos_token }}", {"BOS is not first"}),
        ("{% endif %}", "{% endif %}{{ eos_token }}", {"end before the answer"}),
        ("{{ message.content", "{{ message.content }}{{ message.content", {"turns are mixed up"}),
        ("in messages", "in messages | reverse", {"turns are mixed up"}),
        ("message.content", "message.content | e", {"texts are changed"}),
        ("message.content", "message.content | trim", set()),
        (
            "{% if tools",
            "{% if messages | length > 2 %}" + REFUSE + "{% endif %}{% if tools",
            {"turns are refused"},
        ),
        ("{% if tools %}", "{% if tools is not none %}", set()),  # no empty list comes to it
        ("{{ tools | tojson }}", "{{ tools[0].function.name }}", set()),
        ("{{ tools | tojson }}", REFUSE, {"tools are refused"}),
        ("{{ tools | tojson }}", "", {"tools are lost"}),
        ("<|assistant|>", "<|assistant|>{{ ' ' }}", {"another generation prompt"}),
        ("<|assistant|>", "{{ '\\n' }}<|assistant|>", {"another generation prompt"}),
        ("<|assistant|>", "<|assistant|>\n\n<think>", {"another generation prompt"}),
        ("message.role }}|>", "message.role }}|>\n", {"short generation prompt"}),
        ("message.role }}|>{{", "message.role }}|>\n\n{{ '' }}{{", {"short generation prompt"}),
        ("message.role }}|>", "message.role }}|> ", set()),  # as Vicuna: words begin with it
        (
            "message.role }}|>{{ message.content }}",
            "message.role }}|>\n{{ message.content | trim }}",
            set(),
        ),
        (
            "<|{{ message.role }}|>",
            f"{{{{ '' if {ROLE}'assistant' else '<|' + message.role + '|>' }}}}",
            {"another generation prompt"},
        ),
        (
            "<|{{ mess",
            "{{ bos_token }}<|{{ mess",
            {"two BOS", "BOS again", "another generation prompt"},
        ),
    ],
)
def test_a_mistake_in_a_template_is_found(old: str, new: str, due: set[str], folder: Path) -> None:
    write_template(folder, RIGHT.replace(old, new))
    found = names(lint_model(folder))
    assert found - USUAL == due
    assert found <= CHECKS.keys()


def test_an_end_is_missed_where_the_marks_of_roles_are_text(tmp_path: Path) -> None:
    model = data_path("hf", "TinyLlama-1.1B-Chat-v1.0")
    right = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
    answer = "<|assistant|>\n'  + message['content']"
    assert f"{answer} + eos_token" in right
    template = tmp_path / "no end.jinja"
    template.write_text(right.replace(f"{answer} + eos_token", answer))
    found = names(lint_model(model, chat_template=template))
    assert found - names(lint_model(model)) == {"answers have no end"}


@pytest.mark.parametrize(
    ("template", "due"),
    [
        ("{% for", "template"),
        ("{{ nothing.at.all }}", "template"),
        (REFUSE, "template"),
        ("<|assistant|>", "user is lost"),
    ],
)
def test_a_template_that_makes_no_chat_is_fatal(template: str, due: str, folder: Path) -> None:
    write_template(folder, template)
    [finding] = lint_model(folder)
    assert finding.check == due
    assert finding.level is Level.FATAL


def test_answers_without_a_header_need_no_generation_prompt(folder: Path) -> None:
    write_template(
        folder,
        "{{ bos_token }}{{ tools or '' }}{% for message in messages %}{{ message.content }}"
        "{{ '<|end|>' if message.role == 'assistant' else '<|user|>' }}{% endfor %}",
    )
    assert names(lint_model(folder)) == USUAL


def test_a_last_header_without_its_line_break_is_seen_to_be_written_always(folder: Path) -> None:
    always = RIGHT.partition("{% if add")[0].replace("}}|>", "}}|>\n") + "<|assistant|>"
    write_template(folder, always)
    assert names(lint_model(folder)) - USUAL == {"generation prompt always"}


@pytest.mark.parametrize(
    ("question", "answer", "due"),
    [
        ("{{ bos_token }}", "{{ bos_token }}", {"BOS again"}),
        ("{{ bos_token }}", "", set()),  # as Llama 2: each question and answer is a text
        ("{{ bos_token if loop.first }}", "", set()),
    ],
)
def test_bos_before_each_message_is_found(
    question: str, answer: str, due: set[str], folder: Path
) -> None:
    write_template(folder, each_with(question, answer))
    assert names(lint_model(folder)) - USUAL == due


def each_with(question: str, answer: str) -> str:
    """The right template, with these texts before messages in place of a BOS before all."""
    before = f"{{% if {ROLE}'assistant' %}}{answer}{{% else %}}{question}{{% endif %}}<|{{{{ mess"
    template = RIGHT.replace("{{ bos_token }}", "").replace("<|{{ mess", before)
    tools = "{% if tools %}{{ tools | tojson }}{% endif %}"
    behind = "{% if add_generation_prompt %}"
    return template.replace(tools, "").replace(behind, f"{tools}{behind}{answer}")


@pytest.mark.parametrize(
    ("before", "due"),
    [("{{ bos_token }}", {"BOS again"}), ("", set())],
)
def test_bos_that_is_the_end_too_may_follow_each_message(
    before: str, due: set[str], folder: Path
) -> None:
    edit(folder, "config.json", eos_token_id=[1, 2])
    end = "<|end|>" if due else "{{ bos_token }}"
    first = "{{ bos_token if loop.first }}"
    write_template(folder, each_with(before or first, before).replace("<|end|>", end))
    assert names(lint_model(folder)) - USUAL == due


def test_a_mark_behind_an_answer_is_quoted_whole(folder: Path) -> None:
    always = RIGHT.partition("{% if add")[0].replace("<|end|>", "") + "<|assistant|>"
    write_template(folder, always)
    [finding] = [each for each in lint_model(folder) if each.check == "answers have no end"]
    assert finding.what.startswith("behind an answer the template writes '<|user|>', and what ends")


def test_another_template_can_be_looked_at(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text("{% for")
    assert names(lint_model(folder, chat_template=other)) == {"template"}


@pytest.mark.parametrize(
    ("file", "changes", "due"),
    [
        ("tokenizer_config.json", {"chat_template": None}, "no template"),
        ("tokenizer_config.json", {"pad_token": "<nothing>"}, "named token"),
        ("tokenizer_config.json", {"model_max_length": 32}, "tokenizer's context"),
        ("config.json", {"vocab_size": 100}, "vocabulary"),
        ("generation_config.json", {"eos_token_id": 90}, "end is text"),
        ("config.json", {"eos_token_id": "two"}, "generation config"),
        ("config.json", {"eos_token_id": "2"}, "generation config"),
        ("config.json", {"eos_token_id": 5}, "EOS differs"),
        ("config.json", {"eos_token_id": [5, 2]}, None),
        ("config.json", {"bos_token_id": 5}, "BOS differs"),
        ("config.json", {"bos_token_id": -1}, "BOS differs"),
        ("config.json", {"bos_token_id": 10**30}, "BOS differs"),
        ("config.json", {"bos_token_id": 1}, None),
        ("config.json", {"bos_token_id": {"a": "b"}}, None),
        ("generation_config.json", {"temperature": -1}, "generation config"),
        ("generation_config.json", {"num_beams": 4, "top_k": 4}, "ignored defaults"),
        ("generation_config.json", {"no_repeat_ngram_size": 3}, "ignored defaults"),
        ("generation_config.json", {"do_sample": False}, "ignored defaults"),
        ("generation_config.json", {"do_sample": False, "temperature": 0}, None),
        ("generation_config.json", {"num_beams": 1, "typical_p": 1.0, "bad_words_ids": []}, None),
        (
            "config.json",
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 2.0,
                    "original_max_position_embeddings": 16,
                }
            },
            "context",
        ),
        ("config.json", {"max_position_embeddings": [1]}, None),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"3": {"content": "<|assistant|>", "special": True}}},
            "ids differ",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"3": {"content": "<|user|>", "special": True}}},
            None,
        ),
        ("tokenizer_config.json", {"add_bos_token": False}, "add_bos_token"),
        ("tokenizer_config.json", {"add_bos_token": True}, None),
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}, "text is lost"),
        ("tokenizer.json", {"decoder": None}, "text is lost"),
        ("tokenizer.json", {"post_processor": written("<|bos|>", "<|bos|>", "A")}, "two BOS"),
        (
            "tokenizer.json",
            {"post_processor": written("<|bos|>", "A", "<|end|>")},
            "end behind prompts",
        ),
        ("tokenizer.json", {"model": {}}, "tokenizer"),
    ],
)
def test_a_mistake_beside_the_template_is_found(
    file: str, changes: dict[str, Any], due: str | None, folder: Path
) -> None:
    edit(folder, file, **changes)
    found = names(lint_model(folder)) - USUAL
    assert found == ({due} if due else set())


def test_a_tokenizer_that_fails_on_a_text_is_found(folder: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    edit(folder, "tokenizer.json", model=model, pre_tokenizer=None, post_processor=None)
    [finding] = [each for each in lint_model(folder) if each.check == "text is lost"]
    assert "Missing [UNK] token" in finding.what


def test_ids_that_both_configs_name_are_meant(folder: Path) -> None:
    edit(folder, "config.json", eos_token_id=5)
    edit(folder, "generation_config.json", eos_token_id=[2, 5])
    assert names(lint_model(folder)) == USUAL


def test_findings_say_what_was_given(folder: Path) -> None:
    edit(folder, "config.json", bos_token_id=5, eos_token_id="2")
    edit(folder, "generation_config.json", num_beams=4, bad_words_ids=[[1]])
    told = {finding.check: finding.what for finding in lint_model(folder)}
    assert (
        told["ignored defaults"] == "generation_config.json sets num_beams 4, bad_words_ids [[1]]"
    )
    assert told["BOS differs"] == (
        "config.json's bos_token_id is 5, '<|system|>', and bos_token is 1, '<|bos|>'"
    )
    assert "or a list of them, not '2'; correct the file" in told["generation config"]


@pytest.mark.parametrize(
    ("factor", "original"), [("-1e999", "8"), ("2.5", "1" + "0" * 400), ("-1" + "0" * 400, "8")]
)
def test_numbers_that_no_scaling_has_are_left_to_the_engine(
    folder: Path, factor: str, original: str
) -> None:
    scaling = {"rope_type": "yarn", "factor": 11, "original_max_position_embeddings": 22}
    edit(folder, "config.json", rope_scaling=scaling)
    path = folder / "config.json"
    path.write_text(path.read_text().replace("11", factor).replace("22", original))
    assert names(lint_model(folder)) == USUAL


def test_an_output_that_nothing_ends_is_found(folder: Path) -> None:
    edit(folder, "config.json", eos_token_id=None)
    edit(folder, "tokenizer_config.json", eos_token=None)
    assert names(lint_model(folder)) - USUAL == {"no end"}


def test_ends_that_are_no_tokens_are_found(folder: Path) -> None:
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    edit(folder, "config.json", vocab_size=size + 8)
    edit(folder, "generation_config.json", eos_token_id=[size + 1])
    [finding] = [each for each in lint_model(folder) if each.check not in USUAL]
    assert finding.check == "end is no token"
    assert finding.what == f"the tokenizer has no token of eos_token_id {size + 1}"
    assert finding.level is Level.WARNING


def test_a_model_of_whose_ends_none_is_a_token_is_fatal(folder: Path) -> None:
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    edit(folder, "config.json", vocab_size=10**30, eos_token_id=[size, 10**25])
    edit(folder, "tokenizer_config.json", eos_token=None)
    [finding] = [each for each in lint_model(folder) if each.check not in USUAL]
    assert finding.check == "no end is a token"
    assert finding.what == f"the tokenizer has no token of eos_token_id {size}, {10**25}"
    assert finding.level is Level.FATAL


def test_no_end_is_named_none(folder: Path) -> None:
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    edit(folder, "config.json", vocab_size=size + 8, eos_token_id=[2, size])
    write_template(folder, RIGHT.replace("<|end|>", "<|pad|>"))
    told = {finding.check: finding.what for finding in lint_model(folder)}
    assert told.keys() - USUAL == {"turn has no end", "end is no token"}
    assert told["turn has no end"].endswith("what ends an output is '<|end|>'")


def test_an_end_beyond_the_embedding_is_fatal(folder: Path) -> None:
    edit(folder, "config.json", vocab_size=2)
    found = lint_model(folder)
    assert names(found) - USUAL == {"vocabulary", "end beyond embeddings"}
    assert found[0].level is Level.FATAL


def test_what_the_engine_says_comes_first(folder: Path) -> None:
    found = lint_model(folder, "config.json has keys that inferno doesn't know")
    assert found[0] == Finding("model", "config.json has keys that inferno doesn't know")


def test_a_folder_without_a_config_is_fatal(tmp_path: Path) -> None:
    assert names(lint_model(tmp_path)) == {"model"}


def test_rows_of_the_embedding_count_more_than_the_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    save_tiny(folder, "llama", vocab_size=config["vocab_size"])
    edit_config(folder, vocab_size=10)
    assert "vocabulary" not in names(lint_model(folder))


def test_a_gguf_file_is_looked_at(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", save_tiny(tmp_path / "hf", "llama"))
    assert names(lint_model(path)) == {"no template", "text is lost"}  # it has few letters


@pytest.mark.parametrize(
    ("model", "due"),
    [
        ("Qwen3-0.6B", set()),
        ("gpt-oss-20b", set()),
        # Its template begins without <s>, names <|user|> that no token is, and knows no tools.
        ("TinyLlama-1.1B-Chat-v1.0", {"no BOS", "marks are text", "tools are lost"}),
        ("Mistral-7B-Instruct-v0.3", {"no template"}),
    ],
)
def test_what_is_found_of_real_files_is_true(model: str, due: set[str]) -> None:
    assert names(lint_model(data_path("hf", model))) == due


MARK = re.compile(r"<[|｜][^<>|｜]+[|｜]>|\[/?[A-Z_]+\]")


@pytest.mark.parametrize(
    ("template", "end", "due"),
    [
        ("Mistral-Small-3.2-24B-Instruct-2506", "</s>", set()),
        # It goes through its tools without asking whether there are any.
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "<|im_end|>", {"template"}),
        ("Qwen-Qwen3-0.6B", "<|im_end|>", set()),
        ("Qwen3-Coder", "<|im_end|>", set()),
        ("Qwen3.5-4B", "<|im_end|>", set()),
        # It knows calls of tools and their results, and doesn't write what tools there are.
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "<｜end▁of▁sentence｜>", {"tools are lost"}),
        ("meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>", set()),
        ("mistralai-Mistral-Nemo-Instruct-2407", "</s>", set()),
        ("openai-gpt-oss-120b", "<|return|>", set()),
    ],
)
def test_what_is_found_of_real_templates_is_true(
    template: str, end: str, due: set[str], folder: Path
) -> None:
    path = data_path("templates", f"{template}.jinja")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([end, *MARK.findall(path.read_text())])
    tokenizer.post_processor = None
    tokenizer.save(str(folder / "tokenizer.json"))
    edit(folder, "tokenizer_config.json", eos_token=end)
    ids = {"eos_token_id": tokenizer.token_to_id(end), "vocab_size": tokenizer.get_vocab_size()}
    edit(folder, "config.json", **ids)
    assert names(lint_model(folder, chat_template=path)) == due


def test_the_page_has_every_check() -> None:
    table = {row[0]: row[1:] for row in rows(section("docs/doctor.md", "## The checks of a model"))}
    table.pop("Check")  # the heading
    assert {name: words[0] for name, words in table.items()} == {
        name: str(check.level) for name, check in CHECKS.items()
    }
    assert all(words[1] for words in table.values())
