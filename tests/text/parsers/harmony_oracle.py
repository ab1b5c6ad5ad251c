"""OpenAI's own implementation of Harmony, on gpt-oss's vocabulary as its tokenizer.json has it."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from transformers.convert_slow_tokenizer import bytes_to_unicode

from tests.data import data_path

harmony: Any = pytest.importorskip("openai_harmony")


@cache
def encoding() -> Any:
    """Its encoding; the file that it would download is made of the checkpoint's vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "o200k_base.tiktoken").write_bytes(_ranks())
        with patch.dict(os.environ, TIKTOKEN_ENCODINGS_BASE=folder):
            return harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


def message(role: str, text: object, channel: str | None = None, to: str | None = None) -> Any:
    made = harmony.Message.from_role_and_content(harmony.Role(role), text)
    made = made if channel is None else made.with_channel(channel)
    return made if to is None else made.with_recipient(to).with_content_type("<|constrain|>json")


def prompt_ids(messages: list[Any]) -> list[int]:
    """The prompt for the assistant's next answer."""
    conversation = harmony.Conversation.from_messages(messages)
    ids: list[int] = encoding().render_conversation_for_completion(
        conversation, harmony.Role.ASSISTANT
    )
    return ids


def _ranks() -> bytes:
    content = data_path("hf", "gpt-oss-20b", "tokenizer.json").read_text("utf-8")
    vocab: dict[str, int] = json.loads(content)["model"]["vocab"]
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    tokens = sorted((rank, bytes(byte_of[c] for c in token)) for token, rank in vocab.items())
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in tokens)
