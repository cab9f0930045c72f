"""Shows whose certificates are taken on either side, and that files are replaced without breaking a stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from access_files import AccessFile, bearer
from certificates import YESTERDAY, Authority, Pair
from cryptography import x509
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving import CHANNEL_OPTIONS, planner, refusal, register, run, stream, submit, take

from planner_service.access import AccessError, Caller, access, current_caller
from planner_service.server.servicer import PlannerServicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from planner_service.server.lifecycle import PlannerServer

QUICK_LOOK_S = 0.01
OWN_CONNECTION = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_S", QUICK_LOOK_S)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """An authority that nobody here trusts."""
    return Authority(tmp_path, "stranger")


@contextlib.asynccontextmanager
async def connected(
    server: PlannerServer, credentials: grpc.ChannelCredentials | None, *, host: str = "127.0.0.1"
) -> AsyncIterator[pb_grpc.PlannerServiceAsyncStub]:
    address = f"{host}:{server.address.rpartition(':')[2]}"
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=OWN_CONNECTION)
    async with channel:
        yield pb_grpc.PlannerServiceStub(channel)


async def is_served(server: PlannerServer, credentials: grpc.ChannelCredentials, job_id: str = "job") -> None:
    async with connected(server, credentials) as stub:
        await stub.RegisterJob(register(job_id))
        await stub.SubmitBatch(submit(0, job_id=job_id))
        (response,) = await take(stub.StreamSchedules(stream(job_id=job_id)), 1)
        assert response.HasField("schedule")


async def why_not_served(
    server: PlannerServer, credentials: grpc.ChannelCredentials | None, *, host: str = "127.0.0.1"
) -> str:
    async with connected(server, credentials, host=host) as stub:
        error = await refusal(stub.ListJobs(pb.ListJobsRequest()))
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        return error.details() or ""


def test_tls_without_certificates_of_clients(authority: Authority, stranger: Authority) -> None:
    async def scenario() -> None:
        async with planner(**authority.pair().server_settings()) as server:
            assert "CERTIFICATE_VERIFY_FAILED" in await why_not_served(server, stranger.trusted())
            await why_not_served(server, None)
            await is_served(server, authority.trusted())

    run(scenario())


def test_client_must_show_a_good_certificate_where_authorities_are_set(
    authority: Authority, stranger: Authority
) -> None:
    good = authority.pair("trainer-7", common_name="trainer-7")
    strangers = stranger.pair("trainer-7")
    expired = authority.pair("trainer-7", not_before=YESTERDAY - timedelta(days=9), not_after=YESTERDAY)
    future = authority.pair("trainer-7", not_before=datetime.now(UTC) + timedelta(days=9))

    async def scenario() -> None:
        settings = authority.pair().server_settings() | {"tls_client_ca_file": authority.file}
        async with planner(**settings) as server:
            await is_served(server, authority.trusted(good), "before")
            for bad in (None, strangers, expired, future):
                assert await why_not_served(server, authority.trusted(bad))
            assert await why_not_served(server, None)
            await is_served(server, authority.trusted(good), "after")

    run(scenario())


def test_certificate_names_its_caller(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    callers: list[Caller] = []
    list_jobs = PlannerServicer.list_jobs

    async def noted(self: PlannerServicer, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:
        callers.append(current_caller())
        return await list_jobs(self, request, context)

    monkeypatch.setattr(PlannerServicer, "list_jobs", noted)
    file = AccessFile(authority.file.parent / "access.toml")
    token = file.let_in("team-a")
    settings = authority.pair().server_settings() | {"tls_client_ca_file": authority.file}

    async def scenario() -> None:
        trusted = authority.trusted(authority.pair("trainer-7", "second"))
        async with planner(**settings) as server, connected(server, trusted) as stub:
            await stub.ListJobs(pb.ListJobsRequest())
        async with planner(**settings, access_file=file.path) as server, connected(server, trusted) as stub:
            await stub.ListJobs(pb.ListJobsRequest(), metadata=bearer(token))
            error = await refusal(stub.ListJobs(pb.ListJobsRequest()))
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED  # a certificate is no token
            assert await why_not_served(server, authority.trusted())  # and a token no certificate
        async with planner() as server, connected(server, None) as stub:
            await stub.ListJobs(pb.ListJobsRequest())

    run(scenario())
    assert [caller.name for caller in callers] == ["certificate:trainer-7", "token:team-a", "address:127.0.0.1"]


def test_planner_with_a_bad_certificate_is_refused_by_its_clients(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    expired = authority.pair(not_before=YESTERDAY - timedelta(days=9), not_after=YESTERDAY)

    async def scenario() -> None:
        async with planner(**expired.server_settings()) as server:
            assert "certificate has expired" in await why_not_served(server, authority.trusted())
        async with planner(**authority.pair("elsewhere.example").server_settings()) as server:
            assert "Hostname Verification" in await why_not_served(server, authority.trusted())
        async with planner(**authority.pair("127.0.0.1").server_settings()) as server:
            assert "Hostname Verification" in await why_not_served(server, authority.trusted(), host="localhost")
            await is_served(server, authority.trusted())

    run(scenario())
    (said,) = [record.getMessage() for record in caplog.records if "certificate" in record.getMessage()]
    assert said.startswith(f"the certificate in DIP_TLS_CERT_FILE ended at {YESTERDAY:%Y-%m-%d %H:%M} UTC")


def test_client_that_speaks_tls_to_a_planner_that_does_not(authority: Authority) -> None:
    async def scenario() -> None:
        async with planner() as server:
            assert "WRONG_VERSION_NUMBER" in await why_not_served(server, authority.trusted())
            async with connected(server, None) as stub:
                await stub.ListJobs(pb.ListJobsRequest())

    run(scenario())


def test_health_has_its_own_port_in_plain_text_whatever_the_main_one_asks_for(authority: Authority) -> None:
    settings = authority.pair().server_settings() | {"tls_client_ca_file": authority.file}

    async def scenario() -> None:
        async with (
            planner(**settings) as server,
            grpc.aio.insecure_channel(server.health_address, options=CHANNEL_OPTIONS) as channel,
        ):
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            error = await refusal(pb_grpc.PlannerServiceStub(channel).ListJobs(pb.ListJobsRequest()))
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED  # and nothing else is answered there

    run(scenario())


@pytest.mark.parametrize("in_place", [True, False])
def test_new_certificate_is_shown_to_new_connections_and_streams_go_on(authority: Authority, in_place: bool) -> None:
    first, second = authority.pair(), authority.pair()

    async def scenario() -> None:
        settings = authority.pair().server_settings()
        shown = Pair(certificate_file=settings["tls_cert_file"], key_file=settings["tls_key_file"], chain=b"", key=b"")
        shown.overwrite(first)
        async with planner(**settings) as server, connected(server, authority.trusted()) as stub:
            await is_served(server, authority.trusted())
            opened = stub.StreamSchedules(stream(1))
            await opened.initial_metadata()
            assert await serial_of(server) == first.serial
            if in_place:
                shown.overwrite(second)
            else:
                second.certificate_file.rename(shown.certificate_file)
                second.key_file.rename(shown.key_file)
            while await serial_of(server) != second.serial:
                await asyncio.sleep(QUICK_LOOK_S)
            await stub.SubmitBatch(submit(1))
            assert (await opened.read()).iteration == 1
            await is_served(server, authority.trusted(), "another")

    run(scenario())


def test_half_written_files_change_nothing_until_they_fit(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = authority.pair(), authority.pair()

    def said() -> list[str]:
        ours = [record for record in caplog.records if record.name.startswith("planner_service")]
        return [record.getMessage() for record in ours if record.levelno >= logging.ERROR]

    async def scenario() -> None:
        async with planner(**first.server_settings()) as server:
            first.certificate_file.write_bytes(second.chain)
            while not said():
                await asyncio.sleep(QUICK_LOOK_S)
            assert await serial_of(server) == first.serial
            await is_served(server, authority.trusted())
            first.key_file.write_bytes(second.key)
            while await serial_of(server) != second.serial:
                await asyncio.sleep(QUICK_LOOK_S)
            assert len(said()) == 1
            assert f"DIP_TLS_KEY_FILE={first.key_file}: does not fit" in said()[0]

    run(scenario())


def test_authorities_of_clients_are_replaced_without_a_restart(authority: Authority, stranger: Authority) -> None:
    old, new = authority.pair("trainer"), stranger.pair("trainer")

    async def scenario() -> None:
        settings = authority.pair().server_settings() | {"tls_client_ca_file": authority.file}
        async with planner(**settings) as server, connected(server, authority.trusted(old)) as stub:
            await is_served(server, authority.trusted(old))
            opened = stub.StreamSchedules(stream(1))
            await opened.initial_metadata()
            trusted = grpc.ssl_channel_credentials(authority.pem, new.key, new.chain)
            assert await why_not_served(server, trusted)
            authority.file.write_bytes(stranger.pem)
            while not await is_let_in(server, trusted):
                await asyncio.sleep(QUICK_LOOK_S)
            assert await why_not_served(server, authority.trusted(old))
            await stub.SubmitBatch(submit(1))
            assert (await opened.read()).iteration == 1

    run(scenario())


def test_files_that_are_bad_at_the_start_are_no_start(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    good, other = authority.pair(), stranger.pair()
    for settings, says in (
        (good.server_settings() | {"tls_key_file": other.key_file}, f"DIP_TLS_KEY_FILE={other.key_file}: does not fit"),
        (
            good.server_settings() | {"tls_cert_file": tmp_path / "no"},
            f"DIP_TLS_CERT_FILE={tmp_path}/no: cannot be read",
        ),
        (good.server_settings() | {"tls_client_ca_file": good.key_file}, "DIP_TLS_CLIENT_CA_FILE="),
    ):

        async def scenario(settings: dict[str, Path] = settings, says: str = says) -> None:
            with pytest.raises(AccessError) as caught:
                async with planner(**settings):
                    pass
            assert str(caught.value).startswith(says)

        run(scenario())


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_of_tls_are_not_spoken(authority: Authority) -> None:
    async def scenario() -> None:
        async with planner(**authority.pair().server_settings()) as server:
            assert await asyncio.to_thread(handshake, server, ssl.TLSVersion.TLSv1_2)
            with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|EOF"):
                await asyncio.to_thread(handshake, server, ssl.TLSVersion.TLSv1_1)

    run(scenario())


def handshake(server: PlannerServer, most: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> bytes:
    """Connect as anybody does; return the certificate that is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = most
    context.set_alpn_protocols(["h2"])
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as wrapped:
        shown = wrapped.getpeercert(binary_form=True)
    assert shown is not None
    return shown


async def serial_of(server: PlannerServer) -> int:
    return x509.load_der_x509_certificate(await asyncio.to_thread(handshake, server)).serial_number


async def is_let_in(server: PlannerServer, credentials: grpc.ChannelCredentials) -> bool:
    async with connected(server, credentials) as stub:
        return await stub.ListJobs(pb.ListJobsRequest()).code() == grpc.StatusCode.OK
