"""Shows what the log tells of calls: whom they are from, what they are about, why they are refused, and how often."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from access_files import AccessFile, bearer
from dip.planner.v1 import planner_pb2 as pb
from serving import client, is_refused, planner, register, run, served, stream, submit, take

from planner_service.logs import Throttle
from planner_service.logs.fields import BoundFields, fields_of
from planner_service.logs.formats import TextLines
from planner_service.logs.throttle import MOST_LINES
from planner_service.server import telling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SERVICE = "dip.planner.v1.PlannerService"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Any]]]:
    """Return what gives the level and the fields of each line of telling that has such fields."""
    # All of a test is in one period, however long it takes.
    throttle = Throttle(logging.getLogger(telling.__name__), clock=lambda: 0.0, call_later=lambda *_: None)
    monkeypatch.setattr(telling, "_refused", throttle)
    fill = BoundFields()
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(fill)

    def of(**fields: object) -> list[dict[str, Any]]:
        found = []
        for record in caplog.records:
            held = {**fields_of(record), "level": record.levelname, "message": record.getMessage()}
            if fields.items() <= held.items():
                found.append(held)
        return found

    yield of
    caplog.handler.removeFilter(fill)


def test_lines_within_a_call_say_what_it_is_about(lines: Callable[..., list[Any]]) -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(4))
            call = stub.StreamSchedules(stream(4))
            await take(call, 1)
            call.cancel()
            await stub.CloseJob(pb.CloseJobRequest(job_id="job"))

    run(scenario())
    (registered,) = lines(message="registered")
    assert (registered["job"], registered["attempt"], registered["method"]) == ("job", 1, "RegisterJob")
    assert registered["caller"].startswith("address:")
    (submitted,) = lines(message="submitted")
    assert (submitted["job"], submitted["attempt"], submitted["replica"], submitted["iteration"]) == ("job", 1, 0, 4)
    (planned,) = lines(message="planned")
    assert (planned["job"], planned["attempt"], planned["replica"], planned["iteration"]) == ("job", 1, 0, 4)
    assert "method" not in planned, "nobody's call: any planner may plan it"
    (closed,) = lines(message="closed")
    assert (closed["job"], closed["attempt"]) == ("job", 1)


def test_strangers_are_warned_of_and_others_are_not(lines: Callable[..., list[Any]], tmp_path: Path) -> None:
    file = AccessFile(tmp_path / "access.toml")
    token = file.let_in("trainers", jobs=["job"])

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_refused(stub.ListJobs(pb.ListJobsRequest()), grpc.StatusCode.UNAUTHENTICATED)
            other = stub.GetJob(pb.GetJobRequest(job_id="other"), metadata=bearer(token))
            await is_refused(other, grpc.StatusCode.PERMISSION_DENIED)
            await is_refused(stub.SubmitBatch(submit(0), metadata=bearer(token)), grpc.StatusCode.NOT_FOUND)

    run(scenario())
    (stranger,) = lines(code="UNAUTHENTICATED")
    assert (stranger["level"], stranger["method"]) == ("WARNING", "ListJobs")
    assert stranger["peer"].startswith("ipv4:127.0.0.1:")
    (denied,) = lines(code="PERMISSION_DENIED")
    assert (denied["level"], denied["job"], denied["caller"]) == ("WARNING", "other", "token:trainers")
    (unknown,) = lines(code="NOT_FOUND")
    assert (unknown["level"], unknown["job"], unknown["iteration"]) == ("INFO", "job", 0)
    assert not [record for record in lines() if token in str(record)]


def test_methods_that_clients_make_up_are_one_kind(lines: Callable[..., list[Any]], tmp_path: Path) -> None:
    """Else each would have its five lines, and stay in memory for a while."""
    file = AccessFile(tmp_path / "access.toml")
    file.let_in("trainers", jobs=["job"])

    async def scenario() -> None:
        async with (
            planner(access_file=file.path) as server,
            grpc.aio.insecure_channel(server.address, options=[("grpc.enable_http_proxy", 0)]) as channel,
        ):
            for number in range(40):
                made_up = channel.unary_unary(f"/{SERVICE}/Nothing{number}")
                with pytest.raises(grpc.aio.AioRpcError):
                    await made_up(b"")

    run(scenario())
    refused = lines(code="UNAUTHENTICATED")
    assert len(refused) == MOST_LINES
    assert {record["method"] for record in refused} == {"unknown"}


def test_a_name_that_would_forge_lines_is_refused_in_one(
    lines: Callable[..., list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    name = "job\n2026-01-01 00:00:00,000 CRITICAL planner_service: forged\x1b[2J\u202e"

    async def scenario() -> None:
        async with served() as stub:
            await is_refused(stub.SubmitBatch(submit(0, job_id=name)), grpc.StatusCode.INVALID_ARGUMENT)

    run(scenario())
    (refused,) = lines(code="INVALID_ARGUMENT")
    assert "job" not in refused, "a name that is none is no field"
    written = [TextLines().format(record) for record in caplog.records]
    assert all(line.isprintable() for text in written for line in text.split("\n"))
    assert not [line for text in written for line in text.split("\n") if line.startswith("2026-01-01")]
