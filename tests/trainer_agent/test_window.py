"""Schedules kept ready: checked against what the rank has, taken in any order, late ones dropped, waits bounded."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import cases
import pytest
from clocks import Clock
from dip.digests import plan_digest
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import streamed
from waiting import PATIENCE_S

from trainer_agent.plans import RankPlan
from trainer_agent.window import PATIENCE, PROBE_EVERY, ScheduleWindow, Unplanned

if TYPE_CHECKING:
    from collections.abc import Callable

SPEC = cases.job(ranks=2)
PARTITION = default_partition(SPEC)
BATCH = cases.batch(cases.documents(2))
OTHER_BATCH = cases.batch(cases.documents(3))
PLAN = fallback_plan(SPEC, PARTITION, BATCH)


def make_window(*, capacity: int = 16) -> ScheduleWindow:
    """Make a window whose clock stands still: what it says of an outage does not depend on this machine."""
    return ScheduleWindow(rank=1, ranks=2, partition=PARTITION, capacity=capacity, clock=Clock())


def answer(iteration: int, *, rank: int = 1) -> pb.StreamSchedulesResponse:
    return pb.StreamSchedulesResponse(iteration=iteration, schedule=streamed(PLAN, BATCH, rank))


def reason(found: RankPlan | Unplanned) -> str:
    assert isinstance(found, Unplanned)
    return found.reason


def test_a_schedule_that_is_there_is_taken_at_once_with_the_whole_digest() -> None:
    window = make_window()
    window.expect(5, BATCH)
    assert window.put(answer(5))
    found = window.take(5, wait_s=0.0)
    assert isinstance(found, RankPlan)
    assert found.digest == plan_digest(PLAN, BATCH) == PLAN.digest
    assert (found.iteration, found.batch, found.partition) == (5, BATCH, PARTITION)
    assert found.schedule == PLAN.ranks[1]
    assert list(found.sub_microbatches) == list(PLAN.sub_microbatches)
    assert found.makespan_us == PLAN.makespan_us


def test_a_schedule_that_comes_before_its_batch_is_kept() -> None:
    window = make_window()
    window.put(answer(0))
    window.expect(0, BATCH)
    assert isinstance(window.take(0, wait_s=0.0), RankPlan)


def changed(change: Callable[[pb.StreamedSchedule], object]) -> pb.StreamSchedulesResponse:
    made = answer(0)
    change(made.schedule)
    return made


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (answer(0, rank=0), "a schedule of rank 0 of 2, not of rank 1 of 2"),
        (changed(lambda s: s.schedule_digests.append(bytes(32))), "of 3, not of rank 1 of 2"),
        (changed(lambda s: s.schedule.actions.pop()), "is not the one that"),
        (changed(lambda s: setattr(s.schedule.actions[0], "end_us", 1)), "is not the one that"),
        (changed(lambda s: setattr(s, "partition_digest", bytes(32))), "another partition"),
        (changed(lambda s: setattr(s, "batch_digest", bytes(32))), "another batch"),
        (pb.StreamSchedulesResponse(iteration=0, unplanned_reason="search failed"), "not planned: search failed"),
        (pb.StreamSchedulesResponse(iteration=0), "no reason given"),
        (pb.StreamSchedulesResponse(iteration=0, unplanned_reason="a\nb \x1b[2J"), r"not planned: a b \x1b[2J"),
    ],
)
def test_what_is_not_this_ranks_plan_of_this_batch_is_refused(made: pb.StreamSchedulesResponse, why: str) -> None:
    window = make_window()
    window.expect(0, BATCH)
    window.put(made)
    assert why in reason(window.take(0, wait_s=0.0))


@pytest.mark.parametrize("iteration", [2**63 - 1, 2**63 - 2, -1, -(2**63)])
def test_no_number_of_an_answer_keeps_the_next_stream_from_being_asked_for(iteration: int) -> None:
    window = make_window()
    window.put(pb.StreamSchedulesResponse(iteration=iteration, unplanned_reason="hostile"))
    assert pb.StreamSchedulesRequest(first_iteration=window.next_needed()).first_iteration >= 0


def test_of_a_reason_that_is_megabytes_long_little_is_kept() -> None:
    window = make_window()
    window.expect(0, BATCH)
    window.put(pb.StreamSchedulesResponse(iteration=0, unplanned_reason="x" * 2**22))
    assert len(reason(window.take(0, wait_s=0.0))) < 500


def test_a_plan_of_another_batch_under_the_same_number_is_refused() -> None:
    window = make_window()
    window.put(answer(0))
    window.expect(0, OTHER_BATCH)
    assert "another batch" in reason(window.take(0, wait_s=0.0))


def test_changed_sub_microbatches_change_the_digest_that_ranks_compare() -> None:
    window = make_window()
    window.expect(0, BATCH)
    window.put(changed(lambda s: s.sub_microbatches.pop()))
    found = window.take(0, wait_s=0.0)
    assert isinstance(found, RankPlan)
    assert found.digest != PLAN.digest


def test_late_schedules_are_dropped() -> None:
    window = make_window()
    window.expect(0, BATCH)
    window.expect(1, BATCH)
    assert reason(window.take(0, wait_s=0.0)) == "no schedule within 0 ms"
    window.put(answer(0))
    assert window.late == 1
    window.put(answer(1))
    assert isinstance(window.take(1, wait_s=0.0), RankPlan)
    assert window.late == 1


def test_loops_may_take_turns() -> None:
    # Training looked ahead to 1 and 2 when an evaluation of 3 and 4 came in between.
    window = make_window()
    for iteration in range(5):
        window.expect(iteration, BATCH)
        window.put(answer(iteration))
    for iteration in (0, 3, 4, 1, 2):
        assert isinstance(window.take(iteration, wait_s=0.0), RankPlan)


def test_abandoned_iterations_are_not_asked_for_and_dropped_when_they_come() -> None:
    window = make_window()
    for iteration in range(4):
        window.expect(iteration, BATCH)
    window.put(answer(0))
    window.abandon([0, 1])
    assert window.next_needed() == 2
    window.put(answer(1))
    assert window.late == 1


def test_a_new_stream_starts_at_the_first_that_is_missing() -> None:
    window = make_window()
    assert window.next_needed() == 0
    for iteration in (500, 501):
        window.expect(iteration, BATCH)
    assert window.next_needed() == 500
    window.put(answer(500))
    assert window.next_needed() == 501
    window.put(answer(501))
    window.put(answer(502))
    assert window.next_needed() == 503
    window.take(500, wait_s=0.0)
    assert window.next_needed() == 503


def test_a_schedule_that_comes_while_the_loop_waits_is_taken() -> None:
    window = make_window()
    window.expect(0, BATCH)
    found: list[RankPlan | Unplanned] = []
    thread = threading.Thread(target=lambda: found.append(window.take(0, wait_s=PATIENCE_S)))
    thread.start()
    window.put(answer(0))
    thread.join(PATIENCE_S)
    assert isinstance(found[0], RankPlan)


def test_waiting_ends_when_the_planner_goes_away() -> None:
    window = make_window()
    window.expect(0, BATCH)
    found: list[RankPlan | Unplanned] = []
    thread = threading.Thread(target=lambda: found.append(window.take(0, wait_s=PATIENCE_S)))
    thread.start()
    window.planner_away("the planner does not answer")
    thread.join(PATIENCE_S)
    assert reason(found[0]) == "no schedule for 0 s: the planner does not answer"


def test_nothing_is_waited_for_while_the_planner_is_away_but_what_is_there_is_taken() -> None:
    window = make_window()
    for iteration in range(2):
        window.expect(iteration, BATCH)
    window.put(answer(0))
    window.planner_away("away")
    assert isinstance(window.take(0, wait_s=PATIENCE_S), RankPlan)
    assert reason(window.take(1, wait_s=PATIENCE_S)) == "no schedule for 0 s: away"


def test_a_planner_that_is_always_too_slow_is_seldom_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    window = make_window()
    waits_s: list[float] = []
    monkeypatch.setattr(window._changed, "wait_for", lambda ready, timeout: waits_s.append(timeout) or bool(ready()))
    for iteration in range(2 * PROBE_EVERY + 1):
        window.expect(iteration, BATCH)
        window.take(iteration, wait_s=0.5)
        window.put(answer(iteration))
    waited = [iteration for iteration, wait_s in enumerate(waits_s) if wait_s]
    assert waited == [*range(PATIENCE), PROBE_EVERY, 2 * PROBE_EVERY]
    assert window.late == 2 * PROBE_EVERY + 1


def test_one_answer_in_time_restores_the_patience() -> None:
    window = make_window()
    for iteration in range(PATIENCE + 2):
        window.expect(iteration, BATCH)
    for iteration in range(PATIENCE):
        window.take(iteration, wait_s=0.0)
    window.put(answer(PATIENCE))
    found: list[RankPlan | Unplanned] = []
    thread = threading.Thread(target=lambda: found.append(window.take(PATIENCE + 1, wait_s=PATIENCE_S)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    window.put(answer(PATIENCE + 1))
    thread.join(PATIENCE_S)
    assert isinstance(found[0], RankPlan)


def test_another_planner_is_waited_for_as_the_first_was() -> None:
    window = make_window()
    for iteration in range(PATIENCE + 1):
        window.expect(iteration, BATCH)
    for iteration in range(PATIENCE):
        window.take(iteration, wait_s=0.0)
    window.be_patient()
    found: list[RankPlan | Unplanned] = []
    thread = threading.Thread(target=lambda: found.append(window.take(PATIENCE, wait_s=PATIENCE_S)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    window.put(answer(PATIENCE))
    thread.join(PATIENCE_S)
    assert isinstance(found[0], RankPlan)


def test_it_is_told_apart_whether_the_planner_said_anything() -> None:
    window = make_window()
    for iteration in range(4):
        window.expect(iteration, BATCH)
    window.put(pb.StreamSchedulesResponse(iteration=0, unplanned_reason="search failed"))
    window.refuse(1, "not planned: cannot fit")
    found = [window.take(iteration, wait_s=0.0) for iteration in range(3)]
    window.planner_away("away")
    found.append(window.take(3, wait_s=0.0))
    assert [isinstance(one, Unplanned) and one.unanswered for one in found] == [False, False, True, True]


def test_a_reason_from_the_outbox_spares_the_wait() -> None:
    window = make_window()
    window.expect(0, BATCH)
    window.refuse(0, "not planned: cannot fit")
    assert reason(window.take(0, wait_s=PATIENCE_S)) == "not planned: cannot fit"
    window.refuse(0, "again")  # over: nothing to note
    assert window.next_needed() == 1


def test_what_nobody_expects_yet_is_bounded() -> None:
    window = make_window(capacity=2)
    for iteration in range(2):
        window.put(answer(iteration))
    done = threading.Event()

    def put() -> None:
        window.put(answer(2))
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not done.wait(0.05)
    window.expect(0, BATCH)
    assert done.wait(PATIENCE_S)
    thread.join()


def test_closing_lets_go_of_both_threads() -> None:
    window = make_window(capacity=1)
    window.put(answer(0))
    ends: list[object] = []
    full = threading.Thread(target=lambda: ends.append(window.put(answer(1))))
    full.start()
    window.close()
    full.join(PATIENCE_S)
    window.expect(7, BATCH)
    ends.append(window.take(7, wait_s=PATIENCE_S))
    assert ends[0] is False
    assert isinstance(ends[1], Unplanned)


def test_a_missing_schedule_is_explained_in_words_that_stay_the_same_while_their_cause_does() -> None:
    clock = Clock()
    window = ScheduleWindow(rank=1, ranks=2, partition=PARTITION, clock=clock)
    for iteration in range(PATIENCE + 5):
        window.expect(iteration, BATCH)
    for iteration in range(PATIENCE):
        assert reason(window.take(iteration, wait_s=0.001)) == "no schedule within 1 ms"
    found = reason(window.take(PATIENCE, wait_s=0.001))
    assert found == f"no schedule yet, and not waited for, as none came in time for {PATIENCE} iterations"
    window.held_up("UNAUTHENTICATED: the token is not known")
    found = reason(window.take(PATIENCE + 1, wait_s=0.001))
    assert found.endswith("iterations; the batch is not handed over (UNAUTHENTICATED: the token is not known)")
    window.planner_away("the planner does not answer")
    clock.now_s += 12.4
    window.planner_away("the planner does not answer, still")
    assert (
        reason(window.take(PATIENCE + 2, wait_s=PATIENCE_S))
        == "no schedule for 12 s: the planner does not answer, still"
    )
    window.put(answer(PATIENCE + 3))
    window.held_up("")
    window.take(PATIENCE + 3, wait_s=0.0)
    window.planner_away("the planner does not answer")
    assert reason(window.take(PATIENCE + 4, wait_s=PATIENCE_S)) == "no schedule for 0 s: the planner does not answer"
