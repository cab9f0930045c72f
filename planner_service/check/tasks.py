"""Rules of the compute actions: each where its chunk lives, none twice, one at a time on a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner_service.check.cut import Cut
    from planner_service.check.facts import Facts
    from planner_service.check.partition import Layout

FORWARD = pb.ACTION_KIND_FORWARD
BACKWARD = pb.ACTION_KIND_BACKWARD
INPUT_HALF = pb.ACTION_KIND_BACKWARD_INPUT
WEIGHT_HALF = pb.ACTION_KIND_BACKWARD_WEIGHT
COMPUTE = frozenset((FORWARD, BACKWARD, INPUT_HALF, WEIGHT_HALF))
TRANSFERS = frozenset(
    (
        pb.ACTION_KIND_SEND_ACTIVATION,
        pb.ACTION_KIND_RECV_ACTIVATION,
        pb.ACTION_KIND_SEND_GRADIENT,
        pb.ACTION_KIND_RECV_GRADIENT,
    )
)


class Task(NamedTuple):
    """One stage task."""

    kind: int
    sub: int
    chunk: int

    def __str__(self) -> str:
        name = pb.ActionKind.Name(pb.ActionKind.ValueType(self.kind)).removeprefix("ACTION_KIND_").lower()
        return f"{name} of sub-microbatch {self.sub}, chunk {self.chunk}"


class Placed(NamedTuple):
    """Where a plan runs a task: the action, its rank, and its position there."""

    action: pb.Action
    rank: int
    position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedules:
    """What a plan runs.

    Parameters
    ----------
    actions
        All actions, by rank.
    tasks
        The compute actions by what they compute.
    """

    actions: Mapping[int, Sequence[pb.Action]]
    tasks: Mapping[Task, Placed]

    def gradient_of(self, sub: int, chunk: int) -> Task | None:
        """Find the task after which the chunk before has its gradient: a whole backward or an input half."""
        for kind in (BACKWARD, INPUT_HALF):
            task = Task(kind, sub, chunk)
            if task in self.tasks:
                return task
        return None


def check_tasks(
    facts: Facts, layout: Layout, cut: Cut, listed: Sequence[pb.RankSchedule], faults: list[str]
) -> Schedules:
    """Collect the faults of ranks and of their compute actions; return the actions."""
    actions: dict[int, Sequence[pb.Action]] = {}
    for schedule in listed:
        if schedule.rank in actions:
            faults.append(f"rank {schedule.rank} has two schedules")
        actions[schedule.rank] = schedule.actions
    if sorted(actions) != list(range(facts.ranks)):
        faults.append(f"there are schedules of ranks {sorted(actions)}, not of 0 to {facts.ranks - 1}")
    tasks: dict[Task, Placed] = {}
    for rank, of_rank in actions.items():
        _check_rank(rank, of_rank, layout, cut, tasks, faults)
    return Schedules(actions=actions, tasks=tasks)


def _check_rank(
    rank: int,
    actions: Sequence[pb.Action],
    layout: Layout,
    cut: Cut,
    tasks: dict[Task, Placed],
    faults: list[str],
) -> None:
    free_us = 0
    for position, action in enumerate(actions):
        if action.kind in TRANSFERS:
            continue
        if action.kind not in COMPUTE or not _belongs(action, rank, layout, cut):
            faults.append(
                f"rank {rank}, action {position}: kind {action.kind} of sub-microbatch {action.sub_microbatch}, chunk "
                f"{action.chunk} of {action.module!r} does not belong here"
            )
            continue
        task = Task(action.kind, action.sub_microbatch, action.chunk)
        if task in tasks:
            faults.append(f"rank {rank}, action {position}: {task} is there twice")
        if action.start_us < free_us:
            faults.append(
                f"rank {rank}, action {position} starts at {action.start_us}, the rank is busy until {free_us}"
            )
        free_us = max(free_us, action.end_us)
        tasks[task] = Placed(action, rank, position)


def _belongs(action: pb.Action, rank: int, layout: Layout, cut: Cut) -> bool:
    sub = cut.subs.get(action.sub_microbatch)
    if sub is None or sub.module != action.module:
        return False
    chunks = layout[sub.module]
    return 0 <= action.chunk < len(chunks) and chunks[action.chunk].rank == rank
