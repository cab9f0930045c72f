"""Planners that share a Redis: sidecars that serve a training between them, and a shared planner for their overflow."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import urllib.request
from typing import TYPE_CHECKING

import grpc
import pytest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from integration.harness import POLL_S, Planner, patient_process
from redis_cases import needs_redis
from serving import CHANNEL_OPTIONS, register, submit
from waiting import PATIENCE_S, until

from benchmarks.redis_server import RedisServer
from planner_service import settings as planner_names
from trainer_agent import settings as agent_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from integration.harness import Ranks

    from benchmarks.planner_process import PlannerProcess

FIRST_PLANNED, LAST = 3, 15

pytestmark = needs_redis


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def sidecar(redis: RedisServer) -> dict[str, str]:
    """Settings of a planner that plans for the jobs of its own node."""
    return {planner_names.STORE: redis.url, planner_names.PLAN_JOBS: "own"}


def test_two_sidecars_share_the_ranks_of_one_pipeline(
    redis: RedisServer, start_ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    with contextlib.ExitStack() as planners:
        endpoints = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            planner = Planner(tmp_path / name, sidecar(redis)).start()
            planners.callback(planner.close)
            endpoints.append(planner.endpoint)
        # Each waits for what takes long on a busy machine: that plans are late is no matter of this test.
        patient = {agent_names.SCHEDULE_WAIT_MS: str(int(PATIENCE_S * 1000))}
        ranks = start_ranks(endpoints[0], endpoints[0], endpoints[1], endpoints[1], variables=patient)
        job = ranks.wait_until_ready()
        ranks.go_beside(planner, job["job_id"], FIRST_PLANNED)
        fallbacks = ranks.go_beside(planner, job["job_id"], LAST - FIRST_PLANNED)
        stats = ranks.finish()
    assert not any(fallbacks), ranks.reasons
    assert [one["iterations"] for one in stats] == [LAST] * 4
    assert [one["reconnects"] for one in stats] == [0] * 4


def test_a_shared_planner_plans_what_a_sidecar_has_no_worker_for(redis: RedisServer) -> None:
    with patient_process(sidecar(redis)) as own, stub(own) as planner:
        planner.RegisterJob(register(), timeout=PATIENCE_S)
        planner.SubmitBatch(submit(0), timeout=PATIENCE_S)
        wait_for_plan(planner, 0)
        (solver,) = own.solver_pids()
        os.kill(solver, signal.SIGSTOP)
        for iteration in (1, 2):  # the first keeps the solver busy, the second waits
            planner.SubmitBatch(submit(iteration), timeout=PATIENCE_S)
        until(lambda: "\ndip_busy_workers 1.0\n" in metrics_of(own))
        with patient_process({planner_names.STORE: redis.url}) as shared:
            wait_for_plan(planner, 2)
            assert why_not_planned(planner, 1) == "iteration 1 of replica 0 is not planned yet"
            with stub(shared) as other:
                assert other.GetPlan(plan_request(2), timeout=PATIENCE_S).plan.ranks
        os.kill(solver, signal.SIGCONT)
        wait_for_plan(planner, 1)


def test_a_sidecar_leaves_the_jobs_of_others_alone(redis: RedisServer) -> None:
    with patient_process(sidecar(redis)) as own, patient_process(sidecar(redis)) as other, stub(own) as planner:
        planner.RegisterJob(register(), timeout=PATIENCE_S)
        planner.SubmitBatch(submit(0), timeout=PATIENCE_S)
        wait_for_plan(planner, 0)
        (solver,) = own.solver_pids()
        os.kill(solver, signal.SIGSTOP)
        planner.SubmitBatch(submit(1), timeout=PATIENCE_S)
        planner.SubmitBatch(submit(2), timeout=PATIENCE_S)
        with stub(other) as theirs:
            theirs.RegisterJob(register("theirs"), timeout=PATIENCE_S)
            theirs.SubmitBatch(submit(0, job_id="theirs"), timeout=PATIENCE_S)
            wait_for_plan(theirs, 0, job_id="theirs")
        assert why_not_planned(planner, 2) == "iteration 2 of replica 0 is not planned yet"
        os.kill(solver, signal.SIGCONT)
        wait_for_plan(planner, 2)


def metrics_of(planner: PlannerProcess) -> str:
    with urllib.request.urlopen(f"http://{planner.metrics_address}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


@contextlib.contextmanager
def stub(planner: PlannerProcess) -> Iterator[pb_grpc.PlannerServiceStub]:
    with grpc.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
        yield pb_grpc.PlannerServiceStub(channel)


def plan_request(iteration: int, job_id: str = "job") -> pb.GetPlanRequest:
    return pb.GetPlanRequest(job_id=job_id, iteration=iteration)


def why_not_planned(planner: pb_grpc.PlannerServiceStub, iteration: int, job_id: str = "job") -> str:
    """What a planner says where it has no plan; empty where it has one."""
    try:
        planner.GetPlan(plan_request(iteration, job_id), timeout=PATIENCE_S)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.NOT_FOUND:
            raise
        return str(error.details())
    return ""


def wait_for_plan(planner: pb_grpc.PlannerServiceStub, iteration: int, job_id: str = "job") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while said := why_not_planned(planner, iteration, job_id):
        assert time.monotonic() < deadline, said
        time.sleep(POLL_S)
