"""The rules by which byte-level vocabularies of GGUF files cut a text into words, by their names.

A GGUF file says only a name, `tokenizer.ggml.pre`; what it means stands in llama.cpp. Where
llama.cpp rewrites a regular expression for its own engine and says what it was in the model's
tokenizer.json, that one stands here. `ignore_merges` and `adds_bos` are llama.cpp's for the name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A rule that cuts a text into words, inside which byte-pair encoding merges.

    patterns        regular expressions, each cutting what those before it have left in one piece.
    ignore_merges   whether a word that is a token is that token, whatever its merges make of it.
    adds_bos        whether texts begin with BOS where the file does not say.
    is_nfc          whether a text is brought into Unicode's composed form (NFC) first. llama.cpp
                    never does, so it differs on text that is not in that form already.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    is_nfc: bool = False

    def spec(self) -> dict[str, object]:
        """Return the rule as the `pre_tokenizer` of a tokenizer.json."""
        splits: list[dict[str, object]] = [
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
            for pattern in self.patterns
        ]
        to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
        return {"type": "Sequence", "pretokenizers": [*splits, to_bytes | {"use_regex": False}]}


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"  # a space, say, that the word begins with

GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA_3 = "|".join(
    [_CONTRACTIONS, _START + r"\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", _SPACES]
)
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")
# Signs don't take the ends of lines behind them.
_SEED_CODER = _QWEN_2.replace(r"]+[\r\n]*", "]+")
# Numbers were cut by threes before.
_MINICPM_5 = _LLAMA_3.replace("{1,3}", "+")
_QWEN_35 = "|".join(
    [
        _CONTRACTIONS,
        _START + r"[\p{L}\p{M}]+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        _SPACES,
    ]
)
_GPT_4O = "|".join(
    [
        f"{_START}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?",
        f"{_START}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _SPACES,
    ]
)
_TEKKEN = "|".join(
    [
        f"{_START}{_UPPER}*{_LOWER}+",
        f"{_START}{_UPPER}+{_LOWER}*",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _SPACES,
    ]
)

_CHINESE_AND_KOREAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# DeepSeek's own list of letters that have a case: not quite Unicode's.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _CHINESE_AND_KOREAN,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE_AND_KOREAN, r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "|".join(
        [
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
            r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
            r" ?[\p{P}\p{S}]+[\r\n]*",
            _SPACES,
        ]
    ),
)

_BLOOM = " ?[^(\\s|.,!?)\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c]+"

_WORDS = PreTokenizer((GPT_2,))
_WORDS_AND_DIGITS = PreTokenizer((r"\p{N}", GPT_2))
_LONGER_NUMBERS = PreTokenizer((_LLAMA_3,))
_LLAMA = PreTokenizer((_LLAMA_3,), ignore_merges=True, adds_bos=True)
_DIGITS = PreTokenizer((_QWEN_2,))
_O200K = PreTokenizer((_GPT_4O,))
_V3 = PreTokenizer(_DEEPSEEK_V3)

DEFAULT = "default"  # of files that name no rule, too
PRE_TOKENIZERS = {
    DEFAULT: PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ["gpt-2", "phi-2", "mpt", "olmo", "exaone4", "trillion", "jais", "gigachat", "a.x-4.0"],
        _WORDS,
    ),
    **dict.fromkeys(["mellum", "granite-docling"], _WORDS),
    "mellum2": _WORDS_AND_DIGITS,
    **dict.fromkeys(
        ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        _WORDS_AND_DIGITS,
    ),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT_2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "pixtral", "midm-2.0"],
        _LLAMA,
    ),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _MINICPM_5), ignore_merges=True),
    **dict.fromkeys(["poro-chat", "bloom", "gpt3-finnish"], PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    **dict.fromkeys(["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], _LONGER_NUMBERS),
    "qwen2": PreTokenizer((_QWEN_2,), is_nfc=True),
    "qwen35": PreTokenizer((_QWEN_35,), is_nfc=True),
    **dict.fromkeys(["deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "kormo"], _DIGITS),
    **dict.fromkeys(["f2llmv2", "grok-2", "solar-open"], _DIGITS),
    "seed-coder": PreTokenizer((_SEED_CODER,)),
    **dict.fromkeys(["gpt-4o", "llama4", "kanana2", "minimax-m2"], _O200K),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
    **dict.fromkeys(["deepseek-v3", "hunyuan-dense"], _V3),
}
