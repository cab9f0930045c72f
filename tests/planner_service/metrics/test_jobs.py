"""Shows that what is told of single jobs goes with them, and is bounded where nobody tells that they are over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb
from metric_samples import is_there, num_series, value
from serving import client, planner, register, run
from store_cases import record

from planner_service import metrics
from planner_service.metrics.jobs import JobMetrics
from planner_service.server.sampling import sample_store
from planner_service.store import MemoryStore

if TYPE_CHECKING:
    import pytest

JOBS = 1_000


def test_reports_are_counted_by_what_ran() -> None:
    jobs = JobMetrics()
    jobs.heard_of("mine")
    assert is_there("dip_reports_total", job_id="mine", ran="fallback")  # a rate needs the zero
    jobs.reported("mine", fallback=True, stalled_us=1_500_000)
    jobs.reported("mine", fallback=False, stalled_us=500_000)
    jobs.reported("mine", fallback=False, stalled_us=0)
    assert value("dip_reports_total", job_id="mine", ran="fallback") == 1
    assert value("dip_reports_total", job_id="mine", ran="plan") == 2
    assert value("dip_stalled_seconds_total", job_id="mine") == 2.0
    jobs.forget("mine")
    assert not is_there("dip_reports_total", job_id="mine", ran="plan")


def test_a_job_that_stands_is_told_until_it_is_forgotten() -> None:
    jobs = JobMetrics()
    jobs.stands("nobody heard of", lead=2, plan_bytes=1, report_bytes=2)
    assert not is_there("dip_job_lead_iterations", job_id="nobody heard of")
    jobs.heard_of("mine")
    jobs.stands("mine", lead=None, plan_bytes=10, report_bytes=20)
    assert not is_there("dip_job_lead_iterations", job_id="mine")
    jobs.stands("mine", lead=-1, plan_bytes=10, report_bytes=20)
    assert value("dip_job_lead_iterations", job_id="mine") == -1
    assert value("dip_job_kept_bytes", job_id="mine", kind="reports") == 20
    jobs.forget("mine")
    assert not is_there("dip_job_lead_iterations", job_id="mine")
    assert not is_there("dip_job_kept_bytes", job_id="mine", kind="plans")


def test_the_job_not_heard_of_for_longest_gives_way() -> None:
    jobs = JobMetrics(most=2)
    jobs.heard_of("a")
    jobs.heard_of("b")
    jobs.heard_of("a")
    jobs.heard_of("c")
    assert list(jobs.known) == ["a", "c"]
    assert not is_there("dip_stalled_seconds_total", job_id="b")
    for job_id in ("a", "c"):
        jobs.forget(job_id)


def test_a_thousand_jobs_registered_and_closed_leave_nothing() -> None:
    async def scenario() -> None:
        async with planner(max_jobs=4, kept_closed_jobs=1) as server, client(server) as stub:
            await stub.RegisterJob(register("first"))
            partition = (await stub.GetJob(pb.GetJobRequest(job_id="first"))).partition
            await stub.CloseJob(pb.CloseJobRequest(job_id="first"))
            for method in ("RegisterJob", "GetJob", "CloseJob"):
                while not value("dip_calls_total", method=method, code="OK"):
                    await asyncio.sleep(0.001)
            before = num_series()
            for number in range(JOBS):
                request = register(f"job-{number}")
                request.partition.CopyFrom(partition)
                await stub.RegisterJob(request)
                assert is_there("dip_reports_total", job_id=f"job-{number}", ran="plan")
                await stub.CloseJob(pb.CloseJobRequest(job_id=f"job-{number}"))
            assert num_series() == before

    run(scenario())


def test_jobs_that_end_elsewhere_are_dropped_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobMetrics()
    monkeypatch.setattr(metrics, "JOBS", jobs)

    async def scenario() -> None:
        store = MemoryStore()
        written = await store.put_job(record("closed elsewhere"))
        assert written is not None
        await store.put_job(record("open"))
        for job_id in ("closed elsewhere", "open", "forgotten"):
            jobs.heard_of(job_id)
        await store.put_job(replace(written, closed=True))
        looking = asyncio.create_task(sample_store(store))
        while list(jobs.known) != ["open"]:
            await asyncio.sleep(0)
        assert is_there("dip_job_kept_bytes", job_id="open", kind="plans")
        looking.cancel()

    run(scenario())
    jobs.forget("open")
