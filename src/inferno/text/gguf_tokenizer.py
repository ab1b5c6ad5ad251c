"""Turn the metadata of a GGUF file into the tokenizer files of a Hugging Face model.

The keys are those of the GGUF specification (ggml's docs/gguf.md), and their meaning and defaults
those of llama.cpp. A SentencePiece vocabulary becomes byte-pair encoding whose merges are ordered
by the scores of what they make, which is the rule by which llama.cpp merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TypeVar

from inferno.errors import TokenizerError
from inferno.text.chat import MAX_TEMPLATE_BYTES
from inferno.text.gguf_pretokenizers import PRE_TOKENIZERS, PreTokenizer
from inferno.text.tokenizer_limits import MAX_TOKEN_LENGTH

# A piece of n characters has n - 1 ways to be made of two, each looked up.
MAX_PIECE_LENGTH = 256
MAX_PIECE_CHARACTERS = 4_000_000

_KEYS = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_SPECIAL = (_UNKNOWN, _CONTROL)
_CONVERT = "download the GGUF file again, or convert the model to GGUF again"
_SPACE = "\u2581"  # how SentencePiece writes a space

T = TypeVar("T")

# Tokens that end a turn or a text; many files name only one of several. As in llama.cpp.
_ENDS = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|return|>"),
    *("<|call|>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "[EOT]"),
)


def tokenizer_files(metadata: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return tokenizer.json, tokenizer_config.json and generation_config.json, by their names.

    metadata    key -> int, float, bool, str, or a list of them, as the GGUF file has them. A text
                that is not UTF-8 there has surrogates here.

    TokenizerError names the key whose value can't be used, or the kind of tokenizer that inferno
    does not know.
    """
    kind = _text(metadata, _KEYS + "model")
    vocabulary = _read_vocabulary(metadata)
    if kind == "llama":
        ids = _SpecialIds(metadata, vocabulary, bos=1, eos=2, unknown=0)
        tokenizer = _sentence_piece(metadata, vocabulary, ids.unknown)
        adds_bos = _flag(metadata, "add_bos_token", default=True)
    elif kind == "gpt2":
        ids = _SpecialIds(metadata, vocabulary)
        rule = _pre_tokenizer(metadata)
        tokenizer = _byte_level(metadata, vocabulary, rule)
        adds_bos = _flag(metadata, "add_bos_token", default=rule.adds_bos)
    else:
        raise _refusal(
            _KEYS + "model",
            repr(kind),
            "'llama' (SentencePiece) or 'gpt2' (byte-level BPE)",
            cure="take the model in the safetensors format",
        )
    adds_eos = _flag(metadata, "add_eos_token", default=False)
    before = [ids.needed("bos", vocabulary)] if adds_bos else []
    after = [ids.needed("eos", vocabulary)] if adds_eos else []
    config = {
        "add_bos_token": adds_bos,
        "add_eos_token": adds_eos,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **ids.names(vocabulary),
    }
    if templates := _templates(metadata):
        config["chat_template"] = templates
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": vocabulary.added(),
            **tokenizer,
            "post_processor": _template(before, after, vocabulary),
        },
        "tokenizer_config.json": config,
        "generation_config.json": ids.generation_config(vocabulary),
    }


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The tokens of a file, in the order of their ids, each with its type."""

    tokens: list[str]
    types: list[int]
    ids: dict[str, int]

    def is_special(self, token_id: int) -> bool:
        is_end = self.types[token_id] == _USER_DEFINED and self.tokens[token_id] in _ENDS
        return is_end or self.types[token_id] in _SPECIAL

    def added(self) -> list[dict[str, object]]:
        """Return the tokens that are found in a text before anything else is done with it."""
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        kinds = (*_SPECIAL, _USER_DEFINED)
        return [
            {"id": i, "content": self.tokens[i], **flags, "special": self.is_special(i)}
            for i, kind in enumerate(self.types)
            if kind in kinds
        ]


def _read_vocabulary(metadata: Mapping[str, object]) -> _Vocabulary:
    key = _KEYS + "tokens"
    tokens = _list(metadata, key, str)
    types = _list(metadata, _KEYS + "token_type", int)
    _check_length(_KEYS + "token_type", types, tokens)
    if not set(types) <= set(range(_NORMAL, _BYTE + 1)):
        wrong = next(kind for kind in types if not _NORMAL <= kind <= _BYTE)
        raise _refusal(_KEYS + "token_type", f"type {wrong}", "types from 1 to 6")
    _check_texts(key, tokens)
    # Padding of the embedding, which stands for no text.
    num_used = len(tokens)
    while num_used and types[num_used - 1] == _UNUSED:
        num_used -= 1
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens[:num_used])]
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        twice = next(i for i, token in enumerate(tokens) if ids[token] != i)
        found = f"{tokens[twice]!r:.80} as tokens {twice} and {ids[tokens[twice]]}"
        raise _refusal(key, found, "each token once")
    return _Vocabulary(tokens, types[:num_used], ids)


def _check_texts(key: str, tokens: list[str]) -> None:
    """Refuse tokens that are too long, or hold what UTF-8 can't encode."""
    if not _is_utf_8("".join(tokens)):
        wrong = next(i for i, token in enumerate(tokens) if not _is_utf_8(token))
        raise _refusal(key, f"bytes that are not UTF-8 as token {wrong}", "texts in UTF-8")
    if max(map(len, tokens), default=0) > MAX_TOKEN_LENGTH:
        found = "a token of more characters"
        raise _refusal(key, found, f"tokens of at most {MAX_TOKEN_LENGTH} characters")


