"""Shows who gets in by which token, to which jobs, and that withdrawing one harms nobody who holds another."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, Any

import cases
import grpc
import pytest
from access_files import AccessFile, bearer
from dip.planner.v1 import planner_pb2 as pb
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from serving import CHANNEL_OPTIONS, client, planner, refusal, register, report, run, stream, submit, take

from planner_service.access import AccessError, Tokens, access

if TYPE_CHECKING:
    from pathlib import Path

    from planner_service.server.lifecycle import PlannerServer

QUICK_LOOK_S = 0.01
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
NOBODY = (
    ("no token", ()),
    ("unknown token", bearer("guess")),
    ("empty token", bearer("")),
    ("no scheme", (("authorization", "guess"),)),
    ("another scheme", (("authorization", "Basic guess"),)),
    ("two of them", bearer("guess") + bearer("guess")),
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccessFile:
    monkeypatch.setattr(access, "LOOK_S", QUICK_LOOK_S)
    return AccessFile(tmp_path / "access.toml")


def requests(job_id: str) -> dict[str, Any]:
    """A request of every method, of one job where a method is of one."""
    request = cases.request(cases.job(ranks=2), cases.documents(2))
    return {
        "RegisterJob": register(job_id),
        "SubmitBatch": submit(0, job_id=job_id),
        "StreamSchedules": stream(job_id=job_id),
        "ReportExecution": report(0, job_id=job_id),
        "Plan": pb.PlanRequest(job=request.job, batch=request.batch),
        "ListJobs": pb.ListJobsRequest(),
        "GetJob": pb.GetJobRequest(job_id=job_id),
        "GetPlan": pb.GetPlanRequest(job_id=job_id),
        "CloseJob": pb.CloseJobRequest(job_id=job_id),
    }


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    """Await a call, or the first response of a stream, that must fail."""
    error = await refusal(call.read() if hasattr(call, "read") else call)
    return error.code(), error.details() or ""


async def is_well(server: PlannerServer, token: str, job_id: str) -> None:
    """See that a trainer whose token is good is served as ever."""
    async with client(server) as stub:
        how = {"metadata": bearer(token)}
        await stub.RegisterJob(register(job_id), **how)
        await stub.SubmitBatch(submit(0, job_id=job_id), **how)
        (response,) = await take(stub.StreamSchedules(stream(job_id=job_id), **how), 1)
        assert response.HasField("schedule")


def test_without_a_known_token_nothing_is_answered(file: AccessFile) -> None:
    good = file.let_in("good")

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            for what, metadata in NOBODY:
                for method, request in requests("job").items():
                    code, said = await refused(getattr(stub, method)(request, metadata=metadata))
                    assert code == grpc.StatusCode.UNAUTHENTICATED, (what, method)
                    assert "guess" not in said
                    assert "DIP_TOKEN_FILE" in said or "'Bearer TOKEN'" in said
            await is_well(server, good, "job")

    run(scenario())


def test_of_who_may_not_call_no_message_is_read(file: AccessFile) -> None:
    """Neither decoded, which would be INVALID_ARGUMENT, nor received, which would be RESOURCE_EXHAUSTED."""
    file.let_in("good")
    viewer = file.let_in("viewer", roles=["viewer"])
    most = 4 * 2**20

    async def scenario() -> None:
        async with (
            planner(access_file=file.path, max_message_bytes=most) as server,
            grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel,
        ):
            submit_batch = channel.unary_unary("/dip.planner.v1.PlannerService/SubmitBatch")
            for request in (b"\xff", bytes(most + 1)):
                code, _ = await refused(submit_batch(request))
                assert code == grpc.StatusCode.UNAUTHENTICATED
                code, _ = await refused(submit_batch(request, metadata=bearer(viewer)))
                assert code == grpc.StatusCode.PERMISSION_DENIED
            unknown = channel.unary_unary("/dip.planner.v1.PlannerService/Unheard")
            assert (await refused(unknown(b"")))[0] == grpc.StatusCode.UNAUTHENTICATED

    run(scenario())


def test_viewer_reads_and_changes_nothing(file: AccessFile) -> None:
    trainer, viewer = file.let_in("trainer"), file.let_in("viewer", roles=["viewer"])

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_well(server, trainer, "job")
            for method, request in requests("job").items():
                call = getattr(stub, method)(request, metadata=bearer(viewer))
                if method in ("ListJobs", "GetJob", "GetPlan"):
                    assert await call
                else:
                    code, said = await refused(call)
                    assert code == grpc.StatusCode.PERMISSION_DENIED
                    assert said == f"token:viewer (viewer) may not call {method}, which is for operator, trainer"
            assert not (await stub.GetJob(pb.GetJobRequest(job_id="job"), metadata=bearer(viewer))).status.closed

    run(scenario())


def test_another_jobs_token_is_told_the_same_whether_there_is_such_a_job_or_not(file: AccessFile) -> None:
    mine = file.let_in("team-a", jobs=["a-*", "shared"])
    theirs = file.let_in("team-b", jobs=["b-1"])

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_well(server, theirs, "b-1")
            named = {method for method, request in requests("b-1").items() if hasattr(request, "job_id")}
            assert len(named) == 7
            for method in named:
                answers = {}
                for job_id in ("b-1", "b-2", "a"):
                    code, said = await refused(getattr(stub, method)(requests(job_id)[method], metadata=bearer(mine)))
                    assert code == grpc.StatusCode.PERMISSION_DENIED
                    answers[job_id] = said.replace(f"{job_id!r}", "JOB")
                assert set(answers.values()) == {"token:team-a may not touch job JOB; its jobs are a-*, shared"}
            await is_well(server, mine, "shared")
            kept = await stub.GetJob(pb.GetJobRequest(job_id="b-1"), metadata=bearer(theirs))
            assert (kept.status.attempt, kept.status.closed) == (1, False)

    run(scenario())


def test_everybody_lists_their_own_jobs(file: AccessFile) -> None:
    everything = file.let_in("operator", roles=["operator"])
    tokens = {name: file.let_in(name, jobs=[f"{name}-*"]) for name in ("a", "b")}
    watcher = file.let_in("watcher", roles=["viewer"], jobs=["b-2"])

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            for name, token in tokens.items():
                for number in (1, 2):
                    await stub.RegisterJob(register(f"{name}-{number}"), metadata=bearer(token))

            async def listed(token: str) -> list[str]:
                answer = await stub.ListJobs(pb.ListJobsRequest(), metadata=bearer(token))
                return [job.job_id for job in answer.jobs]

            assert await listed(everything) == ["a-1", "a-2", "b-1", "b-2"]
            assert await listed(tokens["a"]) == ["a-1", "a-2"]
            assert await listed(watcher) == ["b-2"]

    run(scenario())


def test_probes_need_no_token_and_reflection_does(file: AccessFile) -> None:
    viewer = file.let_in("viewer", roles=["viewer"], jobs=["x"])

    async def scenario() -> None:
        async with planner(access_file=file.path) as server:
            for address in (server.address, server.health_address):
                async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
                    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                    assert answer.status == health_pb2.HealthCheckResponse.SERVING
            async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
                stub = reflection_pb2_grpc.ServerReflectionStub(channel)
                request = reflection_pb2.ServerReflectionRequest(list_services="")
                code, _ = await refused(stub.ServerReflectionInfo(iter([request])))
                assert code == grpc.StatusCode.UNAUTHENTICATED
                (answer,) = await take(stub.ServerReflectionInfo(iter([request]), metadata=bearer(viewer)), 1)
                assert "dip.planner.v1.PlannerService" in str(answer)

    run(scenario())


def test_rotated_token_leaves_streams_alone_and_a_withdrawn_one_ends_its_own(file: AccessFile) -> None:
    """Old and new are both let in while trainers change over; then the old one goes."""
    old = file.let_in("rotated", jobs=["a"])
    kept = file.let_in("kept", jobs=["b"])

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_well(server, old, "a")
            await is_well(server, kept, "b")
            of_old = stub.StreamSchedules(stream(1, job_id="a"), metadata=bearer(old))
            of_kept = stub.StreamSchedules(stream(1, job_id="b"), metadata=bearer(kept))
            for opened in (of_old, of_kept):
                await opened.initial_metadata()

            new = file.let_in("rotated", old, "the new one", jobs=["a"])
            await until_let_in(stub, new)
            await stub.SubmitBatch(submit(1, job_id="a"), metadata=bearer(new))
            assert (await of_old.read()).iteration == 1
            of_new = stub.StreamSchedules(stream(2, job_id="a"), metadata=bearer(new))
            await of_new.initial_metadata()

            file.let_in("rotated", new, jobs=["a"])
            code, said = await refused(of_old)
            assert code == grpc.StatusCode.UNAVAILABLE
            assert said == "the token that this stream was opened with is withdrawn; connect again"
            assert (await refused(stub.ListJobs(pb.ListJobsRequest(), metadata=bearer(old))))[0] == UNAUTHENTICATED
            await stub.SubmitBatch(submit(2, job_id="a"), metadata=bearer(new))
            assert (await of_new.read()).iteration == 2
            await stub.SubmitBatch(submit(1, job_id="b"), metadata=bearer(kept))
            assert (await of_kept.read()).iteration == 1

    run(scenario())


def test_stream_that_is_being_opened_while_its_token_is_withdrawn_ends_too(file: AccessFile) -> None:
    """Let in by its headers a moment before, and not yet among the open ones."""
    token = file.let_in("one")

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_well(server, token, "a")
            server._servicer.on_tokens(Tokens([]))
            code, said = await refused(stub.StreamSchedules(stream(job_id="a"), metadata=bearer(token)))
            assert code == grpc.StatusCode.UNAVAILABLE
            assert "is withdrawn" in said

    run(scenario())


@pytest.mark.parametrize("narrowed", [{"roles": ["viewer"]}, {"jobs": ["b"]}])
def test_entry_that_allows_less_ends_streams_too(file: AccessFile, narrowed: dict[str, list[str]]) -> None:
    token = file.let_in("one")

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_well(server, token, "a")
            opened = stub.StreamSchedules(stream(1, job_id="a"), metadata=bearer(token))
            await opened.initial_metadata()
            file.let_in("one", token, **narrowed)
            assert (await refused(opened))[0] == grpc.StatusCode.UNAVAILABLE
            again = stub.StreamSchedules(stream(1, job_id="a"), metadata=bearer(token))
            assert (await refused(again))[0] == grpc.StatusCode.PERMISSION_DENIED

    run(scenario())


def test_broken_file_during_the_run_neither_locks_out_nor_lets_in(
    file: AccessFile, caplog: pytest.LogCaptureFixture
) -> None:
    token = file.let_in("one")

    async def scenario() -> None:
        async with planner(access_file=file.path) as server, client(server) as stub:
            await is_well(server, token, "a")
            opened = stub.StreamSchedules(stream(1, job_id="a"), metadata=bearer(token))
            await opened.initial_metadata()
            for count, broken in enumerate(
                ("", "[[tokens]]\nname = ", "tokens = []", file.text()[:-40], None), start=1
            ):
                if broken is None:
                    file.path.unlink()
                else:
                    file.path.write_text(broken)
                while len(errors(caplog)) < count:
                    await asyncio.sleep(QUICK_LOOK_S)
                await is_well(server, token, f"b{count}")
                assert (await refused(stub.ListJobs(pb.ListJobsRequest())))[0] == UNAUTHENTICATED
                await stub.SubmitBatch(submit(count, job_id="a"), metadata=bearer(token))
                assert (await opened.read()).iteration == count
                await until_let_in(stub, file.let_in(f"mended-{count}"))
                assert len(errors(caplog)) == count
                said = errors(caplog)[-1]
                assert said.startswith(f"what was there before stays in force: DIP_ACCESS_FILE={file.path}: ")
            assert token not in caplog.text
            assert hashlib.sha256(token.encode()).hexdigest() not in caplog.text

    run(scenario())


def test_file_that_is_bad_at_the_start_is_no_start(file: AccessFile) -> None:
    for content in ("", "[[tokens]]\nname = 'x'"):
        file.path.write_text(content)

        async def scenario() -> None:
            with pytest.raises(AccessError, match="DIP_ACCESS_FILE="):
                async with planner(access_file=file.path):
                    pass

        run(scenario())


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the planner says; asyncio may say something of the event loop of a test before."""
    ours = [record for record in caplog.records if record.name.startswith("planner_service")]
    return [record.getMessage() for record in ours if record.levelno >= logging.ERROR]


async def until_let_in(stub: Any, token: str) -> None:
    """Wait until the planner has read what a test has written."""
    while await stub.ListJobs(pb.ListJobsRequest(), metadata=bearer(token)).code() == UNAUTHENTICATED:
        await asyncio.sleep(QUICK_LOOK_S)
