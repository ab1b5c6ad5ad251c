"""Add to a tokenizer the tokens that only the model's other files name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokenizers import AddedToken, Tokenizer

from inferno.text.special_tokens import NamedTokens


def add_named(backend: Tokenizer, tokens: NamedTokens) -> None:
    """Make the tokenizer find these tokens too, and treat those that it knows as they say.

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