def _is_utf_8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _SpecialIds:
    """The ids that a file gives to BOS, EOS and their like; None where it has none.

    A default, which is llama.cpp's, counts where the vocabulary has such an id.
    """

    def __init__(
        self,
        metadata: Mapping[str, object],
        vocabulary: _Vocabulary,
        *,
        bos: int | None = None,
        eos: int | None = None,
        unknown: int | None = None,
    ) -> None:
        def read(name: str, default: int | None = None) -> int | None:
            return _token_id(metadata, f"{_KEYS}{name}_token_id", len(vocabulary.tokens), default)

        self.bos = read("bos", bos)
        self.eos = read("eos", eos)
        self.unknown = read("unknown", unknown)
        self.padding = read("padding")
        self.ends = [self.eos, read("eot"), read("eom")]

    def needed(self, name: str, vocabulary: _Vocabulary) -> str:
        """Return the token that texts begin or end with, which must be there."""
        token_id: int | None = getattr(self, name)
        if token_id is None:
            key = f"{_KEYS}{name}_token_id"
            raise _refusal(key, "nothing", f"the token that add_{name}_token asks for")
        return vocabulary.tokens[token_id]

    def names(self, vocabulary: _Vocabulary) -> dict[str, str]:
        """Return the tokens by the names that tokenizer_config.json gives them.

        A token of plain text, such as a `!` that a file declares as its padding, gets no name:
        it would be special, and vanish from what a model says.
        """
        by_name = {"bos": self.bos, "eos": self.eos, "unk": self.unknown, "pad": self.padding}
        return {
            f"{name}_token": vocabulary.tokens[token_id]
            for name, token_id in by_name.items()
            if token_id is not None
            and vocabulary.types[token_id] in (*_SPECIAL, _USER_DEFINED)
        }

    def generation_config(self, vocabulary: _Vocabulary) -> dict[str, object]:
        """Return what ends an output: the ids of the file, and tokens that are known to."""
        ends = {token_id: None for token_id in self.ends if token_id is not None}
        for token in _ENDS:
            token_id = vocabulary.ids.get(token)
            # In the Harmony format a message ends with <|end|>, and a turn with <|return|>.
            if token == "<|end|>" and "<|return|>" in vocabulary.ids:
                continue
            if token_id is not None and vocabulary.is_special(token_id):
                ends[token_id] = None
        config: dict[str, object] = {"eos_token_id": list(ends)} if ends else {}
        return config if self.bos is None else {"bos_token_id": self.bos} | config


