"""The chat page behind a proxy that is set up as docs/server.md shows."""

from __future__ import annotations

import re

from inferno.client.scripted import ScriptedClient
from tests.docs.pages import section
from tests.server.hosting import hosting


def test_the_page_may_ask_through_the_proxy_that_is_shown() -> None:
    text = section("docs/server.md", "## In production")
    said = re.search(r"proxy_set_header Host (\S+);", text)
    allowed = re.search(r"`--allowed-host (\S+)`:\n", text)
    assert said
    name = allowed[1] if allowed else "chat.example"
    sent = {"host": said[1].replace("$http_host", name), "origin": f"https://{name}"}
    with hosting(ScriptedClient, allowed_hosts=(name,) if allowed else ()) as host:
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        answer = host.http.post("/v1/chat/completions", json=body, headers=sent)
        assert answer.status_code == 200, answer.text
