"""Shows that nothing a client sends, or leaves unread, breaks a planner for others."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import cases
import grpc
import grpc.aio
import pytest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from integration.harness import PATIENT_PLANNER
from waiting import PATIENCE_S

from benchmarks.fuzzing.calls import Ending, send
from benchmarks.fuzzing.good_job import GoodJob
from benchmarks.fuzzing.inputs import METHODS, SERVICE, Input, draw_from, request_type
from benchmarks.fuzzing.messages import change_fields, random_message
from benchmarks.fuzzing.planner import KEPT_ITERATIONS, PLANNER
from benchmarks.fuzzing.requests import NUM_JOBS, register_job, valid_request
from benchmarks.fuzzing.spoilers import SPOILERS
from benchmarks.planner_process import CHANNEL_OPTIONS, PlannerProcess
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_MESSAGE = 4 * 2**20
STAYS = 0.3  # of `Input.patience`: calls are waited for, streams for a few hundredths of a second
FIXED_WINDOW = (("grpc.http2.bdp_probe", 0),)
ITERATIONS = 3 * KEPT_ITERATIONS
REGISTRATIONS, GIVEN_UP_S = 24, 0.3

EXAMPLES = settings(max_examples=300, deadline=None, derandomize=True)
methods = st.sampled_from(METHODS)
generators = st.integers(0, 2**64 - 1).map(random.Random)


class Site:
    """A planner, a client that means harm, and one that does not."""

    def __init__(self, planner: PlannerProcess, runner: asyncio.Runner) -> None:
        self.planner = planner
        self.run = runner.run
        self._hostile, self.own = self.run(self._connect())
        self.good = GoodJob(self.own)
        self.run(self.good.register())

    async def _connect(self) -> tuple[grpc.aio.Channel, grpc.aio.Channel]:
        return tuple(grpc.aio.insecure_channel(self.planner.address, options=CHANNEL_OPTIONS) for _ in range(2))

    def send(self, method: str, request: bytes) -> Ending:
        """Make one call."""
        return self.send_input(Input(kind="drawn", method=method, request=request, patience=STAYS))

    def send_input(self, sent: Input) -> Ending:
        """Make the call that an input says."""
        return self.run(send(self._hostile, self.planner.address, sent))

    async def refused(self, method: str, request: bytes) -> grpc.aio.AioRpcError:
        """Make a call that gets a status and no answer, so that it can be a stream, too."""
        call = self._hostile.unary_unary(f"/{SERVICE.full_name}/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request, timeout=PATIENCE_S)
        return caught.value

    def is_unharmed(self) -> None:
        """See that the planner does for others what it did before."""
        self.run(self.good.plan_next())
        self.run(self.good.make_room(0))
        assert self.planner.is_serving()
        assert self.planner.troubles() == []

    async def close(self) -> None:
        """Hang up."""
        await self._hostile.close()
        await self.own.close()


@pytest.fixture(scope="module")
def planner_and_clients() -> Iterator[Site]:
    with (
        PlannerProcess(PLANNER | PATIENT_PLANNER | {names.MAX_MESSAGE_BYTES: str(LARGEST_MESSAGE)}) as planner,
        asyncio.Runner() as runner,
    ):
        site = Site(planner, runner)
        yield site
        runner.run(site.close())


@pytest.fixture
def site(planner_and_clients: Site) -> Iterator[Site]:
    """A planner that must be as good after a test as before."""
    yield planner_and_clients
    planner_and_clients.is_unharmed()


def test_any_message(site: Site) -> None:
    @EXAMPLES
    @given(method=methods, rng=generators)
    def check(method: str, rng: random.Random) -> None:
        assert_allowed(site.send(method, random_message(request_type(method), rng).SerializeToString()))

    check()


def test_valid_requests_with_changed_fields(site: Site) -> None:
    @EXAMPLES
    @given(method=methods, rng=generators, number=st.integers(0, NUM_JOBS - 1), changes=st.integers(0, 6))
    def check(method: str, rng: random.Random, number: int, changes: int) -> None:
        request = valid_request(method, number, rng, clock=0)
        change_fields(request, rng, changes)
        assert_allowed(site.send(method, request.SerializeToString()))

    check()


def test_any_bytes(site: Site) -> None:
    @EXAMPLES
    @given(method=methods, request=st.binary(max_size=200))
    def check(method: str, request: bytes) -> None:
        assert_allowed(site.send(method, request))

    check()


def test_spoilt_bytes(site: Site) -> None:
    @EXAMPLES
    @given(method=methods, rng=generators, spoilers=st.lists(st.sampled_from(SPOILERS), min_size=1, max_size=4))
    def check(method: str, rng: random.Random, spoilers: list[object]) -> None:
        request = valid_request(method, 1, rng, clock=0).SerializeToString()
        for spoiler in spoilers:
            assert callable(spoiler)
            request = spoiler(request, rng)
        assert_allowed(site.send(method, request))

    check()


def test_strange_orders_unknown_methods_and_other_protocols(site: Site) -> None:
    @EXAMPLES
    @given(rng=generators, clock=st.integers(0, 10_000))
    def check(rng: random.Random, clock: int) -> None:
        for sent in draw_from(rng, clock):
            assert_allowed(site.send_input(sent))

    check()


@pytest.mark.parametrize("method", METHODS)
def test_request_that_is_too_large_is_refused(site: Site, method: str) -> None:
    refused = site.run(site.refused(method, bytes(LARGEST_MESSAGE + 1)))
    assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(LARGEST_MESSAGE) in (refused.details() or "")


def assert_allowed(ending: Ending) -> None:
    """Check that a call ended as the contract says."""
    assert not ending.fault, ending


def test_stream_that_nobody_reads_stops_no_other(site: Site) -> None:
    """What is written fills the window, then the one stream stands while the other gets everything."""
    request = cases.request(cases.job(ranks=2), cases.documents(200))
    request.job.options.budget_ms = 1
    key = {"job_id": "unread", "attempt": 1}

    async def scenario() -> None:
        options = (*CHANNEL_OPTIONS, *FIXED_WINDOW)
        async with (
            grpc.aio.insecure_channel(site.planner.address, options=options) as lazy,
            grpc.aio.insecure_channel(site.planner.address, options=options) as diligent,
        ):
            stub = pb_grpc.PlannerServiceStub(diligent)
            await stub.RegisterJob(pb.RegisterJobRequest(**key, spec=request.job))
            opened = pb.StreamSchedulesRequest(**key)
            unread, read = pb_grpc.PlannerServiceStub(lazy).StreamSchedules(opened), stub.StreamSchedules(opened)
            await unread.initial_metadata()
            for iteration in range(ITERATIONS):
                await stub.SubmitBatch(pb.SubmitBatchRequest(**key, iteration=iteration, batch=request.batch))
                response = await asyncio.wait_for(read.read(), PATIENCE_S)
                assert (response.iteration, response.WhichOneof("result")) == (iteration, "schedule")
                assert response.ByteSize() > 2**15
            taken = []
            with contextlib.suppress(grpc.aio.AioRpcError):  # judged by its status below
                async for response in unread:
                    taken.append(response.iteration)
            assert taken == list(range(len(taken)))
            assert 0 < len(taken) < ITERATIONS
            assert await unread.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "too slowly" in await unread.details()

    site.run(scenario())


def test_flood_of_registrations_takes_turns_with_batches(site: Site) -> None:
    """However many partitions are waited for, and given up, a batch waits for one of them at most."""

    async def scenario() -> int:
        stub = pb_grpc.PlannerServiceStub(site.own)
        flood = [register_job(f"flood-{n}", n % NUM_JOBS, attempt=1, loaded=False) for n in range(REGISTRATIONS)]
        calls = [stub.RegisterJob(request, timeout=GIVEN_UP_S) for request in flood]
        assert grpc.StatusCode.DEADLINE_EXCEEDED in [await call.code() for call in calls]
        await site.good.plan_next()
        return sum(job.job_id.startswith("flood") for job in (await stub.ListJobs(pb.ListJobsRequest())).jobs)

    assert site.run(scenario()) < REGISTRATIONS // 2
