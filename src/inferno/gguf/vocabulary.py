"""Read the vocabulary of a GGUF file from its metadata, and refuse unusable values.

The keys are those of the GGUF specification (ggml's docs/gguf.md), and their meaning is that of
llama.cpp. Every value may be missing, of another type, or made to do harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from inferno.errors import TokenizerError

KEYS = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_ADDED = frozenset({UNKNOWN, CONTROL, USER_DEFINED})

# Tokens that end a turn or a text, as llama.cpp knows them: many files name one of several. (Of
# Gemma 4's, </s> ends none where <|tool_response> does; no such model is read here.)
_ENDS = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|return|>"),
    *("<|call|>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "[EOT]"),
    *("</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "<end_of_utterance>", "<turn|>", "[e~["),
    *("<|flush|>", "<|calls|>", "<|tool_response>"),
)
# And what models for code put beside what they fill in: padding, another file or repository. They
# are no special tokens where the model's makers made them none.
_ENDS_OF_FILES = (
    *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|file_sep|>"),
    *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
)
# Where outputs end so, in Harmony and Solar Open, <|end|> ends a message, after which more come.
_ENDS_BESIDE_MESSAGES = ({"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"})
_NO_TOKEN = 2**32 - 1  # what llama.cpp's -1 is in a file
_MAY_BE_WRONG = ("unknown", "padding")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a GGUF file.

    tokens  in the order of their ids.
    types   of each: normal, unknown, control, user-defined, unused or byte.
    ids     token -> id.
    named   name -> id: bos, eos, eot, eom, unknown and padding, as far as the file has them.
    """

    tokens: list[str]
    types: list[int]
    ids: dict[str, int]
    named: dict[str, int]

    def is_added(self, token_id: int) -> bool:
        """Return whether a token is found in a text before the text is split and merged."""
        return self.types[token_id] in _ADDED

    def added_ids(self) -> list[int]:
        """Return the ids of all tokens for which is_added is true."""
        return [token_id for token_id, kind in enumerate(self.types) if kind in _ADDED]

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is a special one, which is no text."""
        is_end = self.types[token_id] == USER_DEFINED and self.tokens[token_id] in _ENDS
        return is_end or self.types[token_id] in (UNKNOWN, CONTROL)

    def token(self, name: str, *, asked_by: str) -> str:
        """Return a named token that texts begin or end with, and so must be there."""
        if name not in self.named:
            expected = f"the id of the token that {asked_by} asks for"
            raise refusal(f"{KEYS}{name}_token_id", "nothing", expected)
        return self.tokens[self.named[name]]

    def end_ids(self) -> list[int]:
        """Return the ids that end an output: EOS first, then those of a turn, a text or a file."""
        named = [self.named[name] for name in ("eos", "eot", "eom") if name in self.named]
        known = [self.ids[token] for token in _ENDS if token in self.ids]
        of_files = [self.ids[token] for token in _ENDS_OF_FILES if token in self.ids]
        ends = dict.fromkeys(
            [*named, *filter(self.is_special, known), *filter(self.is_added, of_files)]
        )
        texts = {self.tokens[token_id] for token_id in ends}
        if any(texts >= pair for pair in _ENDS_BESIDE_MESSAGES):  # even where the file names it
            return [token_id for token_id in ends if self.tokens[token_id] != "<|end|>"]
        return list(ends)


def read_vocabulary(metadata: Mapping[str, object], defaults: Mapping[str, int]) -> Vocabulary:
    """Return the vocabulary; TokenizerError names the key whose value can't be used.

    defaults    name -> id, where the file doesn't say; they count if there are so many tokens.
    """
    tokens = read_list(metadata, "tokens", str)
    types = read_list(metadata, "token_type", int, length=len(tokens))
    if not set(types) <= set(range(NORMAL, BYTE + 1)):
        wrong = next(kind for kind in types if not NORMAL <= kind <= BYTE)
        raise refusal(KEYS + "token_type", f"type {wrong}", f"types from {NORMAL} to {BYTE}")
    _check_texts(tokens)
    num_used = len(tokens)
    while num_used and types[num_used - 1] == UNUSED:  # rows of the embedding that pad it
        num_used -= 1
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens[:num_used])]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        twice = next(i for i, token in enumerate(tokens) if ids[token] != i)
        found = f"{tokens[twice]!r:.80} as tokens {twice} and {ids[tokens[twice]]}"
        raise refusal(KEYS + "tokens", found, "each token once")
    named = {name: token_id for name, token_id in defaults.items() if token_id < num_used}
    return Vocabulary(tokens, types[:num_used], ids, named | _named_ids(metadata, num_used))


def _check_texts(tokens: list[str]) -> None:
    """Refuse tokens that are too long, or hold what UTF-8 can't encode."""
    if not _is_utf_8("".join(tokens)):
        wrong = next(i for i, token in enumerate(tokens) if not _is_utf_8(token))
        raise refusal(KEYS + "tokens", f"token {wrong}, which is not UTF-8", "texts in UTF-8")


