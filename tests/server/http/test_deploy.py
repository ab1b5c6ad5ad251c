"""The dashboard and the alerts ask only for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from inferno.client import EngineState
from tests.server.http.direct import ask, in_middleware

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[3] / "deploy"


def exposed_names() -> set[str]:
    """Return the names under which Prometheus knows what a server exposes."""
    text = ask(in_middleware(), "GET", "/metrics").body.decode()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    parts = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    return {name + part for name, kind in families.items() for part in parts.get(kind, ("",))}


def test_the_dashboard_asks_for_metrics_that_are_exposed() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"inferno_[a-z0-9_]+", target["expr"])
    }
    assert len(asked) > 15
    assert asked <= exposed_names()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_alerts_ask_for_metrics_that_are_exposed() -> None:
    [group] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    rules = group["rules"]
    asked = {name for rule in rules for name in re.findall(r"inferno_[a-z0-9_]+", rule["expr"])}
    assert len(asked) >= 7
    assert asked <= exposed_names()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["annotations"]["summary"] for rule in rules)
    states = {
        state
        for rule in rules
        for state in re.findall(r'engine_state\{state="(\w+)"', rule["expr"])
    }
    assert states
    assert states <= set(EngineState)
    text = (DEPLOY / "prometheus.yml").read_text()
    assert yaml.safe_load(text)["rule_files"] == ["alerts.yml"]
    [scraped] = yaml.safe_load(text)["scrape_configs"]
    assert f'job="{scraped["job_name"]}"' in rules[0]["expr"]
