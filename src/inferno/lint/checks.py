"""The checks by name: how bad a finding is, why it matters, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

MOST_LISTED = 4  # tokens that a finding names


class Level(StrEnum):
    """The weight of a finding; a fatal one keeps inferno from running the model, or its chats."""

    FATAL = "fatal"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a model's files: its level, why a finding matters, and what to do."""

    level: Level
    why: str
    cure: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of one check, by its name in CHECKS; `what` is what was found in this model."""

    check: str
    what: str

    @property
    def level(self) -> Level:
        """Return how bad the finding is."""
        return CHECKS[self.check].level

    @property
    def why(self) -> str:
        """Return why the finding matters."""
        return CHECKS[self.check].why

    @property
    def cure(self) -> str:
        """Return what to do about it."""
        return CHECKS[self.check].cure


_OTHER_TEMPLATE = "give another template with --chat-template FILE, or mend this one"
_AGAIN = "download the model again; if its authors' files are so, tell them"

CHECKS: Mapping[str, Check] = {
    "model": Check(
        Level.FATAL,
        "inferno doesn't load it: what can't be read, or isn't known, could change the result",
        "as it says",
    ),
    "tokenizer": Check(
        Level.FATAL, "without a tokenizer, prompts must be lists of token ids", _AGAIN
    ),
    "generation config": Check(
        Level.FATAL, "inferno doesn't load a model whose defaults it would have to refuse", _AGAIN
    ),
    "ignored defaults": Check(
        Level.NOTE,
        "inferno takes no such defaults of a model; transformers follows them, and writes other "
        "texts",
        "give what requests have, such as `stop` and `min_tokens`, with them; beams can't be had",
    ),
    "vocabulary": Check(
        Level.WARNING,
        "such a token in a prompt has no row in the embedding, so the request is refused",
        "don't use these tokens; or use files whose tokenizer and weights belong together",
    ),
    "end beyond embeddings": Check(
        Level.FATAL,
        "the model can't produce it, so nothing ends its output",
        "use files whose tokenizer and weights belong together",
    ),
    "named token": Check(
        Level.WARNING,
        "templates write it, and it is read as plain text, in pieces",
        "correct the name in tokenizer_config.json, or add the token to tokenizer.json",
    ),
    "BOS differs": Check(
        Level.NOTE,
        "inferno goes by the tokenizer and the chat template; other programs may not",
        "correct bos_token_id in config.json, or bos_token in tokenizer_config.json",
    ),
    "EOS differs": Check(
        Level.NOTE,
        "an output ends with any of them",
        "if one of them is no end: correct eos_token_id in config.json, or eos_token in "
        "tokenizer_config.json",
    ),
    "ids differ": Check(
        Level.WARNING,
        "inferno goes by tokenizer.json; one of the two files may be another model's",
        _AGAIN,
    ),
    "add_bos_token": Check(
        Level.NOTE,
        "inferno begins plain prompts as tokenizer.json says; transformers may go by this key",
        "compare with what the model's authors say, and correct one of the two files",
    ),
    "text is lost": Check(
        Level.WARNING,
        "prompts lose characters, or outputs have others than the model wrote",
        _AGAIN,
    ),
    "end behind prompts": Check(
        Level.WARNING,
        "the model is asked to go on behind the end of a text",
        "take the token out of post_processor in tokenizer.json",
    ),
    "no end": Check(
        Level.WARNING,
        "every output goes on to --max-tokens, or to the end of the context",
        "name the token in generation_config.json as eos_token_id, or give --stop",
    ),
    "no end is a token": Check(
        Level.FATAL,
        "the model was never trained to write such an id, so nothing ends its output",
        "name the token in generation_config.json as eos_token_id, or give --stop",
    ),
    "end is no token": Check(
        Level.WARNING,
        "the model was never trained to write such an id; perhaps another one was meant",
        "correct eos_token_id in config.json and generation_config.json",
    ),
    "end is text": Check(
        Level.WARNING,
        "an output ends in the middle, wherever that text occurs",
        "correct eos_token_id in config.json and generation_config.json",
    ),
    "context": Check(
        Level.WARNING,
        "positions beyond what scaling was made for give poor text",
        "set max_position_embeddings, or the factor of rope_scaling; or --max-model-len",
    ),
    "tokenizer's context": Check(
        Level.NOTE,
        "the model may have been trained on no more",
        "--max-model-len, if long texts come out badly",
    ),
    "no template": Check(
        Level.NOTE,
        "--chat, `inferno play` and /v1/chat/completions need one; plain prompts do not",
        "give one with --chat-template FILE, if the model is made for chats",
    ),
    "template": Check(Level.FATAL, "no chat can be rendered", _OTHER_TEMPLATE),
    "user is lost": Check(Level.FATAL, "the model never sees what it is asked", _OTHER_TEMPLATE),
    "system is lost": Check(
        Level.WARNING,
        "instructions in a system message have no effect, and nothing says so",
        f"put them into the first user message; or {_OTHER_TEMPLATE}",
    ),
    "system is refused": Check(
        Level.WARNING,
        "a request with a system message is an error",
        f"put it into the first user message; or {_OTHER_TEMPLATE}",
    ),
    "answers are lost": Check(
        Level.WARNING,
        "in a second turn the model doesn't know what it said in the first",
        _OTHER_TEMPLATE,
    ),
    "questions are lost": Check(
        Level.WARNING,
        "in a second turn the model doesn't see all that it was asked",
        _OTHER_TEMPLATE,
    ),
    "turns are mixed up": Check(
        Level.WARNING,
        "the model reads another conversation than there was",
        _OTHER_TEMPLATE,
    ),
    "texts are changed": Check(
        Level.WARNING,
        "code, quotes and line breaks reach the model as something else",
        f"write messages without filters such as `escape` and `tojson`; {_OTHER_TEMPLATE}",
    ),
    "roles are lost": Check(
        Level.WARNING,
        "the model can't tell its own answers from what the user said",
        f"write `message.role` into the header of each message; {_OTHER_TEMPLATE}",
    ),
    "turns are refused": Check(Level.WARNING, "a chat ends after one answer", _OTHER_TEMPLATE),
    "no generation prompt": Check(
        Level.WARNING,
        "the model may go on with the user's message instead of answering it",
        f"write the header behind `add_generation_prompt`; {_OTHER_TEMPLATE}",
    ),
    "another generation prompt": Check(
        Level.WARNING,
        "the model is asked to go on as somebody else, or with a header that it never saw",
        f"write the header of answers behind `add_generation_prompt`; {_OTHER_TEMPLATE}",
    ),
    "short generation prompt": Check(
        Level.NOTE,
        "the model has to write the blanks itself, and answers begin with them: right if it was "
        "trained so, as ChatGLM3 was; else its answers may be worse",
        "compare with the files of the model's authors",
    ),
    "generation prompt always": Check(
        Level.NOTE,
        "chats are answered as they should be; `add_generation_prompt: false` has no effect",
        "write the header within `{% if add_generation_prompt %}`, if you need conversations "
        "without",
    ),
    "tools are refused": Check(
        Level.WARNING, "a request with tools is an error", f"send none; or {_OTHER_TEMPLATE}"
    ),
    "tools are lost": Check(
        Level.NOTE,
        "the model never hears of them",
        "describe them in a message; or use a model that is made for tools",
    ),
    "two BOS": Check(
        Level.WARNING, "models see one in training, and answer worse after two", _OTHER_TEMPLATE
    ),
    "BOS in both": Check(
        Level.NOTE,
        "inferno encodes chats without the tokenizer's, so they have one; a rendered chat that is "
        "sent as a plain prompt has two",
        "send chats as messages; or as a plain prompt without its BOS",
    ),
    "BOS again": Check(
        Level.NOTE,
        "most models see one in training, where a text begins: right if this one was trained so, "
        "as AlphaMonarch was",
        "compare with the files of the model's authors; else write {{ bos_token }} before the loop "
        "over messages, not in it",
    ),
    "BOS is not first": Check(
        Level.WARNING,
        "models see nothing before it in training",
        f"write {{{{- bos_token }}}}, and no line break before it; {_OTHER_TEMPLATE}",
    ),
    "no BOS": Check(
        Level.WARNING,
        "plain prompts begin with it and chats do not; most models were trained with it",
        f"begin the template with {{{{ bos_token }}}}; {_OTHER_TEMPLATE}",
    ),
    "end before the answer": Check(
        Level.WARNING,
        "the model is asked to go on behind the end of its answer",
        f"write no end behind the generation prompt; {_OTHER_TEMPLATE}",
    ),
    "answers have no end": Check(
        Level.WARNING,
        "a model that sees answers without an end may not end its own, and speak for the user too",
        f"write {{{{ eos_token }}}} behind an answer; {_OTHER_TEMPLATE}; or give --stop",
    ),
    "turn has no end": Check(
        Level.WARNING,
        "the model goes on after its answer, and speaks for the user too",
        "add that token's id to eos_token_id in generation_config.json, or give it with --stop",
    ),
    "marks are text": Check(
        Level.NOTE,
        "they are read in pieces: right if the model was trained so, as TinyLlama was; else the "
        "template or the tokenizer is another model's",
        "compare with the files of the model's authors",
    ),
}
