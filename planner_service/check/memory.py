"""Rule of memory: what a rank holds at any time, recomputed from its tasks, is what it states and what it may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from planner_service.check.tasks import BACKWARD, FORWARD, INPUT_HALF, WEIGHT_HALF, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.cut import Cut
    from planner_service.check.durations import Kept
    from planner_service.check.facts import Facts
    from planner_service.check.partition import Layout
    from planner_service.check.tasks import Schedules

_STATED_SLACK_BYTES = 16
_STATED_SLACK_SHARE = 1_000_000


class _Change(NamedTuple):
    """A change of what a rank holds; at one time what ends is freed before what starts is held."""

    at_us: int
    starts: bool
    delta: int


def check_memory(
    facts: Facts,
    layout: Layout,
    cut: Cut,
    schedules: Schedules,
    kept: Mapping[tuple[int, int], Kept],
    listed: Sequence[pb.RankSchedule],
    faults: list[str],
) -> tuple[int, ...]:
    """Collect ranks that hold too much or state another peak; return every rank's peak."""
    changes: list[list[_Change]] = [[] for _ in range(facts.ranks)]
    for (sub, index), sizes in kept.items():
        name = cut.subs[sub].module
        if facts.modules[name].has_backward:
            changes[layout[name][index].rank].extend(_changes(sub, index, sizes, schedules))
    static = _static_bytes(facts, layout)
    stated = {schedule.rank: schedule.peak_memory_bytes for schedule in listed}
    peaks = []
    for rank, limit in enumerate(facts.memory_bytes):
        peak = _peak(static[rank], changes[rank])
        peaks.append(peak)
        if limit and peak > limit:
            faults.append(f"rank {rank} holds {peak} bytes, it may hold {limit}")
        if abs(stated.get(rank, 0) - peak) > _STATED_SLACK_BYTES + peak // _STATED_SLACK_SHARE:
            faults.append(f"rank {rank} states a peak of {stated.get(rank, 0)} bytes, it holds {peak}")
    return tuple(peaks)


def _changes(sub: int, chunk: int, kept: Kept, schedules: Schedules) -> Iterator[_Change]:
    """Yield what one sub-microbatch on one chunk does to its rank's memory, from its forward to its last backward."""
    tasks = schedules.tasks
    yield _Change(tasks[Task(FORWARD, sub, chunk)].action.start_us, True, kept.stored)
    whole = tasks.get(Task(BACKWARD, sub, chunk))
    if whole is not None:
        yield _Change(whole.action.end_us, False, -kept.stored)
        return
    first = tasks[Task(INPUT_HALF, sub, chunk)]
    yield _Change(first.action.start_us, True, kept.split - kept.stored)
    yield _Change(tasks.get(Task(WEIGHT_HALF, sub, chunk), first).action.end_us, False, -kept.split)


def _static_bytes(facts: Facts, layout: Layout) -> list[int]:
    static = [0] * facts.ranks
    for name, chunks in layout.items():
        for chunk in chunks:
            layers = facts.modules[name].layers[chunk.first_layer : chunk.first_layer + chunk.num_layers]
            static[chunk.rank] += sum(layer.static_bytes for layer in layers)
    return static


def _peak(static: int, changes: list[_Change]) -> int:
    held = peak = static
    for change in sorted(changes, key=lambda change: (change.at_us, change.starts)):
        held += change.delta
        peak = max(peak, held)
    return peak
