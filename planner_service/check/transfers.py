"""Rules of the transfers: one send and one receive for each result that crosses ranks, in place and in order."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.check.order import EdgeKey, Payload
from planner_service.check.tasks import COMPUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner_service.check.cut import Cut
    from planner_service.check.order import Edge
    from planner_service.check.tasks import Schedules


class Side(Enum):
    """The two ends of a transfer."""

    SEND = "send"
    RECEIVE = "receive"


_KINDS: dict[int, tuple[Side, Payload]] = {
    pb.ACTION_KIND_SEND_ACTIVATION: (Side.SEND, Payload.ACTIVATION),
    pb.ACTION_KIND_RECV_ACTIVATION: (Side.RECEIVE, Payload.ACTIVATION),
    pb.ACTION_KIND_SEND_GRADIENT: (Side.SEND, Payload.GRADIENT),
    pb.ACTION_KIND_RECV_GRADIENT: (Side.RECEIVE, Payload.GRADIENT),
}

Issued = dict[int, dict[int, EdgeKey]]
"""What each rank transfers, by the position of the action."""


def check_transfers(cut: Cut, schedules: Schedules, crossing: Mapping[EdgeKey, Edge], faults: list[str]) -> Issued:
    """Collect the faults of all transfers; return those that belong to something that crosses ranks."""
    ends = _Ends(cut, schedules, crossing, faults)
    for rank, actions in schedules.actions.items():
        before: int | None = None
        for position, action in enumerate(actions):
            if action.kind in COMPUTE:
                before = position
            elif action.kind in _KINDS:
                ends.add(rank, position, action, before)
    ends.check_matched()
    return ends.issued


class _Ends:
    """Sends and receives seen so far."""

    def __init__(self, cut: Cut, schedules: Schedules, crossing: Mapping[EdgeKey, Edge], faults: list[str]) -> None:
        self.issued: Issued = {rank: {} for rank in schedules.actions}
        self._cut, self._schedules, self._crossing, self._faults = cut, schedules, crossing, faults
        self._seen: dict[Side, set[EdgeKey]] = {side: set() for side in Side}
        self._in_order: dict[Side, dict[tuple[int, int], list[EdgeKey]]] = {side: defaultdict(list) for side in Side}

    def add(self, rank: int, position: int, action: pb.Action, before: int | None) -> None:
        """Check one transfer of a rank; ``before`` is the position of the last compute that the rank issues before."""
        side, payload = _KINDS[action.kind]
        at = f"rank {rank}, action {position}"
        key = EdgeKey(
            payload, action.sub_microbatch, action.chunk, action.consumer_sub_microbatch, action.consumer_chunk
        )
        edge = self._crossing.get(key)
        if edge is None or not self._names_modules(action):
            self._faults.append(f"{at}: nothing needs a {side.value} of {key}")
            return
        here, there = (edge.from_rank, edge.to_rank) if side is Side.SEND else (edge.to_rank, edge.from_rank)
        if (rank, action.peer) != (here, there):
            self._faults.append(f"{at}: {side.value} of {key} with rank {action.peer}, it is of {here} with {there}")
            return
        if key in self._seen[side]:
            self._faults.append(f"{at}: {side.value} of {key} is there twice")
        if (action.start_us, action.end_us) != (edge.leaves_us, edge.arrives_us):
            self._faults.append(
                f"{at}: {side.value} of {key} at {action.start_us}..{action.end_us}, "
                f"it travels at {edge.leaves_us}..{edge.arrives_us}"
            )
        if side is Side.SEND:
            self._check_send(at, key, edge, before)
        else:
            self._check_receive(at, key, edge, before)
        self._seen[side].add(key)
        self._in_order[side][edge.from_rank, edge.to_rank].append(key)
        self.issued[rank][position] = key

    def check_matched(self) -> None:
        """Check that nothing is left out and that both ranks of a pair have one order."""
        for side in Side:
            missing = self._crossing.keys() - self._seen[side]
            self._faults.extend(f"missing: {side.value} of {key}" for key in missing)
        sends, receives = self._in_order[Side.SEND], self._in_order[Side.RECEIVE]
        for pair in sends.keys() | receives.keys():
            if sends.get(pair) != receives.get(pair):
                self._faults.append(f"rank {pair[0]} sends in another order than rank {pair[1]} receives")

    def _names_modules(self, action: pb.Action) -> bool:
        made, consumed = self._cut.subs[action.sub_microbatch], self._cut.subs[action.consumer_sub_microbatch]
        return (action.module, action.consumer_module) == (made.module, consumed.module)

    def _check_send(self, at: str, key: EdgeKey, edge: Edge, before: int | None) -> None:
        """Check that a send stands right after its producer, with no other compute between them."""
        if before != self._schedules.tasks[edge.earlier].position:
            self._faults.append(f"{at}: the send of {key} does not stand right after its producer")

    def _check_receive(self, at: str, key: EdgeKey, edge: Edge, before: int | None) -> None:
        """Check that no compute that the rank issues before outlasts the producer."""
        if before is None:
            return
        until_us = self._schedules.actions[edge.to_rank][before].end_us
        if until_us > edge.leaves_us:
            self._faults.append(
                f"{at}: the receive of {key} stands after compute until {until_us}, its data leaves at {edge.leaves_us}"
            )
