"""Find tokens that a model's files name beside tokenizer.json, and add them to the tokenizer.

Such tokens are bos_token, eos_token and the like, and the tokens of added_tokens_decoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

from inferno.errors import TokenizerError
from inferno.model_files import TOKENIZER_CONFIG, ModelFiles
from inferno.requests import MAX_TOKEN_ID

NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_OLDER = "special_tokens_map.json"
MAX_TOKEN_LENGTH = 1000
_TOKEN_TEXT = re.compile(f"[^\ud800-\udfff]{{0,{MAX_TOKEN_LENGTH}}}", re.DOTALL)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class NamedTokens:
    """The tokens that tokenizer_config.json, or an older special_tokens_map.json, names.

    named   name -> token: bos_token and the like, and a model's own, such as image_token.
    extra   more special tokens, which have no name.
    by_id   id -> token, special or not: what tokenizer.json should have too.
    """

    named: dict[str, AddedToken]
    extra: tuple[AddedToken, ...]
    by_id: dict[int, AddedToken]

    def text(self, name: str) -> str | None:
        """Return the text of the token of that name; None without one."""
        token = self.named.get(name)
        return None if token is None else str(token.content)


def read_named_tokens(files: ModelFiles) -> NamedTokens:
    """Return the tokens that a model's files name, as transformers reads them.

    Files that list `added_tokens_decoder` are of the newer kind and complete; beside older ones
    special_tokens_map.json has the last word. Raises TokenizerError where a value is no token.
    """
    path = files.place(TOKENIZER_CONFIG)
    config = read_tokenizer_config(files)
    named = dict(_named(config, path))
    extra = _extra(config, path)
    if "added_tokens_decoder" not in config and files.has(_OLDER):
        tokens, older = files.json(_OLDER, error=TokenizerError), files.place(_OLDER)
        named |= _named(tokens, older)
        extra = extra or _extra(tokens, older)
    by_id = _by_id(config, path)
    special = {token.content for token in (*named.values(), *extra)}
    for token in (*named.values(), *extra, *by_id.values()):
        token.special |= token.content in special
    return NamedTokens(named, tuple(extra), by_id)


def read_tokenizer_config(files: ModelFiles) -> dict[str, Any]:
    """Return the content of tokenizer_config.json; empty where the model has no such file."""
    has_one = files.has(TOKENIZER_CONFIG)
    return files.json(TOKENIZER_CONFIG, error=TokenizerError) if has_one else {}


def _named(config: dict[str, Any], path: str) -> Iterator[tuple[str, AddedToken]]:
    for name, value in config.items():
        if value is not None and (name in NAMES or _is_own(name, value)):
            yield name, _token(value, f"{name:.80} in {path}")
    match config.get("extra_special_tokens"):
        case dict(own):
            for name, value in own.items():
                yield name, _token(value, f"extra_special_tokens.{name:.80} in {path}")


def _is_own(name: str, value: object) -> bool:
    """Return whether a key names a special token, and is no switch such as add_bos_token."""
    is_token = isinstance(value, str) or (isinstance(value, dict) and "content" in value)
    return name.endswith("_token") and is_token


def _extra(config: dict[str, Any], path: str) -> list[AddedToken]:
    newer, older = "extra_special_tokens", "additional_special_tokens"
    # The tokens of an object have names, and stand beside the older list; a newer list replaces it.
    key = older if isinstance(config.get(newer) or {}, dict) else newer
    values = config.get(key) or []
    if not isinstance(values, list):
        raise TokenizerError(f"{key} in {path} must be a list of tokens, not {values!r:.80}")
    return [_token(value, f"{key} in {path}") for value in values]


def _by_id(config: dict[str, Any], path: str) -> dict[int, AddedToken]:
    key = "added_tokens_decoder"
    match config.get(key, {}):
        case dict(tokens):
            where = f"{key} in {path}"
            return {_id(i, where): _token(tokens[i], where, special=False) for i in tokens}
        case other:
            raise TokenizerError(f"{key} in {path} must map ids to tokens, not {other!r:.80}")


def _id(text: str, where: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > MAX_TOKEN_ID:
        raise TokenizerError(f"{where} must map ids up to {MAX_TOKEN_ID}, not {text!r:.80}")
    return int(text)


def _token(value: object, where: str, *, special: bool = True) -> AddedToken:
    """Return a text or an object as a token; `special` is the default for an object."""
    entry = value if isinstance(value, dict) else {"content": value, "special": True}
    text: Any = entry.get("content")
    flags = {"special": special} | {flag: entry[flag] for flag in _FLAGS if flag in entry}
    is_text = isinstance(text, str) and _TOKEN_TEXT.fullmatch(text)
    if not is_text or not all(isinstance(flag, bool) for flag in flags.values()):
        raise TokenizerError(
            f'{where}: a token must be a text or {{"content": text}} of at most '
            f"{MAX_TOKEN_LENGTH} characters, not {value!r:.80}"
        )
    return AddedToken(text, **flags)


def add_named(backend: Tokenizer, tokens: NamedTokens) -> None:
    """Add tokens that the model's other files name to the tokenizer.

    Tokens that the tokenizer has already take the files' flags, but special ones stay special.

    As in transformers, but for tokens that the vocabulary lacks: they count only if
    added_tokens_decoder says their id, and it is the next one. Any other new id would be past the
    end, where the model has no embedding, so the text of such a token stays text.
    """
    present = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    listed = {token.content: token for token in _with_ids(backend, tokens.by_id)}
    wanted = {**listed}
    for token in (*tokens.named.values(), *tokens.extra):
        text = token.content
        if text not in listed and backend.token_to_id(text) is not None:
            wanted[text] = present.get(text, token)
            wanted[text].special = True
    for text in wanted.keys() & present:
        wanted[text].special |= present[text].special  # what is special stays so
    backend.add_tokens(list(wanted.values()))


def _with_ids(backend: Tokenizer, by_id: Mapping[int, AddedToken]) -> Iterator[AddedToken]:
    """Yield tokens of the vocabulary, and those after its end that get the id they name."""
    next_id = _next_id(backend)
    for token_id, token in sorted(by_id.items()):
        if backend.token_to_id(token.content) is not None:
            yield token
        elif token_id == next_id and backend.id_to_token(next_id) is None:
            yield token
            next_id += 1


def _next_id(backend: Tokenizer) -> int:
    """Return the id that the library gives to the next new token."""
    num_in_model = backend.get_vocab_size(with_added_tokens=False)
    return max(num_in_model, 1 + max(backend.get_added_tokens_decoder(), default=-1))
