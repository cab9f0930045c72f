"""Shows that load is measured on schedules that all came and are right, and that wrong ones are noticed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from dip.planner.v1 import planner_pb2 as pb
from redis_cases import needs_redis

from benchmarks import sleeping_engine
from benchmarks.load.__main__ import WARM_ITERATIONS, main
from benchmarks.load.client import WrongScheduleError, plan_digest_of
from benchmarks.load.store import NotedStore
from benchmarks.load.times import Times
from benchmarks.load.work import Work
from planner_service.check.plan import check_plan
from planner_service.store import BatchKey, ReplicaKey

if TYPE_CHECKING:
    from pathlib import Path

    from planner_service.store import PlanStore

WORK = Work(microbatches=2, replicas=3, ranks=2, batches=2)
SIZE = ["--replicas", "3", "--ranks", "2", "--microbatches", "2", "--streams-a-channel", "2"]


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*SIZE, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_burst_and_memory_on_one_planner(capsys: pytest.CaptureFixture[str]) -> None:
    parts = ["--parts", "burst,memory", "--rounds", "2", "--schedules", "30", "--short-iteration-s", "0.05"]
    result = measured(capsys, *parts)
    assert result["sizes"]["streams"] == 6
    assert result["sizes"]["plan_bytes_sent"] > result["sizes"]["schedule_bytes"] > 0
    burst, memory = result["burst"], result["memory"]
    assert {name: len(values) for name, values in burst["until_last_received_ms"].items()} == {"planner": 2, "bare": 2}
    assert burst["median_ratio"] > 0
    assert memory["schedules_received_and_checked"] == 30
    assert memory["most_resident_mib"] >= max(memory["resident_mib"]) > 0


@needs_redis
def test_even_load_with_a_redis(capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(
        capsys, "--parts", "even", "--iterations", "2", "--iteration-s", "0.2", "--store", "redis", "--clients", "1"
    )
    even = result["even"]
    assert even["schedules_received_and_checked"] == (WARM_ITERATIONS + 2) * 6
    shares = list(even["stored_to_received_ms"].values())
    assert shares == sorted(shares)
    assert shares[0] > 0


def test_the_sleeping_engine_makes_valid_plans() -> None:
    registration = WORK.registration()
    request = pb.PlanRequest(job=registration.spec, batch=WORK.batch(1), partition=registration.partition)
    plan = sleeping_engine.make_plan(request, budget_ms=1)
    found = check_plan(request, plan)
    assert (found.faults, found.warnings) == ((), ())
    assert not plan.fallback
    assert sleeping_engine.make_plan(request, budget_ms=1).digest == plan.digest


def test_all_ranks_have_one_digest() -> None:
    digests = [plan_digest_of(payload, iteration=0, rank=rank) for rank, payload in enumerate(WORK.fixed_responses(0))]
    assert len(digests) == 2
    assert digests[0] == digests[1]


def test_wrong_schedules_are_noticed() -> None:
    payload = WORK.fixed_responses(0)[1]
    with pytest.raises(WrongScheduleError):
        plan_digest_of(payload, iteration=1, rank=1)
    with pytest.raises(WrongScheduleError):
        plan_digest_of(payload, iteration=0, rank=0)
    unplanned = pb.StreamSchedulesResponse(unplanned_reason="none").SerializeToString()
    with pytest.raises(WrongScheduleError, match="none"):
        plan_digest_of(unplanned, iteration=0, rank=1)
    changed = pb.StreamSchedulesResponse.FromString(payload)
    changed.schedule.schedule.actions[0].end_us += 1
    with pytest.raises(ValueError, match="not the one"):
        plan_digest_of(changed.SerializeToString(), iteration=0, rank=1)


def test_what_was_not_received_is_no_measurement(tmp_path: Path) -> None:
    times = Times(tmp_path / "times", iterations=2, replicas=3, ranks=2)
    times.stored[:] = 1_000_000
    times.received[:] = 3_000_000
    assert set(times.latencies_ms()) == {2.0}
    times.received[1, 2, 0] = 0
    assert set(times.latencies_ms(0, 1)) == {2.0}
    with pytest.raises(ValueError, match="1 schedules of 6"):
        times.latencies_ms(1)


def test_processes_share_stamps(tmp_path: Path) -> None:
    ours, theirs = (Times(tmp_path / "times", iterations=1, replicas=3, ranks=2) for _ in range(2))
    ours.received[0, 2, 1] = 7
    assert theirs.received[0, 2, 1] == 7


class _Settled:
    """Notes what is settled."""

    def __init__(self) -> None:
        self.replicas: list[int] = []

    async def settle(self, key: BatchKey) -> bool:
        self.replicas.append(key.replica.replica)
        return True


def test_a_gate_stores_plans_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        kept = _Settled()
        times = Times(tmp_path / "times", iterations=1, replicas=3, ranks=2)
        store = NotedStore(cast("PlanStore", kept), times, gate=True)
        keys = [
            BatchKey(replica=ReplicaKey(job_id="load", attempt=1, replica=replica), iteration=0) for replica in range(3)
        ]
        early = [asyncio.create_task(store.settle(key)) for key in keys[:2]]
        await asyncio.sleep(0)
        assert kept.replicas == []
        assert not times.stored.any()
        assert await store.settle(keys[2])
        assert await asyncio.gather(*early) == [True, True]
        assert sorted(kept.replicas) == [0, 1, 2]
        assert times.stored.all()

    asyncio.run(scenario())
