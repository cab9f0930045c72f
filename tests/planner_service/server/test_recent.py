"""Shows what a planner tells of a job and of its newest iterations, with each store, and that it stays small."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
import pytest
from dip.planner.v1 import planner_pb2 as pb
from redis_cases import empty
from serving import client, is_refused, planner, register, run
from waiting import PATIENCE_S
from watched_jobs import LATE, report, trained

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.pool import Planned
from planner_service.pool.messages import SplitPlan, Step
from planner_service.server import recent
from planner_service.server.recent import MOST_BYTES, plan_summary, statuses
from planner_service.store import RecentIteration
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner_service.store import PlanStore


CLOCKS_APART_S = 60.0
"""A Redis tells the time by the calendar's clock, which may be set meanwhile."""


@pytest.fixture(scope="module", params=["memory", *server_programs()])
def make_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], PlanStore | None]]:
    """Return what makes an empty store of each kind; None is the default one."""
    if request.param == "memory":
        yield lambda: None
        return
    with RedisServer(program=server_programs()[request.param]) as running:

        def make() -> RedisStore:
            empty(running)
            return RedisStore(running.url, timeout_s=PATIENCE_S)

        yield make


def test_what_became_of_each_iteration_is_told(make_store: Callable[[], PlanStore | None]) -> None:
    async def scenario() -> None:
        async with trained(store=make_store()) as server, client(server) as stub:
            found = await stub.GetJob(pb.GetJobRequest(job_id="job", recent_iterations=64))
            told = {(one.iteration, one.replica): one for one in found.recent}
            assert list(told) == sorted(told)
            assert [told[key].state for key in ((0, 0), (2, 0), (2, 1), (3, 0), (4, 0))] == [
                pb.ITERATION_STATE_PLANNED,
                pb.ITERATION_STATE_UNPLANNED,
                pb.ITERATION_STATE_PLANNED,
                pb.ITERATION_STATE_PLANNED,
                pb.ITERATION_STATE_WAITING,
            ]
            plan = (await stub.GetPlan(pb.GetPlanRequest(job_id="job"))).plan
            ran = told[0, 0]
            assert (ran.makespan_us, ran.lower_bound_us, ran.fallback) == (plan.makespan_us, plan.lower_bound_us, False)
            assert ran.found_by == plan.search.steps[-1].engine
            assert list(ran.ranks) == [
                pb.RankStatus(rank=rank, stalled_us=rank, measured_us=1_000_000 + rank) for rank in (0, 1)
            ]
            assert [(rank.fallback, rank.fallback_reason) for rank in told[1, 1].ranks] == [(True, LATE)] * 2
            assert told[2, 0].unplanned_reason
            assert not told[2, 0].ranks

    run(scenario())


def test_how_a_job_does_is_told(make_store: Callable[[], PlanStore | None]) -> None:
    async def scenario() -> None:
        began_s = time.monotonic()
        async with trained(store=make_store()) as server, client(server) as stub:
            (status,) = (await stub.ListJobs(pb.ListJobsRequest())).jobs
            assert (status.last_planned_iteration, status.last_reported_iteration) == (3, 1)
            assert (status.ranks, status.replicas, status.waiting_batches) == (2, 2, 1)
            assert (status.recent_reported_iterations, status.recent_fallback_iterations) == (2, 1)
            assert 0 <= status.quiet_ms <= 1000 * (time.monotonic() - began_s + CLOCKS_APART_S)
            assert (await stub.GetJob(pb.GetJobRequest(job_id="job"))).status.waiting_batches == 1

    run(scenario())


