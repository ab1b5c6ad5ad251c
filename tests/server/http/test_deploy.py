"""The dashboard shows only metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.server.http.direct import ask, in_middleware

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_dashboard_asks_for_metrics_that_are_exposed() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"inferno_[a-z0-9_]+", target["expr"])
    }
    text = ask(in_middleware(), "GET", "/metrics").body.decode()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    parts = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    exposed = {name + part for name, kind in families.items() for part in parts.get(kind, ("",))}
    assert len(asked) > 15
    assert asked <= exposed
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
