"""Picks rows and compares what belongs to one batch."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planner_service.bench.case import Row


class BatchKey(NamedTuple):
    """What makes rows comparable: the same batch."""

    config: str
    mix: str
    seed: int
    microbatches: int


def key_of(row: Row) -> BatchKey:
    """Batch of a row."""
    return BatchKey(str(row["config"]), str(row["mix"]), number(row, "seed"), number(row, "microbatches"))


def number(row: Row, column: str) -> int:
    """Whole number in a column."""
    return int(cast("int", row[column]))


def pick(rows: Iterable[Row], **equal: Any) -> list[Row]:
    """Rows that have these values; of a tuple, any of them."""
    return [
        row
        for row in rows
        if all(row.get(name) in (value if isinstance(value, tuple) else (value,)) for name, value in equal.items())
    ]


def by_batch(rows: Iterable[Row], column: str = "makespan_us", **equal: Any) -> dict[BatchKey, float]:
    """Value of a column for each batch; the least where there are several rows. What does not fit has none."""
    found: dict[BatchKey, float] = {}
    for row in pick(rows, **equal):
        if row.get(column) is not None:
            value = float(cast("float", row[column]))
            found[key_of(row)] = min(value, found.get(key_of(row), value))
    return found


def gains(of: Mapping[BatchKey, float], over: Mapping[BatchKey, float]) -> list[float]:
    """How much more throughput one has over another, on each batch that both have: 0.1 is 10% more."""
    return [over[key] / of[key] - 1 for key in of if key in over and of[key]]


def median(values: Sequence[float]) -> float | None:
    """Median; None of nothing."""
    return statistics.median(values) if values else None


def worst(values: Sequence[float]) -> float | None:
    """Largest; None of nothing."""
    return max(values, default=None)


def mean(values: Sequence[float]) -> float | None:
    """Mean; None of nothing."""
    return statistics.fmean(values) if values else None
