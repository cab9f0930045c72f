"""Shows that headers which are no text end their own call, and neither the planner nor the quiet of its log."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from integration.harness import PATIENT_PLANNER
from waiting import PATIENCE_S

from benchmarks.fuzzing.good_job import GoodJob
from benchmarks.hostile_clients import http2
from benchmarks.hostile_clients.__main__ import guarded_planner
from benchmarks.planner_process import CHANNEL_OPTIONS
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.hostile_clients.__main__ import Metadata
    from benchmarks.planner_process import PlannerProcess

NO_TEXT = "\udcff\udcfe"  # two bytes that are no UTF-8
SERVICE = "/dip.planner.v1.PlannerService/"
PATHS = (f"{SERVICE}ListJobs{NO_TEXT}", NO_TEXT, f"/{NO_TEXT}/ListJobs", "/grpc.health.v1.Health/\udc80")


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[PlannerProcess, Metadata]]:
    with guarded_planner(PATIENT_PLANNER | {names.LOG_LEVEL: "DEBUG"}) as (planner, _, good):
        yield planner, good


def ends(address: str, path: str, extra: Metadata = ()) -> bool:
    """Make a call on a connection of its own; whether it gets an end."""
    with http2.RawConnection(address) as connection:
        connection.greet()
        connection.send(http2.call(1, path, b"", extra))
        return any(
            stream == 1 and (kind == http2.RST_STREAM or (kind == http2.HEADERS and flags & http2.END_STREAM))
            for kind, flags, stream, _ in connection.frames()
        )


def is_unharmed(planner: PlannerProcess, good: Metadata, attempt: int) -> None:
    async def served() -> None:
        async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
            job = GoodJob(channel, metadata=good)
            await job.start_anew(attempt=attempt)
            await job.plan_next()

    asyncio.run(asyncio.wait_for(served(), PATIENCE_S))
    assert planner.alive
    assert planner.is_serving()
    assert planner.troubles() == []


def test_strangers_path_that_is_no_text(site: tuple[PlannerProcess, Metadata]) -> None:
    planner, good = site
    for address in (planner.address, planner.health_address):
        for path in PATHS:
            assert ends(address, path)
    is_unharmed(planner, good, attempt=1)


def test_header_that_is_no_text_is_not_repeated(site: tuple[PlannerProcess, Metadata]) -> None:
    planner, good = site
    secret = secrets.token_urlsafe(32)
    for header in ("authorization", "traceparent", "x-other"):
        assert ends(planner.address, f"{SERVICE}ListJobs", ((header, f"Bearer {secret}{NO_TEXT}"),))
    assert secret not in planner.log()
    is_unharmed(planner, good, attempt=2)
