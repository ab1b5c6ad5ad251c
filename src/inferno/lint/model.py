"""All findings about a model's files, from its config to its chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inferno.errors import ModelError, TokenizerError
from inferno.lint.checks import Finding, Level
from inferno.lint.template import template_findings
from inferno.lint.tokens import Tokens, token_findings
from inferno.model_files import CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG, ModelFiles, model_files
from inferno.text.chat import load_chat_template
from inferno.text.generation_config import default_params, eos_token_ids
from inferno.text.parsers.choose import choose_dialect, ending_ids
from inferno.text.special_tokens import NamedTokens, read_named_tokens
from inferno.text.tokenizer import Tokenizer, load_tokenizer

_ORDER = list(Level)
_REALISTIC = 10**9  # positions; a tokenizer's model_max_length above it means that nobody set it
# What transformers follows of generation_config.json and inferno doesn't, with the value that means
# nothing; what names a task, a cache or an output's form changes no text.
_IGNORED: Mapping[str, object] = {
    "num_beams": 1,
    "penalty_alpha": 0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "bad_words_ids": None,
    "force_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "forced_decoder_ids": None,
    "exponential_decay_length_penalty": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "stop_strings": None,
    "typical_p": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "top_h": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "dola_layers": None,
}


def lint_model(
    path: Path, refusal: str | None = None, *, chat_template: Path | None = None
) -> list[Finding]:
    """Return what is wrong with the files of a model, the worst first.

    path           a folder or a GGUF file.
    refusal        why the engine doesn't load it, if it doesn't.
    chat_template  a file whose template takes the place of the model's own.
    """
    found = list(_findings(path, refusal, chat_template))
    return sorted(found, key=lambda finding: _ORDER.index(finding.level))


def _findings(path: Path, refusal: str | None, instead: Path | None) -> Iterator[Finding]:
    if refusal is not None:
        yield Finding("model", refusal)
    try:
        files = model_files(path)
        config = files.json(CONFIG, error=ModelError)
    except ModelError as problem:
        if refusal is None:
            yield Finding("model", str(problem))
        return
    yield from _config_findings(config, files)
    try:
        tokenizer = load_tokenizer(files)
    except ModelError as problem:
        yield Finding("tokenizer", str(problem))
        return
    own = tokenizer.eos_token_id
    ends = frozenset([] if own is None else [own])
    try:
        ends = eos_token_ids(files, tokenizer)
        default_params(files)
    except ModelError as problem:
        yield Finding("generation config", str(problem))
    yield from _ignored_defaults(_json(files, GENERATION_CONFIG))
    yield from _about_text(path, files, config, tokenizer, ends, instead)


def _about_text(
    path: Path,
    files: ModelFiles,
    config: dict[str, object],
    tokenizer: Tokenizer,
    ends: frozenset[int],
    instead: Path | None,
) -> Iterator[Finding]:
    try:
        template = load_chat_template(files, tokenizer, instead)
        named = read_named_tokens(files)
    except ModelError as problem:
        yield Finding("template", str(problem))
        template, named = None, None
    source = "" if template is None else template.source
    ends |= ending_ids(choose_dialect(source, tokenizer), tokenizer)
    texts = {} if named is None else {name: one.content for name, one in named.named.items()}
    tokens = Tokens(tokenizer=tokenizer, named=texts, ends=ends)
    try:
        yield from token_findings(tokens, config, _json(files, GENERATION_CONFIG), path)
        if named is not None:
            yield from _differing_files(files, named, tokens)
        if template is not None:
            yield from template_findings(template, tokens)
        elif named is not None:
            yield Finding("no template", "there is no chat template")
    except TokenizerError as problem:
        yield Finding("text is lost", str(problem))
    finally:
        if template is not None:
            template.close()


def _config_findings(config: Mapping[str, Any], files: ModelFiles) -> Iterator[Finding]:
    """Yield what is odd in a config though the engine takes it; what it refuses it tells itself."""
    context = config.get("max_position_embeddings")
    if type(context) is not int:
        return
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if isinstance(scaling, dict) and "yarn" in (scaling.get("rope_type"), scaling.get("type")):
        yield from _yarn(scaling, context)
    if (own := _tokenizer_context(files)) is not None and own < context:
        yield Finding(
            "tokenizer's context",
            f"tokenizer_config.json's model_max_length is {own}, and config.json has "
            f"{context} positions",
        )


def _yarn(scaling: Mapping[str, Any], context: int) -> Iterator[Finding]:
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if not isinstance(factor, int | float) or type(original) is not int:
        return
    if not (0 < factor <= _REALISTIC and 0 < original <= _REALISTIC):
        return  # the engine refuses what can't be
    if context > factor * original:
        yield Finding(
            "context",
            f"config.json has {context} positions, and YaRN stretches {original} by {factor:g} to "
            f"{int(factor * original)}",
        )


def _differing_files(files: ModelFiles, named: NamedTokens, tokens: Tokens) -> Iterator[Finding]:
    """Yield where tokenizer_config.json says of tokens what tokenizer.json doesn't."""
    for token_id, token in named.by_id.items():
        found = tokens.name_of(token_id)
        if found != token.content:
            other = "no token" if found is None else f"{found!r:.40}"
            yield Finding(
                "ids differ",
                f"token {token_id} is {token.content!r:.40} in tokenizer_config.json, and "
                f"{other} in tokenizer.json",
            )
            break  # where one is wrong, all behind it may be
    is_asked = _json(files, TOKENIZER_CONFIG).get("add_bos_token")
    if tokens.bos_id is not None and type(is_asked) is bool and is_asked != tokens.adds_bos:
        writes = "writes none" if is_asked else "writes one"
        yield Finding("add_bos_token", f"it is {is_asked}, and tokenizer.json {writes}")


def _tokenizer_context(files: ModelFiles) -> int | None:
    value = _json(files, TOKENIZER_CONFIG).get("model_max_length")
    return value if type(value) is int and 0 < value <= _REALISTIC else None


def _json(files: ModelFiles, name: str) -> Mapping[str, Any]:
    """Return the content of a file; empty without one, or where another finding tells of it."""
    try:
        return files.json(name, error=ModelError) if files.has(name) else {}
    except ModelError:
        return {}


def _ignored_defaults(generation: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what a model's defaults would change in a text if inferno followed them."""
    greedy = generation.get("do_sample") is False and generation.get("temperature") != 0
    found = {"do_sample": False} if greedy else {}
    for key, without_effect in _IGNORED.items():
        value = generation.get(key)
        if value is not None and value != [] and value != without_effect:
            found[key] = value
    if found:
        listed = ", ".join(f"{key} {value!r:.40}" for key, value in found.items())
        yield Finding("ignored defaults", f"generation_config.json sets {listed}")
