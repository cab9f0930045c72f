"""Shows that metrics are named as Prometheus wants it, cannot grow without bounds, and are documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner_service.metrics import catalogue
from planner_service.metrics.table import Described, described, table

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"

BOUNDED = {
    "method": "the contract's",
    "code": "gRPC's",
    "result": "ours",
    "outcome": "ours",
    "task": "ours",
    "kind": "ours",
    "ran": "ours",
    "reason": "ours",
    "error": "ours",
    "certificate": "ours",
    "version": "one",
    "python": "one",
}
METRICS = list(described())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_name_is_a_prometheus_name(metric: Described) -> None:
    assert re.fullmatch(r"dip_[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ms|us|milliseconds|microseconds|mib|percent)(_|$)", metric.name), "base units"
    assert metric.help.endswith(".")
    assert "|" not in metric.help
    if metric.kind == "histogram":
        assert metric.name.endswith(("_seconds", "_ratio"))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_only_jobs_are_named_by_clients(metric: Described) -> None:
    assert set(metric.labels) - {catalogue.JOB} <= BOUNDED.keys()


def test_few_metrics_grow_with_jobs() -> None:
    assert [metric.name for metric in METRICS if catalogue.JOB in metric.labels] == [
        "dip_job_lead_iterations",
        "dip_job_kept_bytes",
        "dip_reports_total",
        "dip_stalled_seconds_total",
    ]


def test_document_has_the_table_as_it_is() -> None:
    assert f"\n{table()}\n" in DOCUMENT.read_text(), "docs/metrics.md is stale: python -m planner_service.metrics"