def _sentence_piece(
    metadata: Mapping[str, object], vocabulary: _Vocabulary, unknown: int | None
) -> dict[str, object]:
    if _flag(metadata, "remove_extra_whitespaces", default=False):
        raise _refusal(
            _KEYS + "remove_extra_whitespaces",
            "true",
            "false, as neither inferno nor llama.cpp removes spaces",
            cure="take the model in the safetensors format",
        )
    key = _KEYS + "scores"
    scores = _list(metadata, key, int, float)
    _check_length(key, scores, _list(metadata, _KEYS + "tokens", str))
    if not all(map(isfinite, scores)):
        raise _refusal(key, "a score that is not finite", "a finite score for each token")
    escape = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    unescape = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    normalizers: list[dict[str, object]] = [escape]
    decoders: list[dict[str, object]] = [unescape, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if _flag(metadata, "add_space_prefix", default=True):
        normalizers.insert(0, {"type": "Prepend", "prepend": _SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "unk_token": None if unknown is None else vocabulary.tokens[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary.ids,
            "merges": _merges_by_score(vocabulary, scores),
        },
    }


def _merges_by_score(vocabulary: _Vocabulary, scores: list[int | float]) -> list[tuple[str, str]]:
    """Return all pairs of pieces that make a piece, those of the best score first.

    Pieces of one score follow in the order of their ids; llama.cpp merges the leftmost of them
    first, which no list of merges can say. Control tokens are never made of a text.
    """
    pieces = {
        token: token_id
        for token_id, (token, kind) in enumerate(
            zip(vocabulary.tokens, vocabulary.types, strict=True)
        )
        if kind in (_NORMAL, _USER_DEFINED)
    }
    longest, in_all = max(map(len, pieces), default=0), sum(map(len, pieces))
    if longest > MAX_PIECE_LENGTH or in_all > MAX_PIECE_CHARACTERS:
        raise _refusal(
            _KEYS + "tokens",
            f"pieces of up to {longest} characters, {in_all:,} in all",
            f"at most {MAX_PIECE_LENGTH}, and {MAX_PIECE_CHARACTERS:,} in all",
        )
    merges: list[tuple[str, str]] = []
    for piece in sorted(pieces, key=lambda piece: -scores[pieces[piece]]):
        halves = [
            (piece[:cut], piece[cut:])
            for cut in range(1, len(piece))
            if piece[:cut] in pieces and piece[cut:] in pieces
        ]
        halves.sort(key=lambda pair: (pieces[pair[0]], pieces[pair[1]]))
        merges += halves
    return merges


def _byte_level(
    metadata: Mapping[str, object], vocabulary: _Vocabulary, rule: PreTokenizer
) -> dict[str, object]:
    return {
        "normalizer": {"type": "NFC"} if rule.is_nfc else None,
        "pre_tokenizer": rule.spec(),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        },
        "model": {
            "type": "BPE",
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rule.ignore_merges,
            "vocab": vocabulary.ids,
            "merges": _listed_merges(metadata, vocabulary.ids),
        },
    }


def _pre_tokenizer(metadata: Mapping[str, object]) -> PreTokenizer:
    name = _text(metadata, _KEYS + "pre")
    if name not in PRE_TOKENIZERS:
        raise _refusal(
            _KEYS + "pre",
            repr(name[:80]),
            f"one of {', '.join(PRE_TOKENIZERS)}",
            cure="take the model in the safetensors format",
        )
    return PRE_TOKENIZERS[name]


def _listed_merges(
    metadata: Mapping[str, object], ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return the file's merges as pairs; of one that is there twice, the first counts."""
    key = _KEYS + "merges"
    merges: list[tuple[str, str]] = []
    for merge in dict.fromkeys(_list(metadata, key, str)):
        # A token may begin with a space of its own, so the space between is not the first letter.
        cut = merge.find(" ", 1)
        first, second = merge[:cut], merge[cut + 1 :]
        if cut < 0 or first not in ids or second not in ids or first + second not in ids:
            raise _refusal(key, f"{merge!r:.80}", "two tokens with a space between, making a third")
        merges.append((first, second))
    return merges


def _template(
    before: list[str], after: list[str], vocabulary: _Vocabulary
) -> dict[str, object] | None:
    """Return the part of tokenizer.json that puts tokens before and after a text."""
    if not before and not after:
        return None

    def around(name: str, type_id: int) -> list[dict[str, object]]:
        return [
            *({"SpecialToken": {"id": token, "type_id": type_id}} for token in before),
            {"Sequence": {"id": name, "type_id": type_id}},
            *({"SpecialToken": {"id": token, "type_id": type_id}} for token in after),
        ]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary.ids[token]], "tokens": [token]}
            for token in (*before, *after)
        },
    }


