"""The requests of a load: prompts of random words or token ids, never the same twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from inferno.bench.load import Endpoint, Load

# Short and common, so that most tokenizers have each as one token.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work number night "
    "point home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member "
    "law car city name team minute idea body back parent face level office door health person art "
    "war history party result change morning reason girl guy moment air teacher force education"
)


def bodies(load: Load) -> Iterator[bytes]:
    """Yield the body of each request, in turn; the same load has the same ones."""
    random = Random(load.seed)
    for _ in range(load.num_requests):
        yield body(load, random)


def body(load: Load, random: Random) -> bytes:
    """Return the JSON body of one request."""
    prompt = _prompt(load, _length(load.prompt_tokens, load, random), random)
    fields: dict[str, Any] = {
        "model": load.model,
        "max_tokens": _length(load.max_tokens, load, random),
        "temperature": load.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.ignore_eos:
        fields["ignore_eos"] = True
    if load.endpoint is Endpoint.CHAT:
        fields["messages"] = [{"role": "user", "content": prompt}]
    else:
        fields["prompt"] = prompt
    return json.dumps(fields).encode()


def _length(usual: int, load: Load, random: Random) -> int:
    return max(1, round(usual * random.uniform(1 - load.spread, 1 + load.spread)))


def _prompt(load: Load, length: int, random: Random) -> str | list[int]:
    if load.vocab_size is None:
        return " ".join(random.choices(_WORDS.split(), k=length))
    return random.choices(range(load.vocab_size), k=length)
