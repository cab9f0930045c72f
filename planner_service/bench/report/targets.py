"""What is aimed at, and what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner_service.bench.case import CLEARED, GIVEN, HALVED
from planner_service.bench.ours import OURS, OURS_WHOLE
from planner_service.bench.papers import AS_WRITTEN, TUNED
from planner_service.bench.peers import TORCH_PREFIX
from planner_service.bench.report.query import by_batch, gains, mean, median, pick, worst
from planner_service.bench.report.speed import seconds_to_within
from planner_service.bench.report.text import NONE, percent, plain, table
from planner_service.bench.settings import PLAIN_MIXES
from planner_service.bench.suites.latency import DECODE_US, FIRST_PLAN_MS, OUTSIDE_SEARCH_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner_service.bench.case import Row
    from planner_service.bench.result import Result

SHARE, SECONDS, MILLISECONDS, MICROSECONDS = "", "s", "ms", "us"
VLM, T2V = ("vlm-s", "vlm-m", "vlm-l"), ("t2v-s", "t2v-l")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One figure that is aimed at.

    Parameters
    ----------
    what
        In words.
    least, aim
        What it must reach, and what it should; no aim: more is better.
    measured
        The figure in a result; None where it was not measured.
    unit
        Of the figures; SHARE: they are shown in percent.
    more
        Whether more is better.
    """

    what: str
    least: float
    aim: float | None
    measured: Callable[[Result], float | None]
    unit: str = SHARE
    more: bool = False

    def met(self, value: float | None) -> str:
        """Say whether a figure reaches the aim, or else the least."""
        if value is None:
            return NONE
        if self.aim is not None and self._reaches(value, self.aim):
            return "aim"
        return "yes" if self._reaches(value, self.least) else "no"

    def _reaches(self, value: float, goal: float) -> bool:
        return value >= goal if self.more else value <= goal

    def shown(self, value: float | None) -> str:
        """Write a figure."""
        if value is None:
            return NONE
        if self.unit == SHARE:
            return percent(value, signed=self.more)
        return f"{plain(value, 2 if self.unit == SECONDS else 0)} {self.unit}"


def _rows(result: Result) -> list[Row]:
    return pick(result.rows("paper"), mix=PLAIN_MIXES)


def _ours(column: str, *, method: str, memory: str, **equal: Any) -> Callable[[Result], list[float]]:
    """Return what reads a column of our plans."""

    def read(result: Result) -> list[float]:
        return list(by_batch(_rows(result), column, method=method, memory=memory, **equal).values())

    return read


def _gains(of: str, over: Callable[[str], bool], memory: str, **equal: Any) -> Callable[[Result], list[float]]:
    """Return what compares one of our methods with the best of others on each batch."""

    def read(result: Result) -> list[float]:
        rows = pick(_rows(result), memory=memory, **equal)
        others = [row for row in rows if over(str(row["method"]))]
        return gains(by_batch(rows, method=of), by_batch(others))

    return read


def _lowest(values: Sequence[float]) -> float | None:
    return min(values, default=None)


def _of(
    reduce: Callable[[Sequence[float]], float | None], read: Callable[[Result], list[float]]
) -> Callable[[Result], float | None]:
    return lambda result: reduce(read(result))


def _is(name: str) -> Callable[[str], bool]:
    return lambda method: method == name


def _torch(method: str) -> bool:
    return method.startswith(TORCH_PREFIX)


def _latency(what: str) -> Callable[[Result], float | None]:
    """Return what reads a latency; of several instances, the worst."""

    def read(result: Result) -> float | None:
        rows = pick(result.rows("latency"), what=what)
        return worst(list(by_batch(rows, "value").values()))

    return read


_CLEARED = _ours("over_ideal", method=OURS, memory=CLEARED)
_GIVEN = _ours("over_ideal", method=OURS, memory=GIVEN)
_VLM_L_WEB = _ours("over_ideal", method=OURS, memory=GIVEN, config="vlm-l", mix="web")
_TUNED = _gains(OURS_WHOLE, _is(TUNED), GIVEN)
_MEGATRON = _is("megatron-interleaved")