def _templates(metadata: Mapping[str, object]) -> str | list[dict[str, str]] | None:
    """Return the file's chat template, or all of them by their names; None without one."""
    key = "tokenizer.chat_template"
    by_name = {
        "default" if each == key else each.removeprefix(key + "."): _text(metadata, each)
        for each in metadata
        if each == key or each.startswith(key + ".")
    }
    for name, template in by_name.items():
        if len(template) > MAX_TEMPLATE_BYTES:
            found = f"{name!r:.80} of {len(template):,} characters"
            raise _refusal(key, found, f"a template of at most {MAX_TEMPLATE_BYTES:,}")
    if list(by_name) == ["default"]:
        return by_name["default"]
    return [{"name": name, "template": text} for name, text in by_name.items()] or None


def _refusal(key: str, found: str, expected: str, *, cure: str = _CONVERT) -> TokenizerError:
    return TokenizerError(f"{key}: found {found}, but expected {expected}; {cure}")


def _list(metadata: Mapping[str, object], key: str, *kinds: type[T]) -> list[T]:
    """Return a list whose values are all of these types, which bool never is."""
    expected = f"a list of {' or '.join(kind.__name__ for kind in kinds)}"
    match metadata.get(key):
        case None:
            raise _refusal(key, "nothing", expected)
        case list(values) if set(map(type, values)) <= set(kinds):
            return values
        case list(values):
            wrong = next(value for value in values if type(value) not in kinds)
            raise _refusal(key, f"a list with {wrong!r:.80}", expected)
        case other:
            raise _refusal(key, f"{other!r:.80}", expected)


def _check_length(key: str, values: list[int] | list[int | float], tokens: list[str]) -> None:
    if len(values) != len(tokens):
        expected = f"{len(tokens)}, one for each of {_KEYS}tokens"
        raise _refusal(key, f"{len(values)} values", expected)


def _text(metadata: Mapping[str, object], key: str) -> str:
    match metadata.get(key):
        case None:
            raise _refusal(key, "nothing", "a text")
        case str(text) if _is_utf_8(text):
            return text
        case other:
            raise _refusal(key, f"{other!r:.80}", "a text in UTF-8")


def _flag(metadata: Mapping[str, object], name: str, *, default: bool) -> bool:
    match metadata.get(_KEYS + name, default):
        case bool(value):
            return value
        case other:
            raise _refusal(_KEYS + name, f"{other!r:.80}", "true or false")


def _token_id(
    metadata: Mapping[str, object], key: str, num_tokens: int, default: int | None
) -> int | None:
    value = metadata.get(key)
    if value is None:
        return default if default is not None and default < num_tokens else None
    if type(value) is not int or not 0 <= value < num_tokens:
        raise _refusal(key, f"{value!r:.80}", f"an id from 0 to {num_tokens - 1}")
    return value
