"""The catalogue as it is read by people: each metric under the name that Prometheus has it by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics import MetricWrapperBase

from planner_service.metrics import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIX: Final = {"counter": "_total", "info": "_info"}
_BUILD_LABELS: Final = ("version", "python")


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """One metric of the planner.

    Parameters
    ----------
    name
        As it stands in queries; of a histogram without ``_bucket``, ``_sum`` and ``_count``.
    kind
        counter, gauge or histogram.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def described() -> Iterator[Described]:
    """Describe the planner's own metrics, in the order in which the catalogue has them."""
    for metric in vars(catalogue).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            yield Described(
                name=family.name + _SUFFIX.get(family.type, ""),
                kind="gauge" if family.type == "info" else family.type,
                labels=tuple(metric._labelnames) or (_BUILD_LABELS if metric is catalogue.BUILD else ()),
                help=family.documentation,
            )


def table() -> str:
    """Make a Markdown table, one line a metric."""
    lines = ["| metric | type | labels | what it tells |", "| --- | --- | --- | --- |"]
    for metric in described():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"
