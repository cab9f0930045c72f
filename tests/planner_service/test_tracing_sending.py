"""Shows what spans say of calls and batches, and that planners that share a store write one trace a batch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from dip.planner.v1 import planner_pb2 as pb
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import StatusCode
from overruns import extend_limits_until_a_plan_is_found
from scripted_engine import CANNOT_FIT, HANG_WITH_PLAN
from serving import RANKS, client, is_refused, planner, register, run, served, stream, submit, take
from shared_stores import clients, planners

from planner_service.store import ReplicaKey
from planner_service.tracing import Tracer, use
from planner_service.tracing.identity import identity_of
from planner_service.tracing.sending import Ids, SendingTracer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.sampling import Sampler

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"
SERVICE = "dip.planner.v1.PlannerService"


class Spans:
    """What has ended so far."""

    def __init__(self, sampler: Sampler | None) -> None:
        ids = Ids()
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(sampler, id_generator=ids, shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = SendingTracer(self._provider, ids)

    def of(self, iteration: int) -> dict[str, list[ReadableSpan]]:
        """Spans of a batch's trace, by name."""
        trace = identity_of(replica(), iteration).trace
        found: dict[str, list[ReadableSpan]] = {}
        for span in self._exporter.get_finished_spans():
            if span.context.trace_id == trace:
                found.setdefault(span.name, []).append(span)
        return found

    def calls(self, method: str) -> list[ReadableSpan]:
        """Spans of calls of a method."""
        name = f"{SERVICE}/{method}"
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def below(self, span: ReadableSpan) -> list[ReadableSpan]:
        """Spans whose parent a span is."""
        ended = self._exporter.get_finished_spans()
        return [other for other in ended if other.parent and other.parent.span_id == span.context.span_id]

    async def wait(self, enough: Callable[[], object]) -> None:
        """Wait for spans that end after an answer has been sent."""
        while not enough():
            await asyncio.sleep(0.005)


@pytest.fixture
def traced() -> Iterator[Callable[..., Spans]]:
    """Return what has this process trace until the end of the test."""
    before: list[Tracer] = []

    def start(sampler: Sampler | None = None) -> Spans:
        spans = Spans(sampler)
        before.append(use(spans.tracer))
        return spans

    yield start
    for tracer in reversed(before):
        use(tracer)


def replica() -> ReplicaKey:
    return ReplicaKey(job_id="job", attempt=1, replica=0)


def only(spans: list[ReadableSpan]) -> ReadableSpan:
    (span,) = spans
    return span


async def streamed(spans: Spans, stub: Any, iteration: int) -> None:
    """Have every rank take one iteration's schedule, and stay until the planner knows that it did."""
    calls = [stub.StreamSchedules(stream(iteration, rank=rank)) for rank in range(RANKS)]
    for call in calls:
        await take(call, 1)
    await spans.wait(lambda: "deliver" in spans.of(iteration))
    for call in calls:
        call.cancel()


def test_a_batch_is_one_trace_from_its_submission_to_its_delivery(traced: Callable[..., Spans]) -> None:
    spans = traced()

    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(3), metadata=(("traceparent", TRACEPARENT),))
            await streamed(spans, stub, 3)
            await spans.wait(lambda: "plan" in spans.of(3))

    run(scenario())
    found = spans.of(3)
    assert set(found) == {"submit", "wait", "plan", "solve", "settle", "deliver"}
    root = only(found["submit"])
    assert (root.context.span_id, root.parent) == (identity_of(replica(), 3).root, None)
    assert {only(found[name]).parent.span_id for name in ("wait", "plan", "deliver")} == {root.context.span_id}
    plan = only(found["plan"])
    assert {only(found[name]).parent.span_id for name in ("solve", "settle")} == {plan.context.span_id}
    about = {"dip.job": "job", "dip.attempt": 1, "dip.replica": 0, "dip.iteration": 3}
    for name in ("submit", "wait", "plan", "deliver"):
        assert about.items() <= only(found[name]).attributes.items()
    solve, settle, deliver = (only(found[name]) for name in ("solve", "settle", "deliver"))
    assert solve.attributes["dip.found_by"] == "scripted"
    assert solve.attributes["dip.makespan_us"] > 0
    assert solve.attributes["dip.gap"] >= 0
    assert [(event.name, event.attributes["dip.engine"]) for event in solve.events] == [("found", "scripted")]
    assert plan.start_time <= solve.start_time <= solve.end_time <= settle.start_time <= settle.end_time
    assert sorted(event.attributes["dip.rank"] for event in deliver.events) == [0, 1]
    assert deliver.end_time == deliver.events[-1].timestamp
    # The call itself is a part of its caller's trace, and each of both traces leads to the other.
    call = only(spans.calls("SubmitBatch"))
    assert (call.context.trace_id, call.parent.span_id) == (TRACE, PARENT)
    assert only(list(root.links)).context.span_id == call.context.span_id
    assert only(list(call.links)).context.trace_id == root.context.trace_id


def test_a_batch_that_is_submitted_again_begins_no_second_trace(traced: Callable[..., Spans]) -> None:
    spans = traced()

    async def scenario() -> None:
        async with planners({}, {}) as (_, servers), clients(*servers) as (one, other):
            await one.RegisterJob(register())
            for stub in (one, one, other):
                await stub.SubmitBatch(submit(0))
            await streamed(spans, other, 0)
            await spans.wait(lambda: len(spans.calls("SubmitBatch")) == 3)

    run(scenario())
    assert len(spans.of(0)["submit"]) == 1


