"""More requests than there are places."""

from __future__ import annotations

import threading
import time

from inferno.client.scripted import Answer, Script
from tests.server.http.serving import Answered, serving

SLOW = Answer(token_ids=(7,), is_endless=True, delay=0.005)


def test_the_excess_is_sent_away_and_the_others_are_served() -> None:
    with serving(Script(answers=(SLOW,), max_num_seqs=4), max_queue=4) as server:
        answers: list[Answered] = []

        def ask() -> None:
            answer = server.ask("POST", "/v1/completions", {"max_tokens": 200})
            answers.append(answer)

        first = [threading.Thread(target=ask) for _ in range(8)]
        for thread in first:
            thread.start()
        while server.metric("inferno_http_requests_open") < 8:
            time.sleep(0.01)
        refused = [server.ask("POST", "/v1/completions", {}) for _ in range(72)]
        for thread in first:
            thread.join()
        assert {(each.status, each.code) for each in refused} == {(503, "queue_full")}
        assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
        assert [answer.body.count(b"data: 1") for answer in answers] == [200] * 8
        assert server.metric('inferno_rejected_total{reason="queue_full"}') == 72
        assert server.metric('inferno_kv_blocks{state="used"}') == 0
