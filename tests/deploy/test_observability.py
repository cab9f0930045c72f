"""Shows that the dashboard and the alert rules can be loaded, and use only metrics and labels that the planner has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from needed import needs
from observability_files import ALERTS, dashboard, expressions, panels, rules, selectors

from planner_service.metrics.catalogue import REGISTRY
from planner_service.metrics.table import described

needs_promtool = needs("promtool")

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

OF_TARGETS = {"job", "instance"}
"""Labels that Prometheus adds to all that it reads of one target."""

NAME = re.compile(r"\b(?:dip|process)_[a-z0-9_]+\b")
GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


def metrics() -> dict[str, set[str]]:
    """Labels of each name that queries may use."""
    found = {family.name: set(OF_TARGETS) for family in REGISTRY.collect() if family.name.startswith("process_")}
    found["process_cpu_seconds_total"] = found.pop("process_cpu_seconds")
    for metric in described():
        labels = OF_TARGETS | set(metric.labels)
        if metric.kind == "histogram":
            found |= {
                metric.name + "_bucket": labels | {"le"},
                metric.name + "_sum": labels,
                metric.name + "_count": labels,
            }
        else:
            found[metric.name] = labels
    return found


METRICS = metrics()


EXPRESSIONS = list(expressions())
IDS = [where for where, _ in EXPRESSIONS]


def unknown(expression: str) -> list[str]:
    """What a query uses that the planner does not have."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    used = {name for name in NAME.findall(bare) if name in METRICS}
    wrong = [f"metric {name}" for name in NAME.findall(bare) if name not in METRICS]
    for selector in selectors(expression):
        known = METRICS.get(selector.name, set())
        wrong += [f"label {label} of {selector.name}" for label, _, _ in selector.matchers if label not in known]
    shared = set.intersection(*(METRICS[name] for name in used)) if used else set()
    for grouping in GROUPING.findall(bare):
        wrong += [f"grouping by {label}" for label in re.findall(r"[a-z_]+", grouping) if label not in shared]
    return wrong


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=IDS)
def test_query_uses_what_there_is(where: str, expression: str) -> None:
    assert unknown(expression) == []
    assert NAME.search(expression), f"{where} asks for nothing of the planner"


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("max(dip_queue_batchs)", ["metric dip_queue_batchs"]),
        ("rate(dip_calls[5m])", ["metric dip_calls"]),
        ('dip_calls_total{status="OK"}', ["label status of dip_calls_total"]),
        ("sum by (job_id) (dip_open_streams)", ["grouping by job_id"]),
        ("histogram_quantile(0.9, sum by (le) (rate(dip_batch_duration_seconds_sum[5m])))", ["grouping by le"]),
    ],
)
def test_check_finds(expression: str, wrong: list[str]) -> None:
    assert unknown(expression) == wrong


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=IDS)
def test_counters_are_read_as_rates_and_gauges_are_not(where: str, expression: str) -> None:
    for name in NAME.findall(expression):
        grows = name.endswith(("_total", "_bucket", "_sum", "_count"))
        as_rate = re.search(rf"\b(rate|increase)\({name}\b", expression)
        assert grows == bool(as_rate) or expression.startswith("label_values"), f"{where}: {name}"


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=IDS)
def test_what_each_planner_tells_of_the_store_is_not_added_up(where: str, expression: str) -> None:
    for name in ("dip_queue_batches", "dip_queue_claimed_batches", "dip_queue_oldest_age_seconds"):
        if name in expression:
            assert re.search(rf"max( by \([a-z, ]+\))? ?\({name}", expression), where
    if "dip_job_" in expression:
        assert re.search(r"(min|max) by \(job_id[a-z, ]*\) \(dip_job_", expression), where


def test_dashboard_can_be_imported_anywhere() -> None:
    loaded = dashboard()
    assert loaded["schemaVersion"] >= 39
    assert "id" not in loaded  # Grafana's own number of it in one database
    assert [variable["name"] for variable in loaded["templating"]["list"]] == ["datasource", "target", "job"]
    for panel in panels():
        assert {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])} == {
            "${datasource}"
        }
    ids = [panel["id"] for panel in loaded["panels"]]
    assert len(ids) == len(set(ids))


def test_dashboard_has_the_rows_that_operators_look_for() -> None:
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == [
        "Are plans in time?",
        "Planning",
        "Queue and scaling",
        "Fallbacks",
        "Health of the process",
        "Calls and refusals",
    ]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_each_metric_is_on_the_dashboard_or_watched() -> None:
    asked = " ".join(expression for _, expression in EXPRESSIONS)
    names = {name for name in METRICS if name.startswith("dip_") and not name.endswith(("_sum", "_count"))}
    assert {name for name in names if not re.search(rf"\b{name}\b", asked)} == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert f"\n### {rule['alert']}\n" in RUNBOOK.read_text()
    assert rule["annotations"]["runbook"] == f"docs/metrics.md#{rule['alert'].lower()}"
    # What is shown must be a label that the query leaves over.
    shown = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
    grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
    kept = {label for labels in grouped for label in re.findall(r"[a-z_]+", labels)}
    if not grouped:
        kept = set.intersection(*(METRICS[name] for name in NAME.findall(rule["expr"])))
    assert shown <= kept


def test_runbook_tells_of_no_alert_that_is_not_there() -> None:
    told = re.findall(r"^### (Dip\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert told == [rule["alert"] for rule in rules()]


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
def test_prometheus_takes_the_queries(tmp_path: Path) -> None:
    """As recording rules, which promtool parses; Grafana fills its variables in before."""
    written = []
    for number, panel in enumerate(panels()):
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m").replace("$target", ".*").replace("$job", ".*")
            written.append({"record": f"panel_{number}_{target['refId']}", "expr": expression})
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": written}]}))
    checked = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
def test_alerts_fire_on_what_they_are_for() -> None:
    tests = Path(__file__).with_name("prometheus-alerts-test.yaml")
    checked = subprocess.run(["promtool", "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_has_a_series_that_it_fires_on() -> None:
    tests = yaml.safe_load(Path(__file__).with_name("prometheus-alerts-test.yaml").read_text())["tests"]
    expected = {
        sample["labels"] for test in tests for case in test["promql_expr_test"] for sample in case["exp_samples"]
    }
    assert {f'{{alertname="{rule["alert"]}"}}' for rule in rules()} <= expected
