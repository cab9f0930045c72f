"""Shows that what one client may have at a time is bounded, and that another has its own share besides."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import scripted_engine
from access_files import AccessFile, Metadata, bearer
from dip.planner.v1 import planner_pb2 as pb
from serving import LONG_MS, batch, client, planner, refusal, register, retry_delay, run, spec, stream, submit, take

from planner_service import settings as names
from planner_service.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from dip.planner.v1 import planner_pb2_grpc as pb_grpc

    from planner_service.server.lifecycle import PlannerServer


JOB = pb.GetJobRequest(job_id="job")


class Site:
    """A planner with two clients: one that takes what it can, and one that wants its share."""

    def __init__(
        self, server: PlannerServer, stub: pb_grpc.PlannerServiceAsyncStub, greedy: Metadata, modest: Metadata
    ) -> None:
        self.server = server
        self.stub = stub
        self.greedy = greedy
        self.modest = modest


@pytest.fixture
def access(tmp_path: Path) -> AccessFile:
    return AccessFile(tmp_path / "access.toml")


@contextlib.asynccontextmanager
async def site(access: AccessFile, **settings: Any) -> AsyncIterator[Site]:
    greedy, modest = bearer(access.let_in("greedy")), bearer(access.let_in("modest", roles=["operator"]))
    async with planner(access_file=access.path, **settings) as server, client(server) as stub:
        while not server.idle_workers:
            await asyncio.sleep(0.01)
        yield Site(server, stub, greedy, modest)


async def is_exhausted(call: Any, setting: str, said: str) -> None:
    """Await a call that must be refused, naming the setting and the limit, with when to come back."""
    error = await refusal(call)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"{setting} allows" in str(error.details())
    assert said in str(error.details())
    assert retry_delay(error) > 0


def test_streams(access: AccessFile) -> None:
    async def scenario() -> None:
        async with site(access, max_client_streams=2) as here:
            await here.stub.RegisterJob(register(), metadata=here.greedy)
            opened = [here.stub.StreamSchedules(stream(), metadata=here.greedy) for _ in range(2)]
            for call in opened:
                await call.initial_metadata()
            more = here.stub.StreamSchedules(stream(), metadata=here.greedy)
            await is_exhausted(more.read(), names.MAX_CLIENT_STREAMS, "2 streams of token:greedy are open")
            await here.stub.SubmitBatch(submit(0), metadata=here.greedy)
            await take(here.stub.StreamSchedules(stream(), metadata=here.modest), 1)
            opened[0].cancel()
            await take(opened[1], 1)
            while not await _is_served(here.stub.StreamSchedules(stream(), metadata=here.greedy)):
                await asyncio.sleep(0.01)

    run(scenario())


def test_jobs(access: AccessFile) -> None:
    async def scenario() -> None:
        async with site(access, max_client_jobs=2) as here:
            for job_id in ("one", "two"):
                await here.stub.RegisterJob(register(job_id), metadata=here.greedy)
            third = here.stub.RegisterJob(register("three"), metadata=here.greedy)
            await is_exhausted(third, names.MAX_CLIENT_JOBS, "2 jobs of token:greedy are open")
            await here.stub.RegisterJob(register("three"), metadata=here.modest)
            # It stays a job of whoever opened it: its later attempts are no new job of anybody.
            await here.stub.RegisterJob(register("one", attempt=2), metadata=here.modest)
            await here.stub.RegisterJob(register("two", attempt=2), metadata=here.greedy)
            await is_exhausted(
                here.stub.RegisterJob(register("four"), metadata=here.greedy), names.MAX_CLIENT_JOBS, "2 jobs"
            )
            await here.stub.CloseJob(pb.CloseJobRequest(job_id="one"), metadata=here.modest)
            await here.stub.RegisterJob(register("four"), metadata=here.greedy)

    run(scenario())


def test_job_that_opens_again_belongs_to_whoever_opens_it(access: AccessFile) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with site(access, max_client_jobs=1, store=store) as here:
            await here.stub.RegisterJob(register("one"), metadata=here.greedy)
            await here.stub.CloseJob(pb.CloseJobRequest(job_id="one"), metadata=here.greedy)
            await here.stub.RegisterJob(register("one", attempt=2), metadata=here.modest)
            assert [record.owner for record in await store.jobs()] == ["token:modest"]
            await here.stub.RegisterJob(register("two"), metadata=here.greedy)
            await here.stub.RegisterJob(register("one", attempt=3), metadata=here.greedy)
            assert [record.owner for record in await store.jobs()] == ["token:modest", "token:greedy"]

    run(scenario())


def test_jobs_whose_partition_is_being_made(access: AccessFile) -> None:
    async def scenario() -> None:
        async with site(access, max_client_jobs=1) as here:
            slow = register("slow")
            slow.spec.model.modules[0].name = scripted_engine.HANG_PARTITION
            slow.spec.model.modules[1].inputs[0] = scripted_engine.HANG_PARTITION
            while here.server.idle_workers:  # until it came in time, to be given up while the partition is made
                call = here.stub.RegisterJob(slow, metadata=here.greedy, timeout=0.5)
                assert (await refusal(call)).code() == grpc.StatusCode.DEADLINE_EXCEEDED
            slow.job_id = "another"
            more = here.stub.RegisterJob(slow, metadata=here.greedy)
            await is_exhausted(more, names.MAX_CLIENT_JOBS, "1 jobs of token:greedy are open")

    run(scenario())


def test_calls(access: AccessFile) -> None:
    async def scenario() -> None:
        async with site(access, max_client_calls=2) as here:
            await here.stub.RegisterJob(register(), metadata=here.greedy)
            hanging = pb.PlanRequest(job=register().spec, batch=submit(0, scripted_engine.HANG).batch)
            hanging.job.options.budget_ms = LONG_MS
            waiting = [here.stub.Plan(hanging, metadata=here.greedy) for _ in range(2)]
            while not await _is_exhausted_by(here.stub.GetJob(JOB, metadata=here.greedy)):
                await asyncio.sleep(0.01)
            more = here.stub.GetJob(JOB, metadata=here.greedy)
            await is_exhausted(more, names.MAX_CLIENT_CALLS, "2 calls of token:greedy are under way")
            await here.stub.ListJobs(pb.ListJobsRequest(), metadata=here.modest)
            for call in waiting:
                assert not call.done()
                call.cancel()
            while await _is_exhausted_by(here.stub.GetJob(JOB, metadata=here.greedy)):
                await asyncio.sleep(0.01)

    run(scenario())


def test_streams_are_no_calls_once_they_are_open(access: AccessFile) -> None:
    async def scenario() -> None:
        async with site(access, max_client_calls=1) as here:
            await here.stub.RegisterJob(register(), metadata=here.greedy)
            for _ in range(3):
                await here.stub.StreamSchedules(stream(), metadata=here.greedy).initial_metadata()
            await here.stub.ListJobs(pb.ListJobsRequest(), metadata=here.modest)

    run(scenario())


def test_bytes_of_a_jobs_batches_that_wait(access: AccessFile) -> None:
    async def scenario() -> None:
        async with site(access, max_queued_bytes=2**20) as here:
            await here.stub.RegisterJob(register(budget_ms=LONG_MS), metadata=here.greedy)
            await here.stub.RegisterJob(register("other"), metadata=here.modest)
            large = submit(0, scripted_engine.HANG)
            large.batch.microbatches[0].samples[0].instances["vision"].units.extend([200] * 400_000)
            assert 2**19 < large.batch.ByteSize() < 2**20
            await here.stub.SubmitBatch(large, metadata=here.greedy)
            large.iteration = 1
            await is_exhausted(
                here.stub.SubmitBatch(large, metadata=here.greedy), names.MAX_QUEUED_BYTES, "of 1048576 bytes already"
            )
            await here.stub.SubmitBatch(submit(2), metadata=here.greedy)
            large.job_id = "other"
            await here.stub.SubmitBatch(large, metadata=here.modest)

    run(scenario())


async def _is_served(call: Any) -> bool:
    try:
        await call.read()
    except grpc.aio.AioRpcError:
        return False
    return True


async def _is_exhausted_by(call: Any) -> bool:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return bool(error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED)
    return False


def test_calls_of_plan_take_turns_with_anothers(access: AccessFile, gate: Callable[[], None]) -> None:
    async def scenario() -> None:
        async with site(access, max_queued_batches=8) as found:
            slow = pb.PlanRequest(job=spec(budget_ms=LONG_MS), batch=batch(scripted_engine.WAIT_AT_GATE))
            greedy = [asyncio.ensure_future(found.stub.Plan(slow, metadata=found.greedy)) for _ in range(5)]
            (refused,), waiting = await asyncio.wait(greedy, return_when=asyncio.FIRST_COMPLETED)
            error = refused.exception()
            assert isinstance(error, grpc.aio.AioRpcError)
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "calls of Plan of token:greedy" in str(error.details())
            quick = pb.PlanRequest(job=spec(), batch=batch())
            asked = (found.stub.Plan, quick), (found.stub.RegisterJob, register("modest-job"))
            for number, (method, request) in enumerate(asked, start=1):
                modest = method(request, metadata=found.modest)
                while found.server._pool.waiting < 5 - number:  # behind the one at the gate: all others, and this
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(gate)
                await modest
                while (ended := sum(call.done() for call in waiting)) < number:
                    await asyncio.sleep(0.01)
                assert ended == number
            for call in waiting:
                call.cancel()

    run(scenario())
