"""Turn text into token ids and back, as the model's own tokenizer.json says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import tokenizers

from inferno.errors import InvalidRequest, TokenizerError
from inferno.json_file import MAX_TOKENIZER_BYTES
from inferno.model_files import TOKENIZER, ModelFiles
from inferno.requests import MAX_TOKEN_ID
from inferno.text.special_token_escape import PrivateTokenizer, RenderedChat, SpecialTokenEscaper
from inferno.text.special_tokens import add_named, read_named_tokens
from inferno.text.tokenizer_calls import LONG, ids_of, is_panic, no_threads_needed
from inferno.text.tokenizer_file import check_file, check_parts, no_collection
from inferno.text.tokenizer_limits import check_limits, spec_of

# Makes the library's tokenizer, and gives the ids of its model's tokens where they are known.
_Maker = Callable[[], tuple[tokenizers.Tokenizer, dict[str, int] | None]]

_SURROGATE = re.compile("[\ud800-\udfff]")


def load_tokenizer(files: ModelFiles, *, is_optional: bool = False) -> Tokenizer:
    """Return the tokenizer of a model; raise TokenizerError if it is missing, damaged or hostile.

    If the tokenizer is optional, as with random weights, and missing, the result knows no token.
    """
    if not files.has(TOKENIZER):
        if is_optional:
            return Tokenizer(tokenizers.Tokenizer(tokenizers.models.BPE()), eos_token=None)
        raise TokenizerError(_how_to_get(files))
    with no_collection():
        make = _from_parts(files) if files.are_made else _from_text(files)
        named = read_named_tokens(files)
        place = files.place(TOKENIZER)
        with _refused_as(f"{place} can't be used, download it again if it is damaged"):
            backend, vocab = make()
            add_named(backend, named)
            tokenizer = Tokenizer(backend, eos_token=named.text("eos_token"), vocab=vocab)
            tokenizer.decode(tokenizer.encode("a"))  # some damage shows only in use
    return tokenizer


def _from_text(files: ModelFiles) -> _Maker:
    """Read tokenizer.json, and return what makes the library's tokenizer of it."""
    content = files.read(TOKENIZER, error=TokenizerError, max_bytes=MAX_TOKENIZER_BYTES)

    def make() -> tuple[tokenizers.Tokenizer, dict[str, int] | None]:
        vocab = check_file(content)
        return tokenizers.Tokenizer.from_buffer(content), vocab

    return make


def _from_parts(files: ModelFiles) -> _Maker:
    """Do the same for a tokenizer.json that was never text.

    To write a vocabulary of 150,000 tokens out, check it and read it takes half a second longer.
    Without a prefix of tokens, the library itself refuses merges that make none; to look before it
    does takes a tenth of a second.
    """
    spec = files.json(TOKENIZER, error=TokenizerError)

    def make() -> tuple[tokenizers.Tokenizer, dict[str, int]]:
        check_parts(spec)
        model = dict(spec["model"])
        kind, vocab, merges = model.pop("type"), model.pop("vocab"), model.pop("merges")
        assert kind == "BPE"
        no_tokens = {"model": {"type": kind, "vocab": {}, "merges": []}, "added_tokens": []}
        backend = tokenizers.Tokenizer.from_str(json.dumps({**spec, **no_tokens}))
        try:
            backend.model = tokenizers.models.BPE(vocab, merges, **model)
        except Exception:  # plain ones, of which none says where to look
            files.check(TOKENIZER)
            raise
        backend.add_tokens([_added(token) for token in spec["added_tokens"]])
        return backend, vocab

    return make


def _added(token: Mapping[str, Any]) -> tokenizers.AddedToken:
    flags = {name: value for name, value in token.items() if name not in ("id", "content")}
    return tokenizers.AddedToken(token["content"], **flags)


