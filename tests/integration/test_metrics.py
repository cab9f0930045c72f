"""Shows that all that the dashboard and the alerts ask for moves, in a planner that is used, misused and broken.

One ``dip serve`` with its real solver, TLS, and a real Redis; its metrics are read as Prometheus reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import urllib.request
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from certificates import Authority, Pair
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from integration.harness import patient_process
from observability_files import Selector, expressions, selectors
from prometheus_client.parser import text_string_to_metric_families
from redis_cases import needs_redis, redis_store
from serving import batch, register, report, stream, submit
from waiting import PATIENCE_S, until

from benchmarks.planner_process import CHANNEL_OPTIONS
from benchmarks.redis_server import RedisServer
from planner_service import settings as names
from planner_service.server.claimed import MOST_TRIES
from planner_service.store import Claim, Claimant
from planner_service.warmup import compile_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.planner_process import PlannerProcess

CONSTANT = {"dip_build_info", "dip_workers", "process_max_fds"}
"""They tell what the planner is, not what it does."""

pytestmark = needs_redis


class Scrapes:
    """What was read of one planner, time after time."""

    def __init__(self, planner: PlannerProcess) -> None:
        self._planner = planner
        self._values: defaultdict[tuple[str, frozenset[tuple[str, str]]], set[float]] = defaultdict(set)

    def look(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Read once more."""
        with urllib.request.urlopen(f"http://{self._planner.metrics_address}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for which, value in found.items():
            self._values[which].add(value)
        return found

    def value(self, name: str, **labels: str) -> float:
        """One sample, as it is now; 0 where there is none."""
        return self.look().get((name, frozenset(labels.items())), 0.0)

    def comes_to(self, wanted: float, name: str, **labels: str) -> None:
        """Read until a sample has this value: clients know of most things before they are counted."""
        until(lambda: self.value(name, **labels) == wanted)

    def moved(self, selector: Selector) -> bool:
        """Whether one of the samples that a query asks for changed, or came with a value that is not 0."""
        return any(
            values != {0.0} and (len(values) > 1 or labels)
            for (name, labels), values in self._values.items()
            if name == selector.name and selector.takes(dict(labels))
        )


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def certificate(authority: Authority) -> Pair:
    return authority.pair()


@pytest.fixture
def planner(redis: RedisServer, certificate: Pair) -> Iterator[PlannerProcess]:
    compile_kernels()  # nothing to do where the set-up did: without them nothing is searched
    settings = {names.STORE: redis.url, names.SEARCH_WORKERS: "1"}
    with patient_process(settings | certificate.server_environment()) as running:
        yield running


@pytest.fixture
def stub(planner: PlannerProcess, authority: Authority) -> Iterator[pb_grpc.PlannerServiceStub]:
    with grpc.secure_channel(planner.address, authority.trusted(), options=CHANNEL_OPTIONS) as channel:
        yield pb_grpc.PlannerServiceStub(channel)


def test_everything_asked_for_moves(
    planner: PlannerProcess,
    stub: pb_grpc.PlannerServiceStub,
    redis: RedisServer,
    certificate: Pair,
    authority: Authority,
) -> None:
    scrapes = Scrapes(planner)
    scrapes.look()
    streamed = _train(stub, scrapes)
    _let_batches_wait(stub, planner, redis, scrapes)
    assert next(streamed).iteration == 1
    assert "planners ended" in next(streamed).unplanned_reason
    _fill_store(stub, redis, scrapes)
    (solver,) = planner.solver_pids()
    os.kill(solver, signal.SIGKILL)
    scrapes.comes_to(1, "dip_worker_restarts_total", reason="died")
    scrapes.comes_to(1, "dip_ready_workers")
    certificate.overwrite(authority.pair(not_after=datetime.now(UTC) + timedelta(days=3)))
    until(lambda: 0 < _certificate_ends(scrapes) - time.time() < timedelta(days=4).total_seconds())
    redis.kill()
    scrapes.comes_to(0, "dip_store_available")
    redis.start()
    scrapes.comes_to(1, "dip_store_available")
    with pytest.raises(grpc.RpcError):
        list(streamed)  # the store has lost all
    scrapes.comes_to(0, "dip_open_streams")
    until(lambda: not _told_of_jobs(scrapes))
    asked = {
        selector: where
        for where, expression in expressions()
        for selector in selectors(expression)
        if selector.name not in CONSTANT
    }
    still = {f"{asked[selector]}: {selector}" for selector in asked if not scrapes.moved(selector)}
    assert still == set()
    _constants_are_right(scrapes)


def _train(stub: pb_grpc.PlannerServiceStub, scrapes: Scrapes) -> Iterator[pb.StreamSchedulesResponse]:
    """Run iteration 0 of a job: planned by a search, reported by two ranks, one of which fell back."""
    assert stub.RegisterJob(register(budget_ms=100), timeout=PATIENCE_S).partition.chunks
    streamed = stub.StreamSchedules(stream(), timeout=10 * PATIENCE_S)
    stub.SubmitBatch(submit(0), timeout=PATIENCE_S)
    assert next(streamed).HasField("schedule")
    scrapes.comes_to(1, "dip_settled_batches_total", outcome="search")
    scrapes.comes_to(1, "dip_search_duration_seconds_count")
    scrapes.comes_to(1, "dip_plan_gap_ratio_count")
    scrapes.comes_to(1, "dip_open_streams")
    stub.ReportExecution(report(0, rank=0, stalled_us=250_000), timeout=PATIENCE_S)
    fine = report(0, rank=1)
    fine.fallback = False
    stub.ReportExecution(fine, timeout=PATIENCE_S)
    scrapes.comes_to(1, "dip_reports_total", job_id="job", ran="fallback")
    scrapes.comes_to(1, "dip_reports_total", job_id="job", ran="plan")
    scrapes.comes_to(0.25, "dip_stalled_seconds_total", job_id="job")
    with pytest.raises(grpc.RpcError):
        stub.GetJob(pb.GetJobRequest(job_id="unknown"), timeout=PATIENCE_S)
    scrapes.comes_to(1, "dip_calls_total", method="GetJob", code="NOT_FOUND")
    until(lambda: scrapes.value("dip_job_kept_bytes", job_id="job", kind="reports") > 0)
    return streamed


def _let_batches_wait(
    stub: pb_grpc.PlannerServiceStub, planner: PlannerProcess, redis: RedisServer, scrapes: Scrapes
) -> None:
    """Stop the solver, so that a batch waits; let other planners end over it, until nobody tries any more."""
    (solver,) = planner.solver_pids()
    os.kill(solver, signal.SIGSTOP)
    for iteration in (1, 2):
        stub.SubmitBatch(submit(iteration), timeout=PATIENCE_S)
    scrapes.comes_to(1, "dip_queue_batches")
    until(lambda: scrapes.value("dip_queue_oldest_age_seconds") > 0)
    scrapes.comes_to(1, "dip_queue_claimed_batches")
    scrapes.comes_to(1, "dip_busy_workers")
    asyncio.run(asyncio.wait_for(_end_over(redis, iteration=2), PATIENCE_S))
    os.kill(solver, signal.SIGCONT)
    scrapes.comes_to(1, "dip_settled_batches_total", outcome="abandoned")
    scrapes.comes_to(0, "dip_queue_batches")
    scrapes.comes_to(0, "dip_queue_claimed_batches")
    stub.SubmitBatch(submit(3), timeout=PATIENCE_S)
    scrapes.comes_to(3, "dip_job_lead_iterations", job_id="job")
    stub.ReportExecution(report(5), timeout=PATIENCE_S)
    stub.SubmitBatch(submit(4), timeout=PATIENCE_S)
    scrapes.comes_to(1, "dip_settled_batches_total", outcome="late")


async def _end_over(redis: RedisServer, *, iteration: int) -> None:
    """Claim a batch as planners do that end without a word, until there have been enough of them."""
    async with redis_store(redis) as store:
        for number in range(MOST_TRIES):
            dead = Claimant(name=f"dead {number}", lease_ms=1, workers=1)
            while not isinstance(claim := await store.claim(dead, []), Claim):
                await asyncio.sleep(0.001)
            assert claim.key.iteration == iteration


def _fill_store(stub: pb_grpc.PlannerServiceStub, redis: RedisServer, scrapes: Scrapes) -> None:
    """Leave the store no room for a job's first batch."""
    stub.RegisterJob(register("other"), timeout=PATIENCE_S)
    with contextlib.closing(redis.client()) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(grpc.RpcError) as refused:
            stub.SubmitBatch(submit(0, job_id="other"), timeout=PATIENCE_S)
        client.config_set("maxmemory", 0)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    until(lambda: scrapes.value("dip_store_errors_total", error="full") >= 1)
    scrapes.comes_to(1, "dip_calls_total", method="SubmitBatch", code="RESOURCE_EXHAUSTED")


def _certificate_ends(scrapes: Scrapes) -> float:
    return scrapes.value("dip_tls_certificate_expiry_timestamp_seconds", certificate="server")


def _told_of_jobs(scrapes: Scrapes) -> bool:
    return any("job_id" in dict(labels) for _, labels in scrapes.look())


def _constants_are_right(scrapes: Scrapes) -> None:
    found = scrapes.look()
    (build,) = (dict(labels) for name, labels in found if name == "dip_build_info")
    assert build["version"]
    scrapes.comes_to(1, "dip_workers")
    assert scrapes.value("process_max_fds") > scrapes.value("process_open_fds")


def test_planners_of_one_store_tell_of_the_same_queue(redis: RedisServer) -> None:
    shared = {names.STORE: redis.url, names.SEARCH_WORKERS: "1"}
    with patient_process(shared) as first, patient_process(shared) as second:
        scrapes = [Scrapes(first), Scrapes(second)]
        with grpc.insecure_channel(first.address, options=CHANNEL_OPTIONS) as channel:
            stub = pb_grpc.PlannerServiceStub(channel)
            request = register(budget_ms=100)
            request.partition.CopyFrom(default_partition(request.spec, batch()))
            stub.RegisterJob(request, timeout=PATIENCE_S)
            for each in scrapes:
                each.comes_to(1, "dip_ready_workers")
            for planner in (first, second):
                (solver,) = planner.solver_pids()
                os.kill(solver, signal.SIGSTOP)
            for iteration in range(5):
                stub.SubmitBatch(submit(iteration), timeout=PATIENCE_S)
        for each in scrapes:
            each.comes_to(3, "dip_queue_batches")
            each.comes_to(2, "dip_queue_claimed_batches")
