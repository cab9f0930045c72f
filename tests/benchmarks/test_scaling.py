"""Shows that throughput is measured for workers and planners, and that what a large job needs is worked out from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redis_cases import needs_redis

from benchmarks import scaling
from benchmarks.scaling import Throughput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

SIZE = ["--replicas", "2", "--ranks", "2", "--microbatches", "2", "--plans", "3", "--sleep-ms", "20"]


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert scaling.main([*SIZE, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def all_positive(values: Mapping[str, float]) -> bool:
    return all(value > 0 for name, value in values.items() if not name.endswith("_ms_a_plan"))


def test_workers_that_sleep_and_one_that_searches(capsys: pytest.CaptureFixture[str]) -> None:
    budgets = ["--solver-workers", "1", "--budgets-ms", "20"]
    result = measured(capsys, "--parts", "workers,solver", "--workers", "2", *budgets)
    assert set(result["workers"]) == {"2"}
    assert all_positive(result["workers"]["2"])
    solver = result["solver"]
    assert solver["needed_plans_per_s"] == 12.8
    assert solver["by_budget_ms"]["20"]["plans_per_s_of_a_worker"] == solver["plans_per_s_by_workers"]["1"] > 0


@needs_redis
def test_planners_that_share_a_redis(capsys: pytest.CaptureFixture[str]) -> None:
    result = measured(capsys, "--parts", "planners", "--workers", "2")
    assert set(result["planners"]) == {"2"}
    assert all_positive(result["planners"]["2"])


def test_what_a_job_needs() -> None:
    one = Throughput(plans_per_s=4.0, loop_cpu_s_a_plan=0.005, worker_waited_s_a_plan=0.002)
    assert scaling.needs(one, 200, 12.8) == {
        "plans_per_s_of_a_worker": 4.0,
        "beside_the_budget_ms": 50.0,
        "waited_for_a_core_ms": 2.0,
        "worker_cores_needed": 4,
        "event_loop_core_share": 0.064,
    }


def test_shares_are_of_what_one_worker_does() -> None:
    shares = scaling.shares(
        {count: Throughput(plans_per_s=rate, loop_cpu_s_a_plan=0.0) for count, rate in ((1, 5.0), (4, 16.0))}, 200
    )
    assert [values["share_of_linear"] for values in shares.values()] == [1.0, 0.8]
    assert [values["share_of_sleep"] for values in shares.values()] == [1.0, 0.8]
