"""Rules of time: no task starts before what it consumes is there; and what has to travel between ranks for that."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from planner_service.check.tasks import FORWARD, WEIGHT_HALF, Task

if TYPE_CHECKING:
    from planner_service.check.cut import Cut
    from planner_service.check.facts import Facts
    from planner_service.check.partition import Layout
    from planner_service.check.tasks import Schedules


class Payload(Enum):
    """What a transfer carries."""

    ACTIVATION = "activation"
    GRADIENT = "gradient"


class EdgeKey(NamedTuple):
    """What names a transfer: what travels, who made it, who consumes it."""

    payload: Payload
    sub: int
    chunk: int
    consumer_sub: int
    consumer_chunk: int

    def __str__(self) -> str:
        made, consumed = f"{self.sub}, chunk {self.chunk}", f"{self.consumer_sub}, chunk {self.consumer_chunk}"
        return f"the {self.payload.value} from sub-microbatch {made}, to {consumed}"


class Edge(NamedTuple):
    """A result that crosses ranks: the tasks at its ends, their ranks, and when it leaves and arrives."""

    earlier: Task
    later: Task
    from_rank: int
    to_rank: int
    leaves_us: int
    arrives_us: int


def check_order(facts: Facts, layout: Layout, cut: Cut, schedules: Schedules, faults: list[str]) -> dict[EdgeKey, Edge]:
    """Collect tasks that start too early; return everything that crosses ranks."""
    waits = _Waits(facts, schedules, faults)
    for key, sub in cut.subs.items():
        module, last = facts.modules[sub.module], len(layout[sub.module]) - 1
        inside = module.output_bytes * sub.total
        for chunk in range(last + 1):
            forward = Task(FORWARD, key, chunk)
            if chunk:
                waits.add(forward, Task(FORWARD, key, chunk - 1), Payload.ACTIVATION, inside)
            else:
                for producer, units in cut.producers[key].items():
                    made_by = cut.subs[producer].module
                    ends = Task(FORWARD, producer, len(layout[made_by]) - 1)
                    waits.add(forward, ends, Payload.ACTIVATION, facts.modules[made_by].result_bytes * units)
            back = schedules.gradient_of(key, chunk)
            if back is None:
                continue
            waits.add(back, forward)
            waits.add(Task(WEIGHT_HALF, key, chunk), back)
            if chunk < last:
                waits.add(back, schedules.gradient_of(key, chunk + 1), Payload.GRADIENT, inside)
            else:
                for consumer, units in cut.consumers[key].items():
                    gradient = schedules.gradient_of(consumer, 0)
                    waits.add(back, gradient, Payload.GRADIENT, module.result_bytes * units)
    return waits.crossing


class _Waits:
    """Holds tasks against what they wait for."""

    def __init__(self, facts: Facts, schedules: Schedules, faults: list[str]) -> None:
        self.crossing: dict[EdgeKey, Edge] = {}
        self._facts, self._tasks, self._faults = facts, schedules.tasks, faults

    def add(self, later: Task, earlier: Task | None, payload: Payload | None = None, size: int = 0) -> None:
        """Check that ``later`` starts when ``earlier`` has ended and, on another rank, its payload has arrived.

        Tasks that the plan lacks are another rule's fault.
        """
        if earlier is None or later not in self._tasks or earlier not in self._tasks:
            return
        source, target = self._tasks[earlier], self._tasks[later]
        leaves_us = arrives_us = source.action.end_us
        if payload is not None and source.rank != target.rank:
            arrives_us += self._facts.hop_us(size)
            key = EdgeKey(payload, earlier.sub, earlier.chunk, later.sub, later.chunk)
            self.crossing[key] = Edge(earlier, later, source.rank, target.rank, leaves_us, arrives_us)
        if target.action.start_us < arrives_us:
            self._faults.append(f"{later} starts at {target.action.start_us}, its input is there at {arrives_us}")
