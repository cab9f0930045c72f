"""Why a connection is not made, in one line that says what to do, from what gRPC says against real servers."""

from __future__ import annotations

from concurrent import futures
from typing import TYPE_CHECKING

import grpc
import pytest
from certificates import YESTERDAY, Authority
from dip.connecting import ClientFiles, CredentialSource, Endpoint, advice, explanation
from dip.connecting.variables import CA_FILE, CERT_FILE, KEY_FILE, TOKEN_FILE
from waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from certificates import Pair


@pytest.fixture
def why(authority: Authority) -> Iterator[Callable[..., str]]:
    """Connect to a server with these certificates, in vain; return the explanation."""
    servers: list[grpc.Server] = []

    def why(planner: Pair | None, files: ClientFiles, *, asks_for_certificates: bool = False) -> str:
        server = grpc.server(futures.ThreadPoolExecutor(1))
        servers.append(server)
        if planner is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            client_ca = authority.pem if asks_for_certificates else None
            pairs = [(planner.key, planner.chain)]
            credentials = grpc.ssl_server_credentials(pairs, client_ca, require_client_auth=asks_for_certificates)
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        endpoint = Endpoint.parse(f"127.0.0.1:{port}")
        credentials_now = CredentialSource(files).current()
        with credentials_now.channel(endpoint) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/test/Any")(b"", timeout=PATIENCE_S)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        return explanation(caught.value.details(), endpoint, credentials_now.tls)

    yield why
    for server in servers:
        server.stop(grace=None).wait(PATIENCE_S)


def test_a_planner_whose_certificate_cannot_be_trusted(
    authority: Authority, tmp_path: Path, why: Callable[..., str]
) -> None:
    files = ClientFiles(ca_file=str(authority.file))
    assert "has expired" in why(authority.pair(not_after=YESTERDAY), files)
    assert f"comes from no authority in {CA_FILE}" in why(Authority(tmp_path, "other").pair(), files)
    assert "does not name the host" in why(authority.pair("planner.example"), files)


def test_one_side_speaks_tls_and_the_other_does_not(authority: Authority, why: Callable[..., str]) -> None:
    assert "there is no TLS at that address" in why(None, ClientFiles(ca_file=str(authority.file)))
    assert f"set {CA_FILE}" in why(authority.pair(), ClientFiles())


def test_a_planner_that_does_not_take_the_client(authority: Authority, tmp_path: Path, why: Callable[..., str]) -> None:
    planner, expired = authority.pair(), authority.pair("agent", not_after=YESTERDAY)
    stranger = Authority(tmp_path, "other").pair("agent")
    said = why(planner, ClientFiles(ca_file=str(authority.file)), asks_for_certificates=True)
    assert f"set {CERT_FILE} and {KEY_FILE}" in said
    for client in (expired, stranger):
        own = {"cert_file": str(client.certificate_file), "key_file": str(client.key_file)}
        files = ClientFiles(ca_file=str(authority.file), **own)
        assert f"does not trust {CERT_FILE}" in why(planner, files, asks_for_certificates=True)


@pytest.mark.parametrize(
    "details",
    [
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused",
        "Socket closed",
        "the planner drains",
        "",
    ],
)
def test_what_is_not_about_tls_is_not_explained(authority: Authority, details: str) -> None:
    endpoint = Endpoint.parse("127.0.0.1:1")
    tls = CredentialSource(ClientFiles(ca_file=str(authority.file))).current().tls
    assert explanation(details, endpoint, tls) == explanation(details, endpoint, None) == ""


def test_a_socket_of_the_file_system_has_no_tls_to_explain() -> None:
    endpoint = Endpoint.parse("unix:///run/planner.sock")
    assert explanation("failed to connect to all addresses; last error: Socket closed", endpoint, None) == ""


def test_who_is_turned_away_hears_what_to_set_right() -> None:
    known, unknown = ClientFiles(token_file="/run/token"), ClientFiles()
    assert advice(grpc.StatusCode.UNAUTHENTICATED, unknown).startswith(f"set {TOKEN_FILE}")
    assert f"{TOKEN_FILE} '/run/token'" in advice(grpc.StatusCode.UNAUTHENTICATED, known)
    assert "this job" in advice(grpc.StatusCode.PERMISSION_DENIED, known)
    assert advice(grpc.StatusCode.PERMISSION_DENIED, unknown) == ""
    assert advice(grpc.StatusCode.UNAVAILABLE, known) == ""
