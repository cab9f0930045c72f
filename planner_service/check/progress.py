"""Rule of progress: no rank waits for ever, even if its transfers run one at a time and each waits for its peer."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from planner_service.check.tasks import COMPUTE, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.order import Edge, EdgeKey
    from planner_service.check.tasks import Schedules
    from planner_service.check.transfers import Issued


def check_progress(schedules: Schedules, crossing: Mapping[EdgeKey, Edge], issued: Issued, faults: list[str]) -> None:
    """Run all ranks without clocks and collect those that never come to their end."""
    run = _Run(schedules, crossing, issued)
    run.to_the_end()
    for rank, actions in schedules.actions.items():
        position = run.position[rank]
        if position < len(actions):
            faults.append(f"rank {rank} waits for ever at action {position}, for what it consumes")
        elif run.queue[rank]:
            faults.append(f"rank {rank} waits for ever for the transfer of {run.queue[rank][0]}")


class _Run:
    """Ranks that issue their actions in order: compute waits for its inputs, transfers queue up behind each other."""

    def __init__(self, schedules: Schedules, crossing: Mapping[EdgeKey, Edge], issued: Issued) -> None:
        self.position = dict.fromkeys(schedules.actions, 0)
        self.queue: dict[int, deque[EdgeKey]] = {rank: deque() for rank in schedules.actions}
        self._schedules, self._crossing, self._issued = schedules, crossing, issued
        self._needs: dict[Task, list[EdgeKey]] = defaultdict(list)
        for key, edge in crossing.items():
            self._needs[edge.later].append(key)
        self._arrived: set[EdgeKey] = set()

    def to_the_end(self) -> None:
        """Let ranks go on until none can; which one goes first makes no difference to who gets stuck."""
        awake = set(self.position)
        while awake:
            rank = awake.pop()
            self._issue(rank)
            awake |= self._transfer(rank)

    def _issue(self, rank: int) -> None:
        """Issue a rank's actions up to the first compute whose input has not arrived."""
        actions, transfers = self._schedules.actions[rank], self._issued[rank]
        while self.position[rank] < len(actions):
            position = self.position[rank]
            if position in transfers:
                self.queue[rank].append(transfers[position])
            elif not self._may_run(actions[position]):
                return
            self.position[rank] += 1

    def _may_run(self, action: pb.Action) -> bool:
        if action.kind not in COMPUTE:
            return True
        needs = self._needs.get(Task(action.kind, action.sub_microbatch, action.chunk), ())
        return all(key in self._arrived for key in needs)

    def _transfer(self, rank: int) -> set[int]:
        """Complete transfers that are first in the queues of both their ranks; return the ranks that this wakes."""
        woken: set[int] = set()
        while self.queue[rank]:
            key = self.queue[rank][0]
            edge = self._crossing[key]
            peer = edge.to_rank if edge.from_rank == rank else edge.from_rank
            if not self.queue[peer] or self.queue[peer][0] != key:
                break
            self.queue[rank].popleft()
            self.queue[peer].popleft()
            self._arrived.add(key)
            woken |= {rank, peer}
        return woken
