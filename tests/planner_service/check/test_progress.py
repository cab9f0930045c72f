"""Shows that orders in which ranks would wait for each other on a weak transport are found."""

from __future__ import annotations

import pytest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.check.order import Edge, EdgeKey, Payload
from planner_service.check.progress import check_progress
from planner_service.check.tasks import FORWARD, Schedules, Task

# Two ranks that send to each other: rank 0 runs task (sub 0, chunk 0) and sends its result to (sub 0, chunk 1) on
# rank 1, rank 1 runs (sub 1, chunk 0) and sends to (sub 1, chunk 1) on rank 0.
TO_1 = EdgeKey(Payload.ACTIVATION, 0, 0, 0, 1)
TO_0 = EdgeKey(Payload.ACTIVATION, 1, 0, 1, 1)
CROSSING = {
    TO_1: Edge(Task(FORWARD, 0, 0), Task(FORWARD, 0, 1), 0, 1, 10, 15),
    TO_0: Edge(Task(FORWARD, 1, 0), Task(FORWARD, 1, 1), 1, 0, 10, 15),
}


def stuck(first: list[EdgeKey | Task], second: list[EdgeKey | Task]) -> list[str]:
    """Faults of two ranks that issue these transfers and tasks in this order."""
    actions, issued = {}, {}
    for rank, order in enumerate((first, second)):
        issued[rank] = {n: step for n, step in enumerate(order) if isinstance(step, EdgeKey)}
        actions[rank] = [
            pb.Action()
            if isinstance(step, EdgeKey)
            else pb.Action(kind=FORWARD, sub_microbatch=step.sub, chunk=step.chunk)
            for step in order
        ]
    faults: list[str] = []
    check_progress(Schedules(actions=actions, tasks={}), CROSSING, issued, faults)
    return faults


A0, A1 = Task(FORWARD, 0, 0), Task(FORWARD, 0, 1)
B0, B1 = Task(FORWARD, 1, 0), Task(FORWARD, 1, 1)


def test_ranks_that_post_in_one_order_come_to_their_end() -> None:
    assert stuck([A0, TO_1, TO_0, B1], [B0, TO_1, TO_0, A1]) == []


def test_both_sending_first_wait_for_ever() -> None:
    faults = stuck([A0, TO_1, TO_0, B1], [B0, TO_0, TO_1, A1])
    assert len(faults) == 2
    assert all("waits for ever at action 3" in fault for fault in faults)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_transfer_that_its_peer_never_issues_is_waited_for(rank: int) -> None:
    orders: list[list[EdgeKey | Task]] = [[A0, TO_1], [B0, TO_1]]
    orders[rank].pop()
    assert stuck(*orders) == [f"rank {1 - rank} waits for ever for the transfer of {TO_1}"]


def test_a_transfer_behind_compute_that_waits_for_it_is_never_reached() -> None:
    faults = stuck([A0, TO_1], [A1, TO_1])
    assert "rank 1 waits for ever at action 0, for what it consumes" in faults
