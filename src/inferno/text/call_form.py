"""Find the form in which a chat template takes the tool calls of a conversation.

Clients of HTTP send the arguments of a call as a text. Many templates write arguments with
`tojson`, or loop over them, and so want an object; others want the text.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from inferno.errors import InvalidRequest
from inferno.untrusted_json import Malformed, parse_object

_ARGUMENTS = r"""\barguments['"]?\]?\s*"""
_TAKES_BOTH = re.compile(_ARGUMENTS + r"is (?:not )?(?:string|mapping)")
_TAKES_TEXT = re.compile(_ARGUMENTS + r"(?:[+~]|-?\}\})")
_GOES_THROUGH = re.compile(_ARGUMENTS + r"(?:\|\s*items|\.items\(\))")
_TAKES_NULL = re.compile(r"""\bcontent['"]?\]?\s+is (?:not )?none""")
_SHORT_ID_LENGTH = 9
_WANTS_SHORT_IDS = re.compile(rf"length\s*!=\s*{_SHORT_ID_LENGTH}\b")
_SHORT_ID = re.compile(rf"[A-Za-z0-9]{{{_SHORT_ID_LENGTH}}}")
_LETTERS = string.ascii_letters + string.digits
MAX_DEPTH = 64  # of JSON in a conversation


@dataclass(frozen=True, slots=True)
class CallForm:
    """The form in which a template takes tool calls; by default, unchanged.

    wants_object    the arguments as an object, where the JSON is one.
    needs_object    the template loops over the arguments, which must be an object.
    wants_text      the arguments as a text.
    wants_short_ids ids of nine letters and digits: Mistral's.
    takes_null      a message without text gets None as content; other templates want an empty text.
    """

    wants_object: bool = False
    needs_object: bool = False
    wants_text: bool = False
    wants_short_ids: bool = False
    takes_null: bool = False

    def apply(self, message: dict[str, Any], where: str) -> None:
        """Bring a message's calls, or the id of the call that it answers, into the template's form.

        Raises InvalidRequest where arguments must be an object but aren't one.
        """
        if not message.get("tool_calls", True):
            del message["tool_calls"]  # templates ask whether there is a list
        for index, call in enumerate(message.get("tool_calls", ())):
            function = call.get("function", call)
            if "arguments" in function:
                place = f"{where}.tool_calls[{index}].function.arguments"
                function["arguments"] = self._arguments(function["arguments"], place)
            self._shorten(call, "id")
        self._shorten(message, "tool_call_id")

    def _arguments(self, given: object, where: str) -> object:
        if isinstance(given, str) and self.wants_object:
            try:
                return _parsed(given) if given.strip() else {}
            except (Malformed, UnicodeEncodeError) as problem:
                if not self.needs_object:
                    return given
                raise InvalidRequest(
                    f"{where} must be a JSON object for this model's chat template ({problem})",
                    param="messages",
                ) from None
        if isinstance(given, dict) and self.wants_text:
            return json.dumps(given, ensure_ascii=False)
        return given

    def _shorten(self, holder: dict[str, Any], key: str) -> None:
        given = holder.get(key)
        if self.wants_short_ids and isinstance(given, str) and not _SHORT_ID.fullmatch(given):
            # From the same id the same one, so that a result finds its call.
            digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
            letters = (_LETTERS[byte % len(_LETTERS)] for byte in digest[:_SHORT_ID_LENGTH])
            holder[key] = "".join(letters)


def _parsed(arguments: str) -> dict[str, Any]:
    """Return the object that a text of arguments is; raise Malformed where it is none."""
    parsed = parse_object(arguments.encode())
    level: list[object] = [parsed]
    for _ in range(MAX_DEPTH + 1):
        level = [item for each in level for item in _items(each)]
        if not level:
            return parsed
    raise Malformed(f"it is nested deeper than {MAX_DEPTH} levels")


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


@lru_cache(maxsize=8)  # of the model, and of requests that bring their own
def call_form(template: str) -> CallForm:
    """Return how a template takes calls, by how it uses arguments and ids."""
    takes_both = _TAKES_BOTH.search(template) is not None
    takes_text = not takes_both and _TAKES_TEXT.search(template) is not None
    wants_object = not takes_both and not takes_text
    return CallForm(
        wants_object=wants_object,
        needs_object=wants_object and _GOES_THROUGH.search(template) is not None,
        wants_text=takes_text,
        wants_short_ids=_WANTS_SHORT_IDS.search(template) is not None,
        takes_null=_TAKES_NULL.search(template) is not None,
    )
