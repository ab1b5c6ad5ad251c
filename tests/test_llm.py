"""LLM: text in, text out, alone and in company, and everything it refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from inferno import LLM, InfernoError, SamplingParams
from inferno.engine.proposers.prediction import PredictionProposer
from inferno.engine.scheduling.speculation import Speculation
from inferno.errors import (
    ConfigError,
    DeviceUnavailable,
    EngineDied,
    InvalidRequest,
    ModelNotFound,
    NeverFits,
    TemplateError,
    TokenizerError,
    UnknownArchitecture,
)
from inferno.requests import FinishReason
from inferno.text import tools
from inferno.text.parsers.answer import join_pieces
from tests import parrot
from tests.data import data_path
from tests.parrot import save_parrot
from tests.tiny import edit_config, expected_logits, save_tiny_model

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(folder, threads=1) as llm:
        yield llm


def test_completions_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts: list[str | list[int]] = ["one", "a longer second prompt", [7, 8, 9]]
    completions = llm.generate(prompts, GREEDY)
    assert [done.prompt_index for done in completions] == [0, 1, 2]
    assert [done.prompt for done in completions] == ["one", "a longer second prompt", None]
    assert completions[2].prompt_token_ids == (7, 8, 9)
    for done in completions:
        assert done.finish_reason is FinishReason.LENGTH
        assert done.usage.completion_tokens == len(done.token_ids) == 12
        assert done.text == llm.tokenizer.decode(done.token_ids)


def test_a_prompt_alone_gives_what_it_gives_in_company(llm: LLM) -> None:
    prompts = ["one", "two two", "three three three"]
    together = [done.token_ids for done in llm.generate(prompts, GREEDY)]
    assert together == [llm.generate(prompt, GREEDY)[0].token_ids for prompt in prompts]


def test_one_prompt_may_be_text_or_token_ids(llm: LLM) -> None:
    ids = llm.tokenizer.encode("hello")
    assert llm.generate("hello", GREEDY)[0].text == llm.generate(ids, GREEDY)[0].text


def test_the_stream_is_the_completion(llm: LLM) -> None:
    chunks = list(llm.stream("hello", GREEDY))
    [whole] = llm.generate("hello", GREEDY)
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert tuple(i for chunk in chunks for i in chunk.token_ids) == whole.token_ids
    last = chunks[-1].completion
    assert last is not None
    assert last.text == whole.text


def test_a_stream_that_is_left_frees_its_blocks(llm: LLM) -> None:
    for _ in range(3):
        stream = llm.stream("hello", SamplingParams(max_tokens=200, ignore_eos=True))
        next(stream)
        stream.close()
    assert llm.generate("hello", GREEDY)
    assert llm._client._engine._scheduler.num_running == 0


def test_samples_differ_and_repeat_with_the_seed(llm: LLM) -> None:
    params = SamplingParams(n=4, seed=3, max_tokens=10, ignore_eos=True)
    first, again = llm.generate("hello", params), llm.generate("hello", params)
    assert [done.sequence_index for done in first] == [0, 1, 2, 3]
    assert len({done.token_ids for done in first}) == 4
    assert [done.token_ids for done in first] == [done.token_ids for done in again]


def test_without_a_seed_samples_differ_between_calls(llm: LLM) -> None:
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    assert llm.generate("hello", params)[0].text != llm.generate("hello", params)[0].text


def test_a_stop_string_ends_one_sample_and_not_the_others(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=40, ignore_eos=True)
    free = llm.generate("hello", params)
    stop = free[1].text[4:7]
    cut = llm.generate("hello", SamplingParams(**{**_fields(params), "stop": stop}))
    for before, after in zip(free, cut, strict=True):
        position = before.text.find(stop)
        assert after.text == (before.text[:position] if position >= 0 else before.text)
    assert cut[1].finish_reason is FinishReason.STOP
    assert cut[1].stop_reason == stop


def test_a_stop_token_ends_the_text_before_it(llm: LLM) -> None:
    [free] = llm.generate("hello", GREEDY)
    stop = free.token_ids[4]
    first = free.token_ids.index(stop)
    params = SamplingParams(**{**_fields(GREEDY), "stop_token_ids": [stop]})
    [cut] = llm.generate("hello", params)
    assert cut.token_ids == free.token_ids[: first + 1]
    assert cut.text == llm.tokenizer.decode(free.token_ids[:first])
    assert (cut.finish_reason, cut.stop_reason) == (FinishReason.STOP, stop)


def test_bad_words_are_never_completed(llm: LLM) -> None:
    [free] = llm.generate("hello", GREEDY)
    word = next(c for c in free.text if c.isprintable() and c.isascii() and c != " ")
    [without] = llm.generate("hello", SamplingParams(**{**_fields(GREEDY), "bad_words": [word]}))
    assert word in free.text
    assert word not in without.text


def test_logprobs_are_the_models_own(llm: LLM, folder: Path) -> None:
    model = save_tiny_model(folder)
    params = SamplingParams(temperature=0.0, max_tokens=5, logprobs=3, prompt_logprobs=2)
    [done] = llm.generate("hello", params)
    text = [*done.prompt_token_ids, *done.token_ids]
    expected = expected_logits(model, text).log_softmax(-1)
    assert done.logprobs is not None
    assert done.prompt_logprobs is not None
    assert done.prompt_logprobs[0] is None
    entries = [*done.prompt_logprobs[1:], *done.logprobs]
    for position, entry in enumerate(entries):
        assert entry is not None
        assert entry.token_id == text[position + 1]
        assert entry.logprob == pytest.approx(expected[position, entry.token_id].item(), abs=1e-3)
        num_top = 2 if position + 1 < len(done.prompt_token_ids) else 3
        best = expected[position].topk(num_top)
        assert [token_id for token_id, _ in entry.top] == best.indices.tolist()


def test_logits_equal_transformers(llm: LLM, folder: Path) -> None:
    model = save_tiny_model(folder)
    ids = llm.tokenizer.encode("some text to score")
    expected = expected_logits(model, ids)
    assert (llm.logits(ids) - expected).abs().max() < 2e-4
    chosen = llm.logits(ids, [3, 1])
    assert (chosen - expected[[3, 1]]).abs().max() < 2e-4


def test_the_prefix_cache_spares_a_shared_beginning(folder: Path) -> None:
    with LLM(folder, threads=1, block_size=4) as llm:
        prompt = list(range(10, 40))
        [first] = llm.generate([prompt], GREEDY)
        [second] = llm.generate([[*prompt, 9]], GREEDY)
        assert first.usage.cached_tokens == 0
        assert second.usage.cached_tokens == 28
    with LLM(folder, threads=1, block_size=4, prefix_cache=False) as llm:
        llm.generate([prompt], GREEDY)
        [second] = llm.generate([prompt], GREEDY)
        assert second.usage.cached_tokens == 0
        assert second.token_ids == first.token_ids


def test_chat_follows_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    [done] = llm.chat(messages, GREEDY)
    assert done.prompt_token_ids == tuple(
        llm.tokenizer.encode("<|user|>Hi<|end|><|assistant|>", add_special_tokens=False)
    )
    assert llm.encode_chat([{"role": "user", "content": "<|end|>"}]) != llm.tokenizer.encode(
        "<|user|><|end|><|end|><|assistant|>", add_special_tokens=False
    )


HERMES = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}{# <tool_call> arguments #}"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"a": {"enum": [1, 2]}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]
ASK = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """A model that has learnt nothing, whose template takes tools."""
    folder = tmp_path_factory.mktemp("caller")
    save_tiny_model(folder, max_position_embeddings=1024)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|end|>", "chat_template": HERMES})
    )
    with LLM(folder, threads=1) as llm:
        yield llm


def test_a_call_that_is_required_keeps_to_its_schema(caller: LLM) -> None:
    params = SamplingParams(max_tokens=200, n=8, seed=3, temperature=100.0)  # anything allowed
    options: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required"}
    answers = caller.chat(ASK, params, parallel_tool_calls=False, **options)
    for done in answers:
        [call] = done.tool_calls
        assert done.text == ""
        assert json.loads(call.arguments) in ([{}] if call.name == "stop" else [{"a": 1}, {"a": 2}])
    assert {call.name for done in answers for call in done.tool_calls} == {"add", "stop"}
    named = {"type": "function", "function": {"name": "add"}}
    chunks = list(caller.stream_chat(ASK, params, tools=TOOLS, tool_choice=named))
    for index in range(params.n):
        own = [chunk for chunk in chunks if chunk.sequence_index == index]
        assert own[-1].completion is not None
        calls = own[-1].completion.tool_calls
        assert join_pieces(piece for chunk in own for piece in chunk.pieces).tool_calls == calls
        assert [call.name for call in calls] == ["add"]


def test_an_answer_ends_before_a_second_call_also_where_nothing_binds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_parrot(tmp_path)
    monkeypatch.setattr(tools, "has_grammars", lambda: False)
    both = [{"role": "user", "content": "both"}]
    with LLM(tmp_path, threads=1) as llm:
        for is_parallel, names in ((True, ["get_weather", "get_time"]), (False, ["get_weather"])):
            [done] = llm.chat(both, tools=parrot.TOOLS, parallel_tool_calls=is_parallel)
            assert [call.name for call in done.tool_calls] == names


def test_a_schema_beside_tools_is_of_answers_without_calls(caller: LLM) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}
    params = SamplingParams(max_tokens=200, n=8, seed=1, temperature=100.0)
    answers = caller.chat(ASK, params, schema=schema, tools=TOOLS)
    for done in answers:
        if done.tool_calls:
            assert (done.text, done.parsed) == ("", None)
        else:
            assert done.parsed == json.loads(done.text)
            assert set(done.parsed) <= {True, False}
    assert {bool(done.tool_calls) for done in answers} == {True, False}
    [alone] = caller.chat(
        ASK, SamplingParams(seed=1), schema=schema, tools=TOOLS, tool_choice="none"
    )
    assert isinstance(alone.parsed, list)


def test_tools_are_shown_as_they_are_given_and_not_where_none_may_be_called(caller: LLM) -> None:
    [done] = caller.chat(ASK, SamplingParams(max_tokens=1), tools=TOOLS)
    assert list(done.prompt_token_ids) == caller.encode_chat(ASK, tools=TOOLS)
    [done] = caller.chat(ASK, SamplingParams(max_tokens=1), tools=TOOLS, tool_choice="none")
    assert list(done.prompt_token_ids) == caller.encode_chat(ASK)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tools": [{"name": "a b"}]}, "tools"),
        ({"tools": TOOLS, "tool_choice": "add"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ],
)
def test_bad_tools_are_refused_by_name(caller: LLM, options: dict[str, Any], param: str) -> None:
    for chat in (caller.chat, caller.stream_chat):
        with pytest.raises(InvalidRequest) as caught:
            list(chat(ASK, **options))
        assert caught.value.param == param


def test_tools_that_a_template_does_not_take_are_refused(llm: LLM) -> None:
    for chat in (llm.chat, llm.stream_chat):
        with pytest.raises(InvalidRequest, match="takes no tools"):
            list(chat([{"role": "user", "content": "Hi"}], tools=TOOLS))


def test_several_threads_share_one_llm(llm: LLM) -> None:
    [expected] = llm.generate("hello", GREEDY)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(llm.generate("hello", GREEDY)[0].text))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected.text] * 4


def test_generation_goes_on_to_the_end_of_the_context(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    [done] = llm.generate("hello", params)
    assert done.finish_reason is FinishReason.LENGTH
    assert done.usage.prompt_tokens + done.usage.completion_tokens == llm.max_model_len == 256


def test_defaults_come_from_generation_config(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    config = {"temperature": 0.5, "top_k": 7, "eos_token_id": [2, 9], "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    with LLM(tmp_path, threads=1) as llm:
        assert (llm.default_params.temperature, llm.default_params.top_k) == (0.5, 7)
        assert llm._text.eos_token_ids(llm.vocab_size) == {2, 9}


def test_dummy_weights_need_no_checkpoint(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with LLM(tmp_path, threads=1, load_format="dummy") as llm:
        assert len(llm.generate("hello", GREEDY)[0].token_ids) == 12


def test_weights_may_vanish_after_loading(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    with LLM(tmp_path, threads=1) as llm:
        [before] = llm.generate("hello", GREEDY)
        (tmp_path / "model.safetensors").write_bytes(b"")
        [after] = llm.generate([llm.tokenizer.encode("hello")], GREEDY)
    assert before.text == after.text


@pytest.mark.parametrize(
    ("prompts", "named"),
    [
        ("x" * 300, "256"),
        ([[10**6]], "token"),
        ([[-1]], "token"),
        ([[]], "empty"),
        ([3.5], "prompt"),
        (7, "prompt"),
        (b"abc", "prompt"),
        (["whole", "half \ud83d"], "surrogate pair, at character 5"),
    ],
)
def test_bad_prompts_are_refused_by_name(llm: LLM, prompts: Any, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        llm.generate(prompts, GREEDY)
    assert llm.generate("hello", GREEDY)


def test_arguments_of_the_wrong_type_are_refused_by_name(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="params"):
        llm.generate("a", {"temperature": 0})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="params"):
        llm.stream("a", 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="prompt"):
        llm.logits(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="positions"):
        llm.logits([1], 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"priority .* not a value of type str"):
        llm.generate("a", priority="high")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=rf"priority .* not {2**40}"):
        llm.generate("a", priority=2**40)


@pytest.mark.parametrize(
    "params",
    [
        {"stop_token_ids": [10**6]},
        {"allowed_token_ids": [262]},
        {"logit_bias": {262: 1.0}},
    ],
)
def test_ids_outside_the_vocabulary_are_refused(llm: LLM, params: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="token"):
        llm.generate("hello", SamplingParams(**params))


def test_a_request_larger_than_the_pool_is_refused_at_once(folder: Path) -> None:
    with LLM(folder, threads=1, num_blocks=4) as llm:
        with pytest.raises(NeverFits, match="num-blocks"):
            llm.generate("hello", SamplingParams(max_tokens=100))
        assert llm.generate("hello", GREEDY)


def test_a_refused_prompt_among_others_is_named(llm: LLM) -> None:
    with pytest.raises(NeverFits, match="prompt 2 of 3"):
        llm.generate(["hello", "x" * 300, "bye"], GREEDY)


def test_a_closed_llm_says_so(folder: Path) -> None:
    llm = LLM(folder, threads=1)
    llm.close()
    llm.close()
    with pytest.raises(EngineDied, match="closed"):
        llm.generate("hello")


def test_unknown_arguments_are_errors(folder: Path) -> None:
    with pytest.raises(TypeError, match="wobble"):
        LLM(folder, wobble=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wobble"):
        SamplingParams(wobble=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {"device": "tpu"},
        {"dtype": "int3"},
        {"block_size": 0},
        {"priority_aging": -1},
        {"priority_aging": float("nan")},
        {"priority_aging": "fast"},
        {"step_target_ms": -1},
        {"step_target_ms": True},
        {"step_target_ms": "soon"},
        {"num_blocks": -1},
        {"num_blocks": 2**31 - 1},
        {"threads": 2**31 - 1},
        {"max_num_seqs": True},
        {"max_model_len": 10**6},
        {"attention": "magic"},
        {"load_format": "pickle"},
    ],
)
def test_bad_options_are_refused_by_name(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(options))):
        LLM(folder, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_an_absent_device_is_an_error(folder: Path, device: str) -> None:
    with pytest.raises(DeviceUnavailable, match="--device cpu"):
        LLM(folder, device=device)


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda folder: (folder / "config.json").unlink(), ModelNotFound),
        (lambda folder: (folder / "config.json").write_text("{"), ConfigError),
        (lambda folder: edit_config(folder, architectures=["Nope"]), UnknownArchitecture),
        (lambda folder: (folder / "tokenizer.json").unlink(), TokenizerError),
        (lambda folder: (folder / "tokenizer.json").write_text("[]"), TokenizerError),
        (lambda folder: (folder / "model.safetensors").unlink(), ModelNotFound),
    ],
)
def test_a_damaged_model_is_refused_with_a_typed_error(
    tmp_path: Path, damage: Any, error: type[InfernoError]
) -> None:
    save_tiny_model(tmp_path)
    damage(tmp_path)
    with pytest.raises(error):
        LLM(tmp_path)


def test_a_name_that_is_nothing_is_told_what_would_be() -> None:
    with pytest.raises(ModelNotFound, match=r"Qwen/Qwen3-0\.6B"):
        LLM("no such model")


def test_a_model_without_template_cannot_chat(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with LLM(tmp_path, threads=1) as llm, pytest.raises(TemplateError, match="template"):
        llm.chat([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    "options",
    [{}, {"num_blocks": 20}, {"max_num_batched_tokens": 1}, {"block_size": 3, "num_blocks": 90}],
)
def test_the_published_text_is_reproduced(options: dict[str, Any]) -> None:
    folder = data_path("stories260K")
    golden = (folder / "golden_greedy_256.txt").read_text()
    params = SamplingParams(temperature=0.0, max_tokens=256)
    with LLM(folder, threads=1, **options) as llm:
        completions = llm.generate(["", "Tom had a dog", "The sun"], params)
        assert completions[0].text == golden


def _fields(params: SamplingParams) -> dict[str, Any]:
    return {name: getattr(params, name) for name in SamplingParams.__dataclass_fields__}


@pytest.mark.usefixtures("reference_kernels")  # panels are filled up to 16 outputs
def test_the_footprint_is_what_weights_and_cache_take(folder: Path) -> None:
    with LLM(folder, threads=1, num_blocks=10, block_size=8) as llm:
        found = llm.footprint
    tensors = load_file(folder / "model.safetensors").values()
    config = json.loads((folder / "config.json").read_text())
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    block = 2 * 8 * config["num_key_value_heads"] * head_dim * 4 * config["num_hidden_layers"]
    assert (found.device, found.dtype) == ("cpu", "float32")
    assert found.weights_bytes == sum(tensor.numel() * 4 for tensor in tensors)
    assert found.kv_cache_bytes == 11 * block  # block 0 is scratch


@pytest.mark.usefixtures("reference_kernels")  # panels are filled up to 16 outputs
def test_tied_weights_count_once_in_the_footprint(tmp_path: Path) -> None:
    save_tiny_model(tmp_path, tie_word_embeddings=True)
    with LLM(tmp_path, threads=1) as llm:
        stored = load_file(tmp_path / "model.safetensors").values()
        assert llm.footprint.weights_bytes == sum(tensor.numel() * 4 for tensor in stored)


def test_a_chat_template_is_known_to_be_there_or_not(folder: Path, tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    with LLM(folder, threads=1) as one, LLM(tmp_path, threads=1) as other:
        assert (one.has_chat_template, other.has_chat_template) == (True, False)


def test_random_weights_need_no_tokenizer_but_texts_do(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with LLM(tmp_path, threads=1, load_format="dummy") as llm:
        [done] = llm.generate([[1, 2, 3]], GREEDY)
        assert (len(done.token_ids), done.text) == (12, "")
        with pytest.raises(TokenizerError, match="token ids"):
            llm.generate("a text", GREEDY)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is missing"):
        LLM(tmp_path, threads=1)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_predicted_text_is_the_same_and_usage_tells_what_stood(is_right: bool) -> None:
    prompts = ["Once upon a time", "The little dog"]
    plain = SamplingParams(max_tokens=40, seed=1, n=2, logprobs=1)
    with LLM("demo", threads=1) as llm:
        expected = llm.generate(prompts, plain)
        engine = llm._client._engine
        engine._scheduler.speculation = Speculation([PredictionProposer()], num_tokens=8)
        text = expected[0].text if is_right else "Nothing of the kind was ever said."
        found = llm.generate(prompts, replace(plain, prediction=text))
        stopped = llm.generate(
            prompts[0], replace(plain, prediction=text, n=1, stop=expected[0].text[60:70])
        )
    for one, other in zip(found, expected, strict=True):
        same = [(done.text, done.token_ids, done.logprobs) for done in (one, other)]
        assert same[0] == same[1]
        assert other.usage.accepted_prediction_tokens == 0
        assert one.usage.completion_tokens > one.usage.accepted_prediction_tokens
    accepted = [done.usage.accepted_prediction_tokens for done in found]
    rejected = [done.usage.rejected_prediction_tokens for done in found]
    assert max(rejected) > 0
    if is_right:
        assert accepted[0] >= 30
        assert rejected[0] <= 8
        (done,) = stopped
        assert done.text == text[:60]
        num_tokens = done.usage.completion_tokens
        assert num_tokens / 2 < done.usage.accepted_prediction_tokens <= num_tokens
    else:
        assert max(accepted) <= 5
