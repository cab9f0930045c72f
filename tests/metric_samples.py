"""Reads values of the planner's metrics, for tests."""

from __future__ import annotations

from planner_service.metrics.catalogue import REGISTRY


def value(name: str, **labels: str) -> float:
    """One sample; 0 where there is none."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def is_there(name: str, **labels: str) -> bool:
    """Whether there is such a sample."""
    return REGISTRY.get_sample_value(name, labels) is not None


def num_series() -> int:
    """How many samples a scrape brings."""
    return sum(len(metric.samples) for metric in REGISTRY.collect())
