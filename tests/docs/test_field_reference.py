"""docs/server-fields.md is what the server's request types say of themselves."""

from __future__ import annotations

import re
import runpy

import pytest

from inferno.server.docs.field_table import field_rows
from inferno.server.openai.request_types import ChatRequest, CompletionRequest, RequestFields
from inferno.server.route import Route
from inferno.server.routes import ROUTES
from tests.docs.pages import PAGES, ROOT, section

PAGE = "docs/server-fields.md"


def test_it_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_field_reference.py"))["make_reference"]()
    assert PAGES[PAGE] == made, "run scripts/make_field_reference.py"


@pytest.mark.parametrize("route", [route for route in ROUTES if route.requests])
def test_it_has_every_field(route: Route) -> None:
    names = set(re.findall(r"`(\w+)`", section(PAGE, f"## POST {route.path}")))
    for kind in route.requests:
        assert {row.name for row in field_rows(kind)} <= names


# What OpenAI's and vLLM's clients send: the server knows each, if only to refuse it by name.
CHAT = """
    messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens
    max_completion_tokens n presence_penalty response_format seed stop stream stream_options
    temperature top_p tools tool_choice parallel_tool_calls reasoning_effort user audio
    function_call functions metadata modalities moderation prediction prompt_cache_key
    prompt_cache_options prompt_cache_retention safety_identifier service_tier store verbosity
    web_search_options thinking_token_budget include_reasoning top_k min_p repetition_penalty
    stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens
    spaces_between_special_tokens allowed_token_ids bad_words truncate_prompt_tokens
    truncation_side prompt_logprobs logprob_token_ids use_beam_search length_penalty echo
    add_generation_prompt continue_final_message add_special_tokens documents chat_template
    chat_template_kwargs media_io_kwargs mm_processor_kwargs mm_payload return_mm_kwargs
    structured_outputs priority request_id session_id stream_interval cache_salt
    return_tokens_as_token_ids return_token_ids return_token_offsets return_prompt_text
    routed_experts_prompt_start kv_transfer_params ec_transfer_params vllm_xargs watermarking
    repetition_detection
"""
COMPLETION = """
    model prompt echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed
    stop stream stream_options suffix temperature top_p user best_of use_beam_search top_k min_p
    repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output
    ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens
    truncate_prompt_tokens truncation_side allowed_token_ids prompt_logprobs logprob_token_ids
    bad_words prompt_embeds add_special_tokens response_format structured_outputs priority
    request_id session_id return_tokens_as_token_ids return_token_ids
    routed_experts_prompt_start return_token_offsets mm_payload return_mm_kwargs cache_salt
    kv_transfer_params ec_transfer_params vllm_xargs repetition_detection
    thinking_token_budget stream_interval
"""


@pytest.mark.parametrize(("kind", "known"), [(ChatRequest, CHAT), (CompletionRequest, COMPLETION)])
def test_it_has_what_clients_send(kind: type[RequestFields], known: str) -> None:
    assert set(known.split()) <= {row.name for row in field_rows(kind)}
