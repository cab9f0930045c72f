"""The catalogue as a table in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.metrics import MetricWrapperBase

from planner_service.metrics import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIX: Final = {"counter": "_total", "info": "_info"}
_SHOWN_TYPE: Final = {"info": "gauge"}


def declared() -> Iterator[MetricWrapperBase]:
    """The planner's own metrics, in the order in which the catalogue has them."""
    for value in vars(catalogue).values():
        if isinstance(value, MetricWrapperBase):
            yield value


def table() -> str:
    """One line a metric: its name as Prometheus has it, type, labels, help."""
    lines = ["| metric | type | labels | what it tells |", "| --- | --- | --- | --- |"]
    for metric in declared():
        described = next(iter(metric.describe()))
        name = described.name + _SUFFIX.get(described.type, "")
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        kind = _SHOWN_TYPE.get(described.type, described.type)
        lines.append(f"| `{name}` | {kind} | {labels} | {described.documentation} |")
    return "\n".join(lines) + "\n"