def _is_utf_8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _named_ids(metadata: Mapping[str, object], num_tokens: int) -> dict[str, int]:
    """Return the file's named ids.

    llama.cpp takes an id beyond the tokens for none, with a warning; here it does no harm where no
    text begins or ends with the token.
    """
    named: dict[str, int] = {}
    for name in ("bos", "eos", "eot", "eom", "unknown", "padding"):
        key = f"{KEYS}{name}_token_id"
        value = metadata.get(key)
        is_beyond = type(value) is int and not 0 <= value < num_tokens
        if value is None or (is_beyond and (value == _NO_TOKEN or name in _MAY_BE_WRONG)):
            continue
        if type(value) is not int or is_beyond:
            raise refusal(key, f"{value!r:.80}", f"an id from 0 to {num_tokens - 1}")
        named[name] = value
    return named


def read_list(
    metadata: Mapping[str, object], name: str, kind: type[_T], *, length: int | None = None
) -> list[_T]:
    """Return a list whose values are all of one type, one for each of `length` tokens."""
    key = KEYS + name
    expected = f"a list of {kind.__name__}"
    match metadata.get(key):
        case None:
            raise refusal(key, "nothing", expected)
        case list(values) if not set(map(type, values)) <= {kind}:
            wrong = next(value for value in values if type(value) is not kind)
            raise refusal(key, f"a list with {wrong!r:.80}", expected)
        case list(values) if length is not None and len(values) != length:
            raise refusal(key, f"{len(values)} values", f"{length}, one for each of {KEYS}tokens")
        case list(values):
            return values
        case other:
            raise refusal(key, f"{other!r:.80}", expected)


def read_text(metadata: Mapping[str, object], key: str) -> str:
    """Return a text, in UTF-8, that the file must have."""
    match metadata.get(key):
        case None:
            raise refusal(key, "nothing", "a text")
        case str(text) if _is_utf_8(text):
            return text
        case other:
            raise refusal(key, f"{other!r:.80}", "a text in UTF-8")


def read_flag(metadata: Mapping[str, object], name: str, *, default: bool) -> bool:
    """Return a switch, or its default where the file has none."""
    match metadata.get(KEYS + name, default):
        case bool(value):
            return value
        case other:
            raise refusal(KEYS + name, f"{other!r:.80}", "true or false")


def refusal(key: str, found: str, expected: str, *, is_unknown: bool = False) -> TokenizerError:
    """Return the error for a value: a damaged one, or one that inferno does not know."""
    cure = "download the GGUF file again, or convert the model to GGUF again"
    if is_unknown:
        cure = "take the model in the safetensors format, which has its own tokenizer.json"
    return TokenizerError(f"{key}: found {found}, but expected {expected}; {cure}")
