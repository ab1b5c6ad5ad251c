"""Compare the tokenizers of two models by what they do, whatever their files look like.

What ids mean and how texts are cut is compared: the tokens by their ids, the merges or scores in
their order, and the added tokens. How a file is laid out, and how it spells merges, is no
difference; nor is whether it is a tokenizer.json or the metadata of a GGUF file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from inferno.errors import TokenizerError
from inferno.json_file import MAX_TOKENIZER_BYTES, MAX_TOKENIZER_SEPARATORS
from inferno.model_files import TOKENIZER, TOKENIZER_CONFIG, ModelFiles, model_files
from inferno.untrusted_json import SEPARATORS


@dataclass(frozen=True, slots=True)
class _Content:
    """The parts of a tokenizer that are compared.

    kind    of the model, such as BPE.
    tokens  id -> token, the added ones too; added: of those alone.
    order   merges as pairs, or the scores of a Unigram model; empty where it has neither.
    """

    kind: str
    tokens: Mapping[int, str]
    order: tuple[Any, ...]
    added: Mapping[int, str]


def check_same_tokenizer(draft: Path, target: Path) -> None:
    """Raise TokenizerError, with the first difference, unless two models share a tokenizer.

    Two models without a tokenizer, as with random weights, count as sharing one.
    """
    files = model_files(draft), model_files(target)
    has = [each.has(TOKENIZER) for each in files]
    if not any(has):
        return
    difference = None
    if not all(has):
        difference = f"{files[has.index(False)].place(TOKENIZER)} is missing"
    elif not _are_equal_files(*files):
        difference = next(_differences(*map(_read, files)), None)
    if difference is not None:
        raise TokenizerError(
            f"the draft model {draft} has another tokenizer than {target}: {difference}. Its "
            "tokens would mean something else: choose a smaller model of the same family, or none"
        )


def _differences(draft: _Content, target: _Content) -> Iterator[str]:
    """Yield what differs, as far as it is looked at: from the first difference on."""
    if draft.kind != target.kind:
        yield f"its kind is {draft.kind}, not {target.kind}"
    yield from _different_tokens("token", draft.tokens, target.tokens)
    for number, (one, other) in enumerate(zip_longest(draft.order, target.order)):
        if one != other:
            name = "score" if draft.kind == "Unigram" else "merge"
            yield f"{name} {number} is {_shown(one)}, not {_shown(other)}"
    yield from _different_tokens("the added token", draft.added, target.added)


def _different_tokens(
    name: str, draft: Mapping[int, str], target: Mapping[int, str]
) -> Iterator[str]:
    if draft != target:
        for token_id in sorted(draft.keys() | target.keys()):
            one, other = draft.get(token_id), target.get(token_id)
            if one != other:
                yield f"{name} {token_id} is {_shown(one)}, not {_shown(other)}"


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.80}"


def _are_equal_files(draft: ModelFiles, target: ModelFiles) -> bool:
    """Return whether both are files of equal bytes, which need no look at what they say."""
    if draft.are_made or target.are_made or _listed(draft) != _listed(target):
        return False
    return _bytes_of(draft) == _bytes_of(target)


def _bytes_of(files: ModelFiles) -> bytes:
    return files.read(TOKENIZER, error=TokenizerError, max_bytes=MAX_TOKENIZER_BYTES)


def _read(files: ModelFiles) -> _Content:
    """Return what a model's tokenizer says; TokenizerError where it can't be understood."""
    listed = _listed(files)
    with _comparable(files.place(TOKENIZER)):
        spec = files.json(TOKENIZER, error=TokenizerError) if files.are_made else _parse(files)
        return _content(spec, listed)


@contextmanager
def _comparable(place: str) -> Iterator[None]:
    """Turn what goes wrong with values of unexpected types into an error that names the file."""
    try:
        yield
    except (ValueError, RecursionError, TypeError, KeyError) as problem:
        raise TokenizerError(
            f"{place} can't be compared ({problem!s:.200}), download it again if it is damaged"
        ) from None


def _parse(files: ModelFiles) -> object:
    content = _bytes_of(files)
    if sum(map(content.count, SEPARATORS)) > MAX_TOKENIZER_SEPARATORS:
        raise ValueError("it has too many values")
    return json.loads(content.decode("utf-8"))


def _content(spec: Any, listed: Mapping[int, str]) -> _Content:
    order: tuple[Any, ...]
    match spec:
        case {"model": {"vocab": dict(vocab)} as model}:
            kind = str(model.get("type") or ("BPE" if "merges" in model else "WordLevel"))
            tokens = {_id(token_id): str(token) for token, token_id in vocab.items()}
            order = tuple(map(_merge, model.get("merges") or ()))
        case {"model": {"vocab": list(pieces)}}:
            kind = "Unigram"
            tokens = {number: str(piece) for number, (piece, _) in enumerate(pieces)}
            order = tuple(float(score) for _, score in pieces)
        case _:
            raise ValueError("it has no model with a vocabulary")
    entries = spec.get("added_tokens") or ()
    added = {_id(entry["id"]): str(entry["content"]) for entry in entries} | dict(listed)
    return _Content(kind, tokens | added, order, added)


def _listed(files: ModelFiles) -> dict[int, str]:
    """Return the tokens that tokenizer_config.json adds to those of tokenizer.json."""
    if not files.has(TOKENIZER_CONFIG):
        return {}
    config = files.json(TOKENIZER_CONFIG, error=TokenizerError)
    with _comparable(files.place(TOKENIZER_CONFIG)):
        return {
            int(token_id): str(token["content"] if isinstance(token, dict) else token)
            for token_id, token in dict(config.get("added_tokens_decoder") or {}).items()
        }


def _merge(merge: Any) -> tuple[str, str]:
    """Return a merge as a pair; files have pairs, or texts with a space between both."""
    first, second = merge.split(" ", 1) if isinstance(merge, str) else merge
    return str(first), str(second)


def _id(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"the id {value!r:.80} is no number")
    return value
