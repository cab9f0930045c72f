"""Shows that the largest pipelines fit the message limits, and that quiet connections live."""

from __future__ import annotations

import asyncio
import time

import cases
import grpc
import grpc.aio
import pytest
from dip.fallback import fallback_plan
from dip.planner.v1 import planner_pb2 as pb
from serving import CHANNEL_OPTIONS, client, is_refused, planner, refusal, register, run, served, stream, submit, take
from waiting import PATIENCE_S

from planner_service.pool.split import split_plan
from planner_service.server.channel_options import LEAST_PING_INTERVAL_MS

SERVICE = "/dip.planner.v1.PlannerService"
RANKS = 16
MICROBATCHES = 128
UNLIMITED = ("grpc.max_receive_message_length", -1)
UNLIMITED_SENT = ("grpc.max_send_message_length", -1)


def large() -> tuple[pb.RegisterJobRequest, pb.SubmitBatchRequest]:
    modules = [cases.module("vision", 32), cases.module("language", 64, inputs=["vision"])]
    spec = cases.job(modules, ranks=RANKS)
    registration = pb.RegisterJobRequest(job_id="job", attempt=1, spec=spec)
    microbatches = [
        [{"vision": [64 + 8 * k for k in range(12)], "language": [1500 + j]}] * 2 for j in range(MICROBATCHES)
    ]
    return registration, pb.SubmitBatchRequest(job_id="job", attempt=1, batch=cases.batch(microbatches))


def test_sixteen_ranks_and_128_microbatches_reach_clients_with_default_limits() -> None:
    async def scenario() -> None:
        async with (
            planner() as server,
            client(server) as stub,
            client(server, UNLIMITED) as reader,
        ):
            registration, submission = large()
            await stub.RegisterJob(registration)
            await stub.SubmitBatch(submission)
            for rank in range(RANKS):
                (response,) = await take(stub.StreamSchedules(stream(rank=rank)), 1)
                assert response.ByteSize() < 4 * 2**20
            answer = await reader.GetPlan(pb.GetPlanRequest(job_id="job"))
            assert len(answer.plan.ranks) == RANKS
            assert answer.request.batch == submission.batch
            plan = (await reader.Plan(answer.request)).plan
            assert [len(one.actions) for one in plan.ranks] == [len(one.actions) for one in answer.plan.ranks]

    run(scenario())


def test_event_loop_stays_free_while_big_plans_pass() -> None:
    """No turn of the loop takes as long as splitting a plan does, here and now.

    Of CPU time, and of many iterations in the first that is quiet: what the loop did for each plan, it would do in all
    of them.
    """

    async def scenario() -> None:
        async with (
            planner() as server,
            client(server) as stub,
            grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel,
        ):
            registration, submission = large()
            partition = (await stub.RegisterJob(registration)).partition
            # The clients are in this loop too: they send and receive bytes alone.
            submit_batch = channel.unary_unary(f"{SERVICE}/SubmitBatch")
            read = channel.unary_stream(f"{SERVICE}/StreamSchedules")
            streams = [read(stream(rank=rank).SerializeToString()) for rank in range(RANKS)]
            plan_request = pb.PlanRequest(job=registration.spec, batch=submission.batch, partition=partition)
            for iteration in range(40):
                submission.iteration = iteration
                request = submission.SerializeToString()
                turns_s: list[float] = []
                watching = asyncio.create_task(_watch_turns(turns_s))
                await submit_batch(request)
                await asyncio.gather(*(one.read() for one in streams))
                watching.cancel()
                if max(turns_s) < min(_split_s(plan_request) for _ in range(4)) / 2:
                    return
            pytest.fail("in each iteration something held the loop up")

    run(scenario())


def test_request_above_the_limit_is_exhausted() -> None:
    async def scenario() -> None:
        async with served(max_message_bytes=4 * 2**20) as stub:
            request = register()
            request.job_id = "x" * (4 * 2**20)
            await is_refused(stub.RegisterJob(request), grpc.StatusCode.RESOURCE_EXHAUSTED)

    run(scenario())


def test_request_that_is_small_only_while_it_is_compressed_is_exhausted() -> None:
    async def scenario() -> None:
        async with (
            planner(max_message_bytes=4 * 2**20) as server,
            grpc.aio.insecure_channel(
                server.address, options=[*CHANNEL_OPTIONS, UNLIMITED_SENT], compression=grpc.Compression.Gzip
            ) as channel,
        ):
            submit_batch = channel.unary_unary(f"{SERVICE}/SubmitBatch")
            error = await refusal(submit_batch(bytes(64 * 2**20)))  # tens of kilobytes on the wire
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "ecompressed" in (error.details() or "")

    run(scenario())


def test_pings_on_idle_streams_are_welcome() -> None:
    """Five pings of a client that is near the limit; gRPC's default server ends the connection at the third."""

    async def scenario() -> None:
        pinging = (
            ("grpc.keepalive_time_ms", LEAST_PING_INTERVAL_MS + 100),
            ("grpc.keepalive_timeout_ms", int(PATIENCE_S * 1000)),
            ("grpc.http2.max_pings_without_data", 0),
        )
        async with planner() as server, client(server, *pinging) as stub, client(server) as other:
            await stub.RegisterJob(register())
            call = stub.StreamSchedules(stream())
            await call.initial_metadata()
            reading = asyncio.ensure_future(call.read())
            _, quiet = await asyncio.wait({reading}, timeout=5.5 * (LEAST_PING_INTERVAL_MS + 100) / 1000)
            assert quiet == {reading}
            await other.SubmitBatch(submit(0))
            assert (await reading).iteration == 0

    run(scenario())


def _split_s(request: pb.PlanRequest) -> float:
    plan = fallback_plan(request.job, request.partition, request.batch)
    began_s = time.thread_time()
    split_plan(request, plan, 0)
    return time.thread_time() - began_s


async def _watch_turns(turns_s: list[float]) -> None:
    while True:
        began_s = time.thread_time()
        await asyncio.sleep(0.001)
        turns_s.append(time.thread_time() - began_s)
