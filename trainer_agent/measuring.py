"""When each action ran, on this rank's clock, and what a step came to over all ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist

from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.mesh import Mesh
    from trainer_agent.plans import RankPlan, TakenPlan


class Timeline(Protocol):
    """The clock of one step: 0 is the iteration's start."""

    def begin(self) -> None:
        """Note that an action begins."""

    def end(self) -> None:
        """Note that the action that began last has ended."""

    def spans(self) -> list[tuple[int, int]]:
        """Return start and end of each action in microseconds, in the order of `begin`."""

    def peak_bytes(self) -> int:
        """Return the most memory that was allocated during the step; 0 where it is not known."""


class HostTimeline:
    """Times of actions that run on the host."""

    def __init__(self) -> None:
        self._zero = time.perf_counter_ns()
        self._starts: list[int] = []
        self._ends: list[int] = []

    def begin(self) -> None:
        """Read the clock."""
        self._starts.append(time.perf_counter_ns())

    def end(self) -> None:
        """Read the clock."""
        self._ends.append(time.perf_counter_ns())

    def spans(self) -> list[tuple[int, int]]:
        """Return start and end of each action in microseconds."""
        zero = self._zero
        return [((a - zero) // 1000, (b - zero) // 1000) for a, b in zip(self._starts, self._ends, strict=True)]

    def peak_bytes(self) -> int:
        """Return 0: the host's memory is not tracked."""
        return 0


class CudaTimeline:
    """Times of actions on a CUDA device, from events: the host never waits for them while the step runs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        torch.cuda.reset_peak_memory_stats(device)
        self._zero = self._event()
        self._starts: list[torch.Event] = []
        self._ends: list[torch.Event] = []

    def _event(self) -> torch.Event:
        event = torch.Event(self._device, enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def begin(self) -> None:
        """Record an event."""
        self._starts.append(self._event())

    def end(self) -> None:
        """Record an event."""
        self._ends.append(self._event())

    def spans(self) -> list[tuple[int, int]]:
        """Wait for the device, then return start and end of each action in microseconds."""
        torch.cuda.synchronize(self._device)

        def at_us(event: torch.Event) -> int:
            return int(self._zero.elapsed_time(event) * 1000)

        return [(at_us(a), at_us(b)) for a, b in zip(self._starts, self._ends, strict=True)]

    def peak_bytes(self) -> int:
        """Return the peak that the allocator saw during the step."""
        return torch.cuda.max_memory_allocated(self._device)


def make_timeline(device: torch.device) -> Timeline:
    """Start the clock of a step."""
    return CudaTimeline(device) if device.type == "cuda" else HostTimeline()


def fill_report(
    report: pb.ReportExecutionRequest, actions: Sequence[pb.Action], spans: Sequence[tuple[int, int]]
) -> None:
    """Put the compute actions that ran into a report, with the times that they took."""
    for action, (start_us, end_us) in zip(actions, spans, strict=True):
        made = report.actions.add()
        made.CopyFrom(action)
        made.start_us, made.end_us = start_us, max(start_us, end_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a step came to on all processes, on its way since the step ended; made by `gather`.

    Each process brings the sum of its losses, its last action's end, and the time that it computed.
    """

    mesh: Mesh
    found: Sequence[torch.Tensor]
    work: dist.Work
    loss_scale: float

    @classmethod
    def gather(cls, mesh: Mesh, *, loss_sum: float, loss_scale: float, spans: Sequence[tuple[int, int]]) -> Outcome:
        """Start to exchange; collective over all processes, on the CPU."""
        busy, end = sum(b - a for a, b in spans), max((b for _, b in spans), default=0)
        mine = torch.tensor([loss_sum, end, busy], dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(mesh.ranks * mesh.replicas)]
        with naming(mesh.rank, -1, "loss over all ranks", mesh.timeout):
            work = dist.all_gather(found, mine, group=mesh.world, async_op=True)
        return cls(mesh=mesh, found=found, work=work, loss_scale=loss_scale)

    def wait(self) -> None:
        """Wait until all processes have brought theirs."""
        with naming(self.mesh.rank, -1, "loss over all ranks", self.mesh.timeout):
            self.work.wait()

    @property
    def loss(self) -> float:
        """The normalised loss of the whole batch."""
        self.wait()
        return sum(float(one[0]) for one in self.found) * self.loss_scale

    @property
    def measured_us(self) -> int:
        """When the last action of this replica ended, in microseconds, each rank on its own clock."""
        self.wait()
        return int(max(float(one[1]) for one in self._replica()))

    @property
    def bubble_share(self) -> float:
        """Share of this replica's ranks' time in which they did not compute."""
        measured_us = self.measured_us
        busy = sum(float(one[2]) for one in self._replica())
        return 1.0 - busy / (measured_us * self.mesh.ranks) if measured_us else 0.0

    def _replica(self) -> Sequence[torch.Tensor]:
        first = self.mesh.replica * self.mesh.ranks
        return self.found[first : first + self.mesh.ranks]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What `Executor.step` returns. ``loss``, ``measured_us`` and ``bubble_share`` wait for the slowest rank.

    Parameters
    ----------
    iteration
        The iteration.
    report
        What this rank measured.
    planned_us
        Makespan of the plan that ran.
    waited_us
        How long this rank waited for its plan.
    fallback
        Whether the fixed fallback ran because there was no agreed plan, or the plan was the fallback.
    outcome
        What all ranks came to.
    """

    iteration: int
    report: pb.ReportExecutionRequest
    planned_us: int
    waited_us: int
    fallback: bool
    outcome: Outcome

    @classmethod
    def of(cls, taken: TakenPlan, plan: RankPlan, report: pb.ReportExecutionRequest, outcome: Outcome) -> StepResult:
        """Put a step's result together."""
        return cls(
            iteration=taken.iteration,
            report=report,
            planned_us=plan.makespan_us,
            waited_us=taken.waited_us,
            fallback=plan.fallback,
            outcome=outcome,
        )

    @property
    def loss(self) -> float:
        """The loss of the whole batch, over all replicas, normalised by its weight; the same on all processes."""
        return self.outcome.loss

    @property
    def measured_us(self) -> int:
        """From the step's start to the end of this replica's last action, in microseconds."""
        return self.outcome.measured_us

    @property
    def bubble_share(self) -> float:
        """Share of the ranks' time in which they did not compute, 0 to 1."""
        return self.outcome.bubble_share
