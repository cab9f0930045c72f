"""Channels to planners that share a store: one spoken to at a time, left once, returned to, never a parent's."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from clocks import Clock
from dip.connecting import Endpoints
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from fake_planner import FakePlanner
from waiting import PATIENCE_S

from planner_service.server.channel_options import LEAST_PING_INTERVAL_MS
from trainer_agent.backoff import Backoff
from trainer_agent.connections import CHANNEL_OPTIONS, Connection, Connections

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=cases.job())
NOBODY = "127.0.0.1:1"
THREE = Endpoints.parse("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
FIRST, SECOND, THIRD = THREE.each


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def three(clock: Clock) -> Iterator[Connections]:
    connections = Connections(THREE, returning=Backoff(initial_s=60.0, maximum_s=60.0), clock=clock)
    yield connections
    connections.close()


def current(connections: Connections) -> Connection:
    with connections.current() as connection:
        assert connection is not None
        return connection


def preferred(connections: Connections) -> Connection | None:
    with connections.preferred_if_due() as connection:
        return connection


def test_the_first_is_preferred_and_its_channel_is_opened_once(three: Connections) -> None:
    assert three.endpoint == FIRST
    assert three.open_at(FIRST) is None
    assert current(three) is current(three) is three.open_at(FIRST)
    assert three.open_at(SECOND) is None


def test_planners_have_their_turn_one_after_the_other(three: Connections) -> None:
    for following in (SECOND, THIRD, FIRST, SECOND):
        three.leave(current(three), "away")
        assert three.endpoint == following


def test_a_planner_is_left_once_however_many_notice(three: Connections) -> None:
    connection = current(three)
    noticing = [threading.Thread(target=three.leave, args=(connection, f"reason {number}")) for number in range(8)]
    for thread in noticing:
        thread.start()
    for thread in noticing:
        thread.join(PATIENCE_S)
    assert three.endpoint == SECOND
    assert connection.left.startswith("reason ")


def test_what_is_heard_late_of_a_planner_that_has_its_turn_again_is_no_reason_to_leave_it(three: Connections) -> None:
    before = current(three)
    for _ in THREE:
        three.leave(current(three), "away")
    assert three.endpoint == FIRST
    now = current(three)
    three.leave(before, "away, long ago")
    assert three.endpoint == FIRST
    assert current(three) is now


def test_leaving_one_that_is_not_spoken_to_closes_it_and_keeps_the_turn(three: Connections, clock: Clock) -> None:
    three.leave(current(three), "away")
    clock.now_s += 60.0
    asked = preferred(three)
    assert asked is not None
    three.leave(asked, "still away")
    assert asked.left == "still away"
    assert three.open_at(FIRST) is None
    assert three.endpoint == SECOND


def test_the_only_planner_is_never_left() -> None:
    connections = Connections(Endpoints.parse(NOBODY))
    connection = current(connections)
    connections.leave(connection, "away")
    assert current(connections) is connection
    assert not connection.left
    assert preferred(connections) is None
    connections.close()


def test_leaving_ends_what_is_under_way_there() -> None:
    planner, other = FakePlanner(), FakePlanner()
    connections = Connections(Endpoints.parse(f"{planner.listen()},{other.listen()}"))
    planner.hang()
    connection = current(connections)
    call = pb_grpc.PlannerServiceStub(connection.channel).GetJob.future(pb.GetJobRequest(job_id="job"))
    planner.wait_for_calls("GetJob", 1)
    connections.leave(connection, "it hangs")
    with pytest.raises(grpc.RpcError) as caught:
        call.result(timeout=PATIENCE_S)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    connections.close()
    planner.stop()
    other.stop()


def test_the_preferred_one_is_asked_again_after_a_while_by_one_at_a_time(three: Connections, clock: Clock) -> None:
    assert preferred(three) is None  # it is the one that is spoken to
    three.leave(current(three), "away")
    assert preferred(three) is None  # too soon
    clock.now_s += 60.0
    asked = preferred(three)
    assert asked is not None
    assert asked.endpoint == FIRST
    assert preferred(three) is None  # somebody asks
    three.returned(asked, back=False)
    assert three.endpoint == SECOND
    assert three.open_at(FIRST) is None  # it would go on trying to connect
    assert preferred(three) is None  # too soon again
    clock.now_s += 60.0
    again = preferred(three)
    assert again is not None
    still = current(three)
    three.returned(again, back=True)
    assert three.endpoint == FIRST
    assert not still.left
    assert three.open_at(SECOND) is still


def test_the_preferred_one_that_says_no_keeps_its_channel_where_it_has_its_turn_again(clock: Clock) -> None:
    connections = Connections(Endpoints.parse("127.0.0.1:1,127.0.0.1:2"), clock=clock)
    connections.leave(current(connections), "away")
    clock.now_s += 600.0
    asked = preferred(connections)
    assert asked is not None
    connections.leave(current(connections), "away, too")
    connections.returned(asked, back=False)
    assert current(connections) is asked
    connections.close()


def test_moving_on_to_a_third_does_not_put_the_return_off(three: Connections, clock: Clock) -> None:
    three.leave(current(three), "away")
    clock.now_s += 60.0
    three.leave(current(three), "away too")
    assert three.endpoint == THIRD
    assert preferred(three) is not None


def test_a_planner_that_is_left_again_and_again_is_returned_to_less_often(clock: Clock) -> None:
    connections = Connections(THREE, returning=Backoff(initial_s=1.0, maximum_s=1000.0), clock=clock)
    for longest_s in (1.0, 2.0, 4.0):
        connections.leave(current(connections), "away")
        clock.now_s += longest_s / 2 - 0.01
        assert preferred(connections) is None
        clock.now_s += longest_s
        asked = preferred(connections)
        assert asked is not None
        connections.returned(asked, back=True)
    connections.close()


def test_a_planner_that_is_spoken_to_at_the_start_is_left_for_the_preferred_one_later(
    three: Connections, clock: Clock
) -> None:
    with three.all() as connections:
        assert [connection.endpoint for connection in connections] == list(THREE)
    three.speak_to(THIRD)
    assert current(three) is connections[2]
    assert preferred(three) is None
    clock.now_s += 60.0
    assert preferred(three) is connections[0]


def test_closed_connections_stay_closed(three: Connections) -> None:
    connection = current(three)
    three.close()
    three.close()
    with three.current() as found:
        assert found is None
    with three.all() as none:
        assert none == []
    assert three.open_at(FIRST) is None
    three.leave(connection, "too late")
    assert three.endpoint == FIRST


def test_a_forked_process_leaves_its_parents_channels_alone() -> None:
    # What the child does with gRPC is its own matter; here it must neither use nor close what it inherited.
    planner = FakePlanner()
    connections = Connections(Endpoints.parse(f"{planner.listen()},{NOBODY}"))
    with connections.all() as inherited:
        stub = pb_grpc.PlannerServiceStub(inherited[0].channel)
    stub.RegisterJob(REGISTRATION, timeout=PATIENCE_S)
    with connections._lock:  # as if another thread were in the middle of a call
        child = os.fork()
        if child == 0:
            connections.close()
            own = all(connections.open_at(one.endpoint) is None for one in inherited)
            os._exit(0 if own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert current(connections) is inherited[0]
    stub.RegisterJob(REGISTRATION, timeout=PATIENCE_S)
    connections.close()
    planner.stop()


def test_a_planner_that_stops_is_noticed_soon_with_pings_no_faster_than_planners_allow() -> None:
    options = dict(CHANNEL_OPTIONS)
    assert LEAST_PING_INTERVAL_MS <= options["grpc.keepalive_time_ms"] <= 10_000
    assert options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"] <= 15_000
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"]
    assert options["grpc.http2.max_pings_without_data"] == 0
