"""What ran when on each rank, planned or measured: what traces and pictures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPUTE = {
    pb.ACTION_KIND_FORWARD: "forward",
    pb.ACTION_KIND_BACKWARD: "backward",
    pb.ACTION_KIND_BACKWARD_INPUT: "backward, input half",
    pb.ACTION_KIND_BACKWARD_WEIGHT: "backward, weight half",
}
"""Names of the kinds of compute actions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One compute action of one rank.

    Parameters
    ----------
    rank, module, chunk, sub_microbatch
        Which it is.
    microbatch
        Whose sub-microbatch it is.
    units
        Of all instances of the sub-microbatch.
    kind
        One of `COMPUTE`.
    start_us, end_us
        When it ran.
    """

    rank: int
    module: str
    chunk: int
    sub_microbatch: int
    microbatch: int
    units: int
    kind: pb.ActionKind.ValueType
    start_us: int
    end_us: int

    @property
    def is_forward(self) -> bool:
        """Whether it is a forward."""
        return self.kind == pb.ACTION_KIND_FORWARD


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """All compute actions of an iteration.

    Parameters
    ----------
    ranks
        Number of ranks.
    spans
        The actions, rank by rank in the order of their start.
    """

    ranks: int
    spans: tuple[Span, ...]

    @cached_property
    def makespan_us(self) -> int:
        """From 0 to the end of the last action."""
        return max((span.end_us for span in self.spans), default=0)

    @property
    def bubble_share(self) -> float:
        """Share of the ranks' time in which they do not compute."""
        busy = sum(span.end_us - span.start_us for span in self.spans)
        return 1 - busy / (self.ranks * self.makespan_us) if self.makespan_us else 0.0


def planned_timeline(plan: pb.Plan) -> Timeline:
    """Timeline that a plan expects."""
    return _timeline(plan, {schedule.rank: schedule.actions for schedule in plan.ranks})


def measured_timeline(plan: pb.Plan, reports: Sequence[pb.ReportExecutionRequest]) -> Timeline:
    """Timeline that ranks reported of a plan's iteration, each on its own clock; 0 is where each rank's step began.

    Raises
    ------
    ValueError
        If a report is not of a rank of the plan, or of another plan.
    """
    for report in reports:
        if report.plan_digest != plan.digest:
            raise ValueError(f"report of rank {report.rank}: iteration {report.iteration} ran another plan than this")
    return _timeline(plan, {report.rank: report.actions for report in reports})


def _timeline(plan: pb.Plan, actions_of: dict[int, Sequence[pb.Action]]) -> Timeline:
    subs = {sub.id: sub for sub in plan.sub_microbatches}
    strangers = sorted(set(actions_of) - {schedule.rank for schedule in plan.ranks})
    if strangers:
        raise ValueError(f"ranks {strangers}: the plan has {len(plan.ranks)} ranks only")
    spans: list[Span] = []
    for rank in sorted(actions_of):
        of_rank = [
            Span(
                rank=rank,
                module=action.module,
                chunk=action.chunk,
                sub_microbatch=action.sub_microbatch,
                microbatch=subs[action.sub_microbatch].microbatch,
                units=sum(instance.units for instance in subs[action.sub_microbatch].instances),
                kind=action.kind,
                start_us=action.start_us,
                end_us=action.end_us,
            )
            for action in actions_of[rank]
            if action.kind in COMPUTE
        ]
        spans += sorted(of_rank, key=lambda span: (span.start_us, span.end_us))
    return Timeline(ranks=len(plan.ranks), spans=tuple(spans))
