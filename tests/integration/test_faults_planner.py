"""Training with a planner that is killed, stopped, absent or late never stops, and returns to plans by itself.

Every loss and gradient on the way is compared with ordinary training in one process.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from integration.harness import PATIENT, PLANNED_AHEAD
from integration.rank_process import make_spec
from waiting import until

from trainer_agent import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from integration.harness import Planner, Ranks

# How long ranks wait for schedules where the planner is going to be stopped: long enough on a busy machine.
WAIT_MS = 2_000


def say(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """Print what a fault cost, whatever pytest captures."""
    with capsys.disabled():
        print(f"\n    {line}")


def loaded(job: dict[str, Any]) -> pb.Partition:
    """Partition that the ranks said they loaded."""
    return pb.Partition.FromString(job["partition"])


def test_training_outlives_a_planner_that_is_killed_and_one_that_is_stopped(
    mortal_planner: Planner, start_ranks: Callable[..., Ranks], capsys: pytest.CaptureFixture[str]
) -> None:
    planner = mortal_planner.start()
    ranks = start_ranks(planner.endpoint, planner.endpoint, variables={settings.SCHEDULE_WAIT_MS: str(WAIT_MS)})
    job = ranks.wait_until_ready()
    ranks.go_until_planned(planner, job["job_id"])
    assert planner.job(job["job_id"]).partition == loaded(job)
    ranks.go_planned(planner, job["job_id"], 4)

    planner.send(signal.SIGKILL)
    assert all(ranks.go(PLANNED_AHEAD + 7)[PLANNED_AHEAD:])
    planner.start()
    back_s = time.monotonic()
    fallen_back = ranks.go_until_planned(planner, job["job_id"])
    took_s = ranks.times[-1] - back_s
    say(capsys, f"killed and started again: a plan after {took_s:.2f} s and {fallen_back} fallbacks")
    ranks.go_planned(planner, job["job_id"], 4)
    assert planner.job(job["job_id"]).partition == loaded(job)

    planner.send(signal.SIGSTOP)
    stopped_s = time.monotonic()
    without = PLANNED_AHEAD + 10
    assert all(ranks.go(without)[PLANNED_AHEAD:])
    # Up to three times as long as an iteration may wait, then hardly any more: the planner is not heard.
    assert sum(any(one.startswith("no schedule within") for one in said) for said in ranks.reasons[-10:]) < 5
    say(capsys, f"stopped: {without} iterations took {ranks.times[-1] - stopped_s:.2f} s")
    planner.send(signal.SIGCONT)
    back_s = time.monotonic()
    fallen_back = ranks.go_until_planned(planner, job["job_id"])
    say(capsys, f"let go on: a plan after {ranks.times[-1] - back_s:.2f} s and {fallen_back} fallbacks")
    ranks.go_planned(planner, job["job_id"], 4)

    stats = ranks.finish()
    say(capsys, f"in all {stats[0]['fallbacks']} fallbacks in {stats[0]['iterations']} iterations")
    assert stats[0]["fallbacks"] == sum(ranks.fallbacks)
    assert stats[0]["reconnects"] >= 1


def test_training_begins_without_its_planner_and_takes_it_in_when_it_comes(
    mortal_planner: Planner, start_ranks: Callable[..., Ranks], capsys: pytest.CaptureFixture[str]
) -> None:
    planner = mortal_planner
    ranks = start_ranks(planner.endpoint, planner.endpoint, variables={settings.CONNECT_WAIT_S: "0.2"})
    job = ranks.wait_until_ready()
    assert loaded(job) == default_partition(make_spec(2))
    assert all(ranks.go(5))
    assert f"no planner at {planner.endpoint}: start one with `dip serve`" in ranks[0].log()
    planner.start()
    came_s = time.monotonic()
    fallen_back = ranks.go_until_planned(planner, job["job_id"])
    say(capsys, f"came late: a plan after {ranks.times[-1] - came_s:.2f} s and {fallen_back} fallbacks")
    assert planner.job(job["job_id"]).partition == loaded(job)
    ranks.finish()


def test_training_without_any_planner(start_ranks: Callable[..., Ranks]) -> None:
    ranks = start_ranks("", "")
    job = ranks.wait_until_ready()
    assert loaded(job) == default_partition(make_spec(2))
    assert all(ranks.go(5))
    stats = ranks.finish()
    assert [one["fallbacks"] for one in stats] == [5, 5]
    assert stats[0]["waited_us"] == 0
    assert ranks[0].log().count("WARNING") == 1
    assert "DIP_PLANNER_ENDPOINT is not set" in ranks[0].log()


def test_a_job_that_starts_again_at_an_older_iteration_with_other_batches(
    steady_planner: Planner, start_ranks: Callable[..., Ranks]
) -> None:
    planner, own = steady_planner, {settings.JOB_ID: "resumed"} | PATIENT
    first = start_ranks(planner.endpoint, planner.endpoint, variables=own)
    before = first.wait_until_ready()
    first.go_until_planned(planner, "resumed")
    first.go_beside(planner, "resumed", 6)
    # The first start lives on: the second supersedes it all the same.
    second = start_ranks(planner.endpoint, planner.endpoint, variables=own, first_iteration=3, seed=1)
    after = second.wait_until_ready()
    assert after["attempt"] > before["attempt"]
    second.go_until_planned(planner, "resumed")
    second.go_planned(planner, "resumed", 4)
    assert all(first.go(PLANNED_AHEAD + 2)[PLANNED_AHEAD:])
    assert f"was superseded by attempt {after['attempt']}" in first.reasons[-1][0]
    until(lambda: "asks for no more plans" in first[0].log(), told=first[0].log)
    second.go_planned(planner, "resumed", 2)
    first.finish()
    assert first[0].log().count("asks for no more plans") == 1
    second.finish()