TARGETS = (
    Target(
        what="over the ideal, backward split, memory limits cleared: median",
        least=0.03,
        aim=0.015,
        measured=_of(median, _CLEARED),
    ),
    Target(what="the same: worst", least=0.06, aim=0.04, measured=_of(worst, _CLEARED)),
    Target(what="over the ideal, memory as given: median", least=0.05, aim=0.03, measured=_of(median, _GIVEN)),
    Target(what="the same: VLM-L web", least=0.15, aim=0.10, measured=_of(median, _VLM_L_WEB)),
    Target(
        what="gap to our own proven bound, limits cleared: backward split",
        least=0.03,
        aim=0.015,
        measured=_of(median, _ours("gap", method=OURS, memory=CLEARED)),
    ),
    Target(
        what="the same: whole",
        least=0.10,
        aim=0.05,
        measured=_of(median, _ours("gap", method=OURS_WHOLE, memory=CLEARED)),
    ),
    Target(
        what="over the paper's method as written, equal CPU time, split allowed to ours",
        least=0.08,
        aim=0.15,
        more=True,
        measured=_of(median, _gains(OURS, _is(AS_WRITTEN), GIVEN)),
    ),
    Target(
        what="over it tuned (our segments and sizes), backward whole: worst batch",
        least=-0.005,
        aim=0.0,
        more=True,
        measured=_of(_lowest, _TUNED),
    ),
    Target(what="the same: average", least=0.01, aim=0.03, more=True, measured=_of(mean, _TUNED)),
    Target(
        what="the same, ours with the backward split: median",
        least=0.03,
        aim=0.06,
        more=True,
        measured=_of(median, _gains(OURS, _is(TUNED), GIVEN)),
    ),
    Target(
        what="the same, memory cut to half",
        least=0.06,
        aim=0.15,
        more=True,
        measured=_of(median, _gains(OURS, _is(TUNED), HALVED)),
    ),
    Target(
        what="throughput over Megatron interleaved by weights: VLM",
        least=1.2,
        aim=None,
        more=True,
        measured=_of(median, _gains(OURS, _MEGATRON, GIVEN, config=VLM)),
    ),
    Target(
        what="the same: T2V",
        least=0.6,
        aim=None,
        more=True,
        measured=_of(median, _gains(OURS, _MEGATRON, GIVEN, config=T2V)),
    ),
    Target(
        what="over the best of torch's own static orders: VLM",
        least=0.30,
        aim=0.50,
        more=True,
        measured=_of(median, _gains(OURS, _torch, GIVEN, config=VLM)),
    ),
    Target(
        what="the same: T2V",
        least=0.17,
        aim=0.30,
        more=True,
        measured=_of(median, _gains(OURS, _torch, GIVEN, config=T2V)),
    ),
    Target(
        what="time to within 1% of what a run 60 times as long finds, 1,000 stage tasks",
        least=1.5,
        aim=0.5,
        unit=SECONDS,
        measured=lambda result: seconds_to_within(result, "1,000 tasks"),
    ),
    Target(
        what="the same, 2,500 stage tasks (VLM-S, 64 microbatches)",
        least=4.0,
        aim=1.5,
        unit=SECONDS,
        measured=lambda result: seconds_to_within(result, "2,500 tasks"),
    ),
    Target(
        what="first valid plan, 2,500 stage tasks, building the problem included",
        least=200,
        aim=50,
        unit=MILLISECONDS,
        measured=_latency(FIRST_PLAN_MS),
    ),
    Target(what="compiled decode of 1,000 tasks", least=60, aim=25, unit=MICROSECONDS, measured=_latency(DECODE_US)),
    Target(
        what="planning from request bytes to plan bytes outside of the search, 2,500 tasks",
        least=150,
        aim=60,
        unit=MILLISECONDS,
        measured=_latency(OUTSIDE_SEARCH_MS),
    ),
)


def summary(result: Result) -> list[dict[str, Any]]:
    """Return all targets with what was measured, as they stand in a result file."""
    lines = []
    for target in TARGETS:
        value = target.measured(result)
        lines.append(
            {
                "what": target.what,
                "measured": None if value is None else round(value, 4),
                "at_least": target.least,
                "aim": target.aim,
                "unit": target.unit,
                "met": target.met(value),
            }
        )
    return lines


def targets_table(result: Result) -> str:
    """All targets that were measured."""
    lines = []
    for target in TARGETS:
        value = target.measured(result)
        if value is not None:
            aim = "more" if target.aim is None else target.shown(target.aim)
            lines.append((target.what, target.shown(value), target.shown(target.least), aim, target.met(value)))
    return table(("what", "measured", "at least", "aim", "met"), lines)
