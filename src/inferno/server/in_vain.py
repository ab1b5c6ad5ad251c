"""The names of a request's parts without effect, for the header x-inferno-ignored."""

from __future__ import annotations

from inferno.server.fields import ChatRequest, GenerateFields, TokenizeRequest
from inferno.text.model_text import ModelText

_OWN_TIERS = ("auto", "default")
_OWN_VERBOSITY = "medium"
_MOST_KEYS = 100  # of messages: more names than the header tells
_ALWAYS_READ = frozenset({"role", "content"})
# A message's reasoning is given to the template under all of its names.
_REASONING = frozenset({"reasoning", "reasoning_content", "thinking"})


def hints_in_vain(fields: GenerateFields) -> tuple[str, ...]:
    """Return the names of hints that ask for something else than what any request gets."""
    is_in_vain = {
        "service_tier": fields.service_tier not in _OWN_TIERS,
        "store": fields.store,
        "verbosity": fields.verbosity not in (None, _OWN_VERBOSITY),
        "session_id": fields.session_id is not None,
    }
    return tuple(name for name, is_so in is_in_vain.items() if is_so)


def chat_in_vain(fields: ChatRequest | TokenizeRequest, text: ModelText) -> tuple[str, ...]:
    """Return the names of fields, template options and message keys that the template ignores."""
    template, names = fields.chat_template, []
    if fields.documents is not None and not text.takes_template_arg("documents", template):
        names.append("documents")
    for name in fields.chat_template_kwargs or {}:
        if not text.takes_template_arg(name, template):
            names.append(f"chat_template_kwargs.{name}")
    given = {
        key
        for message in fields.messages or ()
        for key, value in message.items()
        if value is not None
    }
    for key in sorted(given - _ALWAYS_READ)[:_MOST_KEYS]:
        known = _REASONING if key in _REASONING else {key}
        if not any(text.reads_message_key(each, template) for each in known):
            names.append(f"messages[].{key}")
    return tuple(names)
