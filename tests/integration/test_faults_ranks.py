"""A rank with another plan makes all fall back together; one that dies or hangs makes the others raise in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dip.fallback import fallback_plan
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import streamed
from integration.rank_process import FAILED, make_batch, make_spec
from integration.tampering import TamperingProxy
from waiting import PATIENCE_S

from trainer_agent import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest
    from integration.harness import Planner, Ranks

OTHER_PLAN, CHANGED_ACTION, LAST = 5, 8, 12
FATAL_ITERATION = 3
# What is changed on its way must have come in time.
WAITING = {settings.SCHEDULE_WAIT_MS: str(int(PATIENCE_S * 1000))}


def test_one_rank_with_another_plan_and_one_with_a_changed_action(
    steady_planner: Planner, start_ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    partition = pb.Partition()

    def another_plan(answer: pb.StreamSchedulesResponse) -> None:
        batch = make_batch(0, answer.iteration).metadata()
        plan = fallback_plan(make_spec(2), partition, batch)
        assert plan.ranks[1] != answer.schedule.schedule
        answer.schedule.CopyFrom(streamed(plan, batch, 1))

    def change_action(answer: pb.StreamSchedulesResponse) -> None:
        actions = answer.schedule.schedule.actions
        first, second = pb.Action(), pb.Action()
        first.CopyFrom(actions[0])
        second.CopyFrom(actions[-1])
        actions[0].CopyFrom(second)
        actions[-1].CopyFrom(first)

    proxy = TamperingProxy(
        steady_planner.endpoint,
        f"unix://{tmp_path}/proxy.sock",
        {OTHER_PLAN: another_plan, CHANGED_ACTION: change_action},
    )
    with proxy:
        ranks = start_ranks(steady_planner.endpoint, proxy.endpoint, variables=WAITING)
        job = ranks.wait_until_ready()
        partition.MergeFromString(job["partition"])
        ranks.go_beside(steady_planner, job["job_id"], LAST)
        stats = ranks.finish()
    assert ranks.fallbacks[OTHER_PLAN]
    assert all("not every rank had the same plan" in reason for reason in ranks.reasons[OTHER_PLAN])
    assert ranks.fallbacks[CHANGED_ACTION]
    assert "schedule of rank 1 is not the one that" in ranks.reasons[CHANGED_ACTION][1]
    others = [ranks.fallbacks[i] for i in range(2, LAST) if i not in (OTHER_PLAN, CHANGED_ACTION)]
    assert not any(others), ranks.fallbacks
    assert stats[0]["fallbacks"] == stats[1]["fallbacks"] == sum(ranks.fallbacks)


def lose_a_rank(start_ranks: Callable[..., Ranks], endpoint: str, faults: Sequence[str]) -> dict[str, Any]:
    """Let this happen to the ranks in the middle of a step; return what rank 0 raised, and after how many seconds."""
    ranks = start_ranks(
        endpoint,
        endpoint,
        variables={settings.STEP_TIMEOUT_S: str(4 * PATIENCE_S)},  # no time-out says it, but that of a rank in a hurry
        faults={rank: (fault, FATAL_ITERATION) for rank, fault in enumerate(faults)},
    )
    ranks.wait_until_ready()
    ranks.go(FATAL_ITERATION)
    ranks.start_going(1)
    began_s = time.monotonic()
    said = ranks[0].next()
    after_s = time.monotonic() - began_s
    assert ranks[0].wait() == FAILED
    return said | {"after_s": after_s}


def test_a_rank_that_is_killed_in_the_middle_of_a_step(
    steady_planner: Planner, start_ranks: Callable[..., Ranks], capsys: pytest.CaptureFixture[str]
) -> None:
    said = lose_a_rank(start_ranks, steady_planner.endpoint, ("", "kill"))
    with capsys.disabled():
        print(f"\n    killed: {said['message'][:150]} after {said['after_s']:.2f} s")
    assert said["error"] == "PeerLostError"
    assert "rank 0" in said["message"]
    assert "rank 1" in said["message"]
    assert "sub-microbatch" in said["message"]


def test_a_rank_that_hangs_in_the_middle_of_a_step(
    steady_planner: Planner, start_ranks: Callable[..., Ranks], capsys: pytest.CaptureFixture[str]
) -> None:
    said = lose_a_rank(start_ranks, steady_planner.endpoint, ("hurry", "stop"))
    with capsys.disabled():
        print(f"\n    hangs: {said['message'][:150]} after {said['after_s']:.2f} s")
    assert said["error"] == "StepTimeoutError"
    assert "rank 0" in said["message"]
    assert "rank 1" in said["message"]
    assert "sub-microbatch" in said["message"]