def test_a_question_names_a_replica_and_an_iteration() -> None:
    async def scenario() -> None:
        async with trained() as server, client(server) as stub:

            async def told(**asked: int) -> list[tuple[int, int]]:
                found = await stub.GetJob(pb.GetJobRequest(job_id="job", **asked))
                return [(status.iteration, status.replica) for status in found.recent]

            assert await told() == []
            assert await told(recent_iterations=1) == [(3, 1), (4, 0)]
            assert await told(recent_iterations=2, replica=0, last_iteration=2) == [(1, 0), (2, 0)]
            await is_refused(
                stub.GetJob(pb.GetJobRequest(job_id="job", recent_iterations=1, replica=2)),
                grpc.StatusCode.INVALID_ARGUMENT,
            )

    run(scenario())


def test_a_reason_is_kept_in_one_printable_line() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            await stub.ReportExecution(report(0, 0, reason="\x1b[31m" * 200))
            await stub.ReportExecution(report(0, 1))
            (status,) = (await stub.GetJob(pb.GetJobRequest(job_id="job", recent_iterations=1))).recent
            assert status.state == pb.ITERATION_STATE_UNSPECIFIED
            assert status.ranks[0].fallback_reason == (r"\x1b[31m" * 50)[:400]
            await is_refused(
                stub.ReportExecution(pb.ReportExecutionRequest(fallback_reason="no", job_id="job", attempt=1)),
                grpc.StatusCode.INVALID_ARGUMENT,
            )

    run(scenario())


@pytest.mark.parametrize(
    ("fallback", "interrupted", "compiled", "found_by"),
    [
        (False, "", True, "annealing"),
        (False, "out of time", True, "interrupted: out of time"),
        (True, "it died", False, "interrupted: it died"),
        (True, "", False, "no search: its kernels are not compiled yet"),
    ],
)
def test_what_found_a_plan_is_told(
    monkeypatch: pytest.MonkeyPatch, fallback: bool, interrupted: str, compiled: bool, found_by: str
) -> None:
    monkeypatch.setattr(recent, "are_compiled", lambda: compiled)
    plan = SplitPlan(
        answer=b"",
        responses=(),
        makespan_us=90,
        fallback=fallback,
        lower_bound_us=80,
        steps=(
            Step(elapsed_ms=1, engine="list", makespan_us=99),
            Step(elapsed_ms=5, engine="annealing", makespan_us=90),
        ),
    )
    told = pb.IterationStatus.FromString(plan_summary(Planned(plan=plan, elapsed_ms=7, interrupted=interrupted)))
    assert told == pb.IterationStatus(
        makespan_us=90, lower_bound_us=80, fallback=fallback, found_by=found_by, search_ms=7
    )


@pytest.mark.parametrize(
    ("asked", "replicas", "told", "iterations"),
    [
        ({"recent_iterations": 64}, 1, [0], 64),
        ({"recent_iterations": 12}, 128, range(128), 12),
        ({"recent_iterations": 64}, 128, range(128), 16),
        ({"recent_iterations": 64}, 65_536, range(512), 4),
        ({"recent_iterations": 64, "replica": 60_000}, 65_536, [60_000], 64),
        ({}, 2, [0, 1], 0),
    ],
)
def test_many_replicas_share_what_is_told(
    asked: dict[str, int], replicas: int, told: Sequence[int], iterations: int
) -> None:
    request = pb.GetJobRequest(job_id="job", **asked)
    assert list(recent.told_replicas(request, replicas)) == list(told)
    assert recent.told_iterations(request, recent.told_replicas(request, replicas)) == iterations


def test_an_answer_stays_small() -> None:
    rank = pb.RankStatus(rank=1, fallback=True, fallback_reason="x" * 400)
    reported = pb.IterationStatus(ranks=[rank] * 1_000).SerializeToString()
    kept = [
        RecentIteration(replica=replica, iteration=iteration, submitted=False, settled=False, reported=reported)
        for replica in (0, 1)
        for iteration in range(10)
    ]
    told = statuses(kept)
    assert 0 < sum(status.ByteSize() for status in told) <= MOST_BYTES
    assert [(status.iteration, status.replica) for status in told][-2:] == [(9, 0), (9, 1)]
    assert len(told) == MOST_BYTES // told[0].ByteSize()