def test_planners_that_share_a_store_write_into_one_trace(traced: Callable[..., Spans]) -> None:
    """One takes the batch and has no worker for it, the other plans it and streams it."""
    spans = traced()

    async def scenario() -> None:
        async with planners({"plan_jobs": "own"}, {}) as (_, servers), clients(*servers) as (one, other):
            await one.RegisterJob(register())
            await one.SubmitBatch(submit(0))
            await streamed(spans, other, 0)
            await spans.wait(lambda: "plan" in spans.of(0))

    run(scenario())
    assert {name: len(made) for name, made in spans.of(0).items() if name != "wait"} == {
        "submit": 1,
        "plan": 1,
        "solve": 1,
        "settle": 1,
        "deliver": 1,
    }


def test_what_calls_wait_for_is_a_part_of_them(traced: Callable[..., Spans]) -> None:
    spans = traced()

    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            answer = await stub.GetJob(pb.GetJobRequest(job_id="job"))
            job, partition = answer.effective_spec, answer.partition
            await stub.Plan(pb.PlanRequest(job=job, partition=partition, batch=submit(0).batch))

    run(scenario())
    registered, planned = only(spans.calls("RegisterJob")), only(spans.calls("Plan"))
    (partition,) = spans.below(registered)
    assert partition.name == "partition"
    (solve,) = spans.below(planned)
    assert (solve.name, solve.attributes["dip.found_by"]) == ("solve", "scripted")


def test_calls_say_what_they_are_about_and_how_they_ended(traced: Callable[..., Spans]) -> None:
    spans = traced()

    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await is_refused(stub.GetJob(pb.GetJobRequest(job_id="other")), grpc.StatusCode.NOT_FOUND)
            call = stub.StreamSchedules(stream(0, rank=1))
            await call.initial_metadata()
            call.cancel()
            await spans.wait(lambda: spans.calls("StreamSchedules"))

    run(scenario())
    registered = only(spans.calls("RegisterJob"))
    assert registered.attributes["rpc.system"] == "grpc"
    assert registered.attributes["rpc.grpc.status_code"] == 0
    assert registered.attributes["dip.job"] == "job"
    refused = only(spans.calls("GetJob"))
    assert (refused.attributes["dip.job"], refused.attributes["rpc.grpc.status_code"]) == ("other", 5)
    assert refused.status.status_code is StatusCode.UNSET, "the server did what it should"
    assert not refused.events, "a refusal is no error of ours"
    stream_span = only(spans.calls("StreamSchedules"))
    assert (stream_span.attributes["dip.rank"], stream_span.attributes["rpc.grpc.status_code"]) == (1, 1)


@pytest.mark.parametrize("traceparent", ["", "00-0-0-01", "nonsense\x7f", "00-" + "f" * 5000])
def test_a_traceparent_that_is_none_is_left_out(traced: Callable[..., Spans], traceparent: str) -> None:
    spans = traced()

    async def scenario() -> None:
        async with served() as stub:
            await stub.ListJobs(pb.ListJobsRequest(), metadata=(("traceparent", traceparent.replace("\x7f", "~")),))

    run(scenario())
    assert only(spans.calls("ListJobs")).parent is None


def test_searches_that_are_ended_and_batches_without_a_plan_say_why(
    traced: Callable[..., Spans], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = traced()

    async def scenario() -> None:
        async with planner(solve_grace_ms=100) as server, client(server) as stub:
            extend_limits_until_a_plan_is_found(monkeypatch, server)
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(0, HANG_WITH_PLAN))
            await stub.SubmitBatch(submit(1, CANNOT_FIT))
            await streamed(spans, stub, 1)
            await spans.wait(lambda: "plan" in spans.of(1))

    run(scenario())
    assert "did not stop" in str(only(spans.of(0)["solve"]).attributes["dip.interrupted"])
    assert "rank 1" in str(only(spans.of(1)["settle"]).attributes["dip.unplanned_reason"])


def test_a_sampler_takes_whole_batches_or_nothing_of_them(traced: Callable[..., Spans]) -> None:
    """Planners decide by the trace's number, each for itself and all alike."""
    spans = traced(TraceIdRatioBased(0.5))
    iterations = range(24)

    async def scenario() -> None:
        async with served(max_queued_batches=64) as stub:
            await stub.RegisterJob(register(budget_ms=10))
            for iteration in iterations:
                await stub.SubmitBatch(submit(iteration))
            calls = [stub.StreamSchedules(stream(0, rank=rank)) for rank in range(RANKS)]
            for call in calls:
                await take(call, len(iterations))
            # Whether the planner knows by now that ranks have the last is seen where that is taken.
            await spans.wait(
                lambda: all("deliver" in spans.of(iteration) for iteration in iterations if spans.of(iteration))
            )

    run(scenario())
    taken = {iteration for iteration in iterations if spans.of(iteration)}
    assert 0 < len(taken) < len(iterations)
    assert all({"submit", "plan", "deliver"} <= set(spans.of(iteration)) for iteration in taken)


def test_ranks_that_are_served_elsewhere_keep_no_span_open(traced: Callable[..., Spans]) -> None:
    spans = traced()

    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            call = stub.StreamSchedules(stream(0, rank=1))
            for iteration in (0, 1):  # with the second it is known that the first was sent
                await stub.SubmitBatch(submit(iteration))
                await take(call, 1)
            call.cancel()

    run(scenario())
    assert "deliver" not in spans.of(0)
    spans.tracer.end()
    assert [event.attributes["dip.rank"] for event in only(spans.of(0)["deliver"]).events] == [1]
