"""Shows how the planner starts, what it answers about itself, and that it drains cleanly."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest
import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from serving import (
    FREE,
    LONG_MS,
    ClosingStore,
    batch,
    client,
    is_refused,
    planner,
    register,
    run,
    served,
    spec,
    stream,
    submit,
    take,
    worker_pids,
)

from planner_service.loops import stop_where_a_loop_fails
from planner_service.server.lifecycle import PlannerServer
from planner_service.server.listening import ListenError
from planner_service.settings import Settings

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("service", ["", "dip.planner.v1.PlannerService"])
def test_health_is_answered_on_both_addresses(service: str) -> None:
    async def scenario() -> None:
        async with planner() as server:
            while not server.idle_workers:
                await asyncio.sleep(0.001)
            for address in (server.address, server.health_address):
                async with grpc.aio.insecure_channel(address) as channel:
                    request = health_pb2.HealthCheckRequest(service=service)
                    assert (await health_pb2_grpc.HealthStub(channel).Check(request)).status == SERVING

    run(scenario())


def test_health_turns_before_the_planner_goes() -> None:
    async def scenario() -> None:
        async with (
            planner() as server,
            grpc.aio.insecure_channel(server.address) as trainers,
            grpc.aio.insecure_channel(server.health_address) as orchestrators,
        ):
            watches = [
                health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                for channel in (trainers, orchestrators)
            ]
            assert [(await watch.read()).status for watch in watches] == [SERVING] * 2
            draining = asyncio.create_task(server.drain())
            assert [(await watch.read()).status for watch in watches] == [NOT_SERVING] * 2
            assert not draining.done()  # it waits for the first watch, a call like any other
            watches[0].cancel()
            await draining

    run(scenario())


def test_reflection_lists_the_service() -> None:
    async def scenario() -> None:
        async with planner() as server, grpc.aio.insecure_channel(server.address) as channel:
            call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            listed = {service.name for service in (await call.read()).list_services_response.service}
            assert {"dip.planner.v1.PlannerService", "grpc.health.v1.Health"} <= listed
            call.cancel()

    run(scenario())


def test_draining_ends_streams_and_calls_with_unavailable() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            idle = stub.StreamSchedules(stream())
            await idle.initial_metadata()
            await stub.SubmitBatch(submit(0))
            await take(idle, 1)
            planning = asyncio.ensure_future(
                stub.Plan(pb.PlanRequest(job=spec(budget_ms=LONG_MS), batch=batch(scripted_engine.HANG)))
            )
            while not server._pool._busy:
                await asyncio.sleep(0.001)
            draining = asyncio.create_task(server.drain())
            await is_refused(idle.read(), grpc.StatusCode.UNAVAILABLE)
            await is_refused(planning, grpc.StatusCode.UNAVAILABLE)
            await draining
            await is_refused(stub.ListJobs(pb.ListJobsRequest()), grpc.StatusCode.UNAVAILABLE)

    run(scenario())


def test_draining_during_a_partition_ends_the_registration() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            request = register()
            request.spec.model.modules[0].name = scripted_engine.HANG_PARTITION
            request.spec.model.modules[1].inputs[0] = scripted_engine.HANG_PARTITION
            registering = asyncio.ensure_future(stub.RegisterJob(request))
            while not server._pool._busy:
                await asyncio.sleep(0.001)
            await server.drain()
            await is_refused(registering, grpc.StatusCode.UNAVAILABLE)

    run(scenario())


def test_workers_are_gone_after_draining() -> None:
    async def scenario() -> None:
        async with served(search_workers=2) as stub:
            await stub.Plan(pb.PlanRequest(job=spec(), batch=batch()))
            assert len(worker_pids()) == 2
        while worker_pids():
            await asyncio.sleep(0.01)

    run(scenario())


@pytest.mark.parametrize("setting", ["listen", "health_listen"])
def test_port_in_use_names_the_setting_and_what_to_do(setting: str) -> None:
    async def scenario() -> None:
        async with planner() as other:
            settings = Settings(**FREE | {setting: other.address})
            with pytest.raises(ListenError) as caught:
                await PlannerServer(settings).start()
            assert str(caught.value) == (
                f"cannot listen on {other.address}: another process listens there (another planner, perhaps); "
                f"set DIP_{setting.upper()} to a free address, 127.0.0.1:0 takes any free port"
            )

    run(scenario())


def test_planner_that_cannot_listen_lets_go_of_its_store() -> None:
    async def scenario() -> None:
        store = ClosingStore()
        async with planner() as other:
            with pytest.raises(ListenError):
                await PlannerServer(Settings(**FREE | {"listen": other.address}), store=store).start()
        assert store.closed

    run(scenario())


def test_unix_socket_serves_and_is_not_taken_away(tmp_path: object) -> None:
    async def scenario() -> None:
        address = f"unix://{tmp_path}/planner.sock"
        async with served(listen=address) as stub:
            await stub.RegisterJob(register())
            with pytest.raises(ListenError, match="another process listens there"):
                await PlannerServer(Settings(**FREE | {"listen": address})).start()
            assert (await stub.ListJobs(pb.ListJobsRequest())).jobs

    run(scenario())


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("unix:///no/such/directory/planner.sock", "there is no directory /no/such/directory"),
        ("unix:///etc/passwd", "a file that is not a socket has this name"),
        ("unix:///proc/planner.sock", "cannot listen on unix:///proc/planner.sock: "),
        ("192.0.2.1:0", "annot assign requested address"),
    ],
)
def test_other_addresses_that_cannot_be_had(address: str, why: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ListenError) as caught:
            await PlannerServer(Settings(**FREE | {"listen": address, "allow_insecure": True})).start()
        assert why in str(caught.value)
        assert "set DIP_LISTEN" in str(caught.value)

    run(scenario())


def test_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def scenario() -> None:
        settings = Settings(**FREE | {"listen": "node-7:0", "allow_insecure": True})
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(ListenError, match="cannot listen on node-7:0: Name or service not known; set DIP_LISTEN"):
            await PlannerServer(settings).start()

    run(scenario())


def test_proxy_in_the_environment_is_not_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())

    run(scenario())


def test_server_of_grpc_that_ends_by_itself_stops_the_planner() -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()
        async with planner() as server:
            stop_where_a_loop_fails(stopped.set)
            await server._health_server.stop(grace=0)  # as gRPC does after an error of its own
            await stopped.wait()

    run(scenario())


def test_draining_is_no_failure_of_grpcs_server() -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()
        async with planner() as server:
            stop_where_a_loop_fails(stopped.set)
            await server.drain()
            assert not stopped.is_set()

    run(scenario())