class Tokenizer:
    """A model's tokenizer: text to token ids and back.

    vocab_size      ids are 0 .. vocab_size - 1, added tokens included; the model's own embedding
                    may have more rows.
    special_tokens  id -> text of the tokens that steer the model and are no text: <s>, <|im_end|>.
    marks           text -> id of special tokens, and of added tokens in angle brackets that are
                    text, such as <tool_call>.
    escaper         escapes the special tokens that a user typed.
    decoder         how tokens become text, as tokenizer.json says it; empty: joined by spaces.

    vocab   token -> id of the tokenizer's model, where the caller has it: the library takes long to
            list it.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_token: str | None,
        vocab: dict[str, int] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        all_ids = {**(vocab or {}), **{token.content: i for i, token in added.items()}}
        if vocab is None or len(all_ids) != backend.get_vocab_size():
            all_ids = backend.get_vocab()
        self.vocab_size = 1 + max(all_ids.values(), default=-1)
        self.special_tokens = {i: token.content for i, token in added.items() if token.special}
        self.marks = _marks(added.items())
        check_limits(backend, all_ids, self.special_tokens)
        self.escaper = SpecialTokenEscaper(self.special_tokens.values())
        self.eos_token_id = None if eos_token is None else backend.token_to_id(eos_token)
        self.decoder = spec_of(backend.decoder)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a raw prompt, in which special tokens may be spelled out.

        add_special_tokens  begin (and end) as the model expects, with <s> for instance.
        Surrogates, which are no characters, become U+FFFD.
        """
        text = replace_surrogates(text)
        with _refused_as("the tokenizer can't encode this text"):
            return ids_of(self._backend, text, add_special_tokens=add_special_tokens)

    def encode_rendered(self, chat: RenderedChat) -> list[int]:
        """Return the ids of a rendered conversation, with nothing put before or after.

        Only the special tokens that the template wrote count as such.
        """
        ids = self.encode(chat.text, add_special_tokens=False)
        meant = Counter(chat.text[start:end] for start, end in chat.special_spans)
        found = Counter(self.special_tokens[i] for i in ids if i in self.special_tokens)
        if found <= meant:
            return ids
        with _refused_as("the tokenizer can't encode this conversation"):
            return self._private_tokenizer.encode(chat)

    def with_special_tokens(self, token_ids: list[int]) -> list[int]:
        """Return the ids with the special tokens that begin and end a raw prompt, such as <s>."""
        plain = self.encode("a", add_special_tokens=False)
        whole = self.encode("a")
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return [*whole[:start], *token_ids, *whole[start + len(plain) :]]
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids; unknown ids have no text."""
        if not all(0 <= token_id <= MAX_TOKEN_ID for token_id in token_ids):
            raise InvalidRequest(f"token ids must be from 0 to {MAX_TOKEN_ID}", param="token_ids")
        with _refused_as("the tokenizer can't decode these ids"):
            ids = list(token_ids)
            if len(ids) > LONG:
                with no_threads_needed():
                    return self._backend.decode_batch(
                        [ids], skip_special_tokens=skip_special_tokens
                    )[0]
            return self._backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def id_to_token(self, token_id: int) -> str | None:
        """Return the vocabulary's own spelling of a token, such as `▁the`, or None."""
        return self._backend.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token in the vocabulary's own spelling, or None."""
        return self._backend.token_to_id(replace_surrogates(token))

    def spec(self) -> dict[str, Any]:
        """Return the tokenizer in the form of tokenizer.json, with tokens of other files."""
        with _refused_as("the tokenizer can't be written out"):
            spec: dict[str, Any] = json.loads(self._backend.to_str())
        return spec

    def join(self, tokens: list[str]) -> str:
        """Return the text of tokens in the vocabulary's own spelling."""
        decoder = self._backend.decoder
        with _refused_as("the tokenizer can't decode these tokens"):
            return " ".join(tokens) if decoder is None else decoder.decode(tokens)

    @cached_property
    def _private_tokenizer(self) -> PrivateTokenizer:
        return PrivateTokenizer(self._backend)


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each surrogate, which UTF-8 can't encode."""
    return _SURROGATE.sub("\ufffd", text)


def _how_to_get(files: ModelFiles) -> str:
    place = files.place(TOKENIZER)
    if not files.has("tokenizer.model"):
        return f"{place} is missing: copy the model's tokenizer.json there"
    return (
        f"{place} is missing and tokenizer.model alone is not enough; convert it with "
        "transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    )


def _marks(added: Iterable[tuple[int, tokenizers.AddedToken]]) -> dict[str, int]:
    return {
        token.content: token_id
        for token_id, token in added
        if token.special or (token.content.startswith("<") and token.content.endswith(">"))
    }


@contextmanager
def _refused_as(error: str) -> Iterator[None]:
    """Turn the library's errors into a TokenizerError that begins with these words."""
    try:
        yield
    except TokenizerError:
        raise
    except BaseException as problem:  # its errors are plain Exceptions, its panics not even that
        if not isinstance(problem, Exception) and not is_panic(problem):
            raise
        raise TokenizerError(f"{error} ({problem!s:.200})") from None
