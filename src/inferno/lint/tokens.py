"""Lint of tokens: names without ids, ids without embeddings, and what ends an output."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from inferno.errors import ModelError
from inferno.gguf.names import hf_name
from inferno.hub.facts import read_tensors
from inferno.lint.checks import MOST_LISTED, Finding
from inferno.text.tokenizer import Tokenizer

_EMBEDDINGS = ("model.embed_tokens.weight", "lm_head.weight")  # tied ones may be either
_TEXT = f"{string.ascii_letters} {string.digits} {string.punctuation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A model's tokens.

    named  bos_token, eos_token and the like, by name.
    ends   the ids that end an output, of all files together.
    """

    tokenizer: Tokenizer
    named: Mapping[str, str]
    ends: frozenset[int]

    @property
    def bos_id(self) -> int | None:
        """Return the id of bos_token; None without one."""
        text = self.named.get("bos_token")
        return None if text is None else self.tokenizer.token_to_id(text)

    @property
    def end_names(self) -> list[str]:
        """Return the tokens that end an output, without ids that are no token's."""
        names = map(self.name_of, sorted(self.ends))
        return [name for name in names if name is not None]

    def name_of(self, token_id: int) -> str | None:
        """Return a token's spelling; None where an id, of whatever size, is no token's."""
        is_one = 0 <= token_id < self.tokenizer.vocab_size
        return self.tokenizer.id_to_token(token_id) if is_one else None

    @property
    def adds_bos(self) -> bool:
        """Return whether the tokenizer begins every plain prompt with BOS."""
        bare = self.tokenizer.encode("a", add_special_tokens=False)
        first = self.tokenizer.encode("a")[:1]
        return self.bos_id is not None and first == [self.bos_id] and bare[:1] != first


def token_findings(
    tokens: Tokens, config: Mapping[str, object], generation: Mapping[str, object], path: Path
) -> Iterator[Finding]:
    """Yield what is wrong with a model's tokens, beside its configs and its embedding.

    Raises TokenizerError where the tokenizer fails on a text.
    """
    tokenizer = tokens.tokenizer
    for name, text in tokens.named.items():
        if tokenizer.token_to_id(text) is None:
            yield Finding("named token", f"{name} is {text!r:.80}, which the vocabulary lacks")
    num_rows = _num_embeddings(path) or config.get("vocab_size")
    if isinstance(num_rows, int) and 0 < num_rows < tokenizer.vocab_size:
        beyond = [i for i in range(num_rows, tokenizer.vocab_size) if tokenizer.id_to_token(i)]
        listed = ", ".join(f"{tokenizer.id_to_token(i)!r:.40}" for i in beyond[:MOST_LISTED])
        more = f" and {len(beyond) - MOST_LISTED} more" if len(beyond) > MOST_LISTED else ""
        if beyond:
            yield Finding(
                "vocabulary",
                f"the tokenizer has {tokenizer.vocab_size} ids and the embedding {num_rows} rows; "
                f"beyond it are {listed}{more}",
            )
        if tokens.ends and min(tokens.ends) >= num_rows:
            yield Finding(
                "end beyond embeddings",
                f"the token that ends an output is {min(tokens.ends)}, and the embedding has "
                f"{num_rows} rows",
            )
    if not tokens.ends:
        yield Finding("no end", "no file names a token that ends an output (eos_token_id)")
    yield from _ends_without_token(tokens)
    yield from _ends_of_text(tokens)
    yield from _differing_ids(tokens, config, generation)
    yield from _plain_prompt(tokens)


def _plain_prompt(tokens: Tokens) -> Iterator[Finding]:
    """Yield what the tokenizer does to a prompt that is no chat."""
    tokenizer = tokens.tokenizer
    bare, ids = tokenizer.encode("a", add_special_tokens=False), tokenizer.encode("a")
    if tokens.bos_id is not None and ids[:2] == [tokens.bos_id] * 2:
        name = tokens.named["bos_token"]
        yield Finding("two BOS", f"the tokenizer begins a plain prompt with {name} twice")
    if ids[-1:] != bare[-1:] and ids[-1] in tokens.ends:
        end = tokenizer.id_to_token(ids[-1])
        yield Finding("end behind prompts", f"the tokenizer writes {end} behind a plain prompt")
    found = tokenizer.decode(tokenizer.encode(_TEXT, add_special_tokens=False)).strip()
    if found != _TEXT:
        yield Finding("text is lost", f"{_TEXT!r} becomes tokens, and these become {found!r:.200}")


def _differing_ids(
    tokens: Tokens, config: Mapping[str, object], generation: Mapping[str, object]
) -> Iterator[Finding]:
    """Yield the ids of config.json that are neither the tokenizer's nor generation_config.json's.

    Chat models often have the end of documents in one file and the end of answers in another.
    """
    for check, name in (("BOS differs", "bos_token"), ("EOS differs", "eos_token")):
        text, ids = tokens.named.get(name), _ids(config.get(f"{name}_id"))
        own = None if text is None else tokens.tokenizer.token_to_id(text)
        if own is None or not ids or own in ids or ids <= _ids(generation.get(f"{name}_id")):
            continue
        listed = ", ".join(_spelled(i, tokens) for i in sorted(ids)[:MOST_LISTED])
        yield Finding(
            check, f"config.json's {name}_id is {listed}, and {name} is {_spelled(own, tokens)}"
        )


def _spelled(token_id: int, tokens: Tokens) -> str:
    text = tokens.name_of(token_id)
    return f"{token_id}, no token" if text is None else f"{token_id}, {text!r:.40}"


def _ids(declared: object) -> set[int]:
    """Return the ids that a config names, one or a list; what is no id isn't told of here."""
    listed = declared if isinstance(declared, list) else [declared]
    return {token_id for token_id in listed if type(token_id) is int}


def _ends_without_token(tokens: Tokens) -> Iterator[Finding]:
    """Yield the ids that are to end an output, and that no token of the tokenizer has."""
    missing = [token_id for token_id in sorted(tokens.ends) if tokens.name_of(token_id) is None]
    if missing:
        check = "end is no token" if tokens.end_names else "no end is a token"
        listed = ", ".join(map(str, missing[:MOST_LISTED]))
        more = f" and {len(missing) - MOST_LISTED} more" if len(missing) > MOST_LISTED else ""
        yield Finding(check, f"the tokenizer has no token of eos_token_id {listed}{more}")


def _ends_of_text(tokens: Tokens) -> Iterator[Finding]:
    """Yield the tokens that end an output though they are words of a text."""
    for token_id in sorted(tokens.ends):
        if tokens.name_of(token_id) is None:
            continue
        text = tokens.tokenizer.decode([token_id], skip_special_tokens=True)
        if any(character.isalnum() for character in text) and not _looks_like_a_mark(text):
            yield Finding("end is text", f"token {token_id}, which ends an output, is {text!r:.40}")


def _looks_like_a_mark(text: str) -> bool:
    """Return whether a text is such as </s> or [EOS], which some files forget to call special."""
    bare = text.strip()
    return bare[:1] in "<[" and bare[-1:] in ">]"


def _num_embeddings(path: Path) -> int | None:
    """Return how many rows the embedding has by the files' headers; None where they can't tell."""
    try:
        for tensor in read_tensors(path):
            name = hf_name(tensor.name) if path.is_file() else tensor.name
            if name in _EMBEDDINGS and tensor.shape:
                return tensor.shape[0]
    except ModelError:
        return None
    return None
