"""Shows that ``dip health`` tells whether a planner serves, or is ready, for people and for exit codes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from benchmarks.held_port import HeldPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Served:
    """A server that answers as a planner's health port does."""

    def __init__(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(1))
        self.servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.server.stop(None)


def test_a_planner_that_serves_is_found_where_its_settings_say(
    served: Served, dip: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIP_HEALTH_LISTEN", f"0.0.0.0:{served.port}")
    ran = dip("health")
    assert (ran.code, ran.out) == (0, f"127.0.0.1:{served.port}: SERVING\n")


def test_one_that_stops_is_not_healthy(served: Served, dip: Callable[..., Any]) -> None:
    served.servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    ran = dip("health", f"127.0.0.1:{served.port}")
    assert (ran.code, ran.out) == (1, f"127.0.0.1:{served.port}: NOT_SERVING\n")


@pytest.mark.parametrize(("status", "code"), [("NOT_SERVING", 1), ("SERVING", 0)])
def test_whether_it_is_ready_is_asked_apart(served: Served, dip: Callable[..., Any], status: str, code: int) -> None:
    how = health_pb2.HealthCheckResponse.ServingStatus.Value(status)
    served.servicer.set("dip.planner.v1.PlannerService", how)
    address = f"127.0.0.1:{served.port}"
    ran = dip("health", "--ready", address)
    assert (ran.code, ran.out) == (code, f"{address}: {status}\n")
    assert dip("health", address).out == f"{address}: SERVING\n"


def test_nobody_there_is_not_healthy_and_said(dip: Callable[..., Any]) -> None:
    held = HeldPort()
    ran = dip("health", f"127.0.0.1:{held.number}")
    assert ran.code == 1
    assert ran.err.startswith(f"127.0.0.1:{held.number}: UNAVAILABLE")


def test_an_address_with_tls_is_told_from_nobody(dip: Callable[..., Any]) -> None:
    issued = trustme.CA().issue_cert("127.0.0.1")
    credentials = grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())])
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    ran = dip("health", f"127.0.0.1:{port}")
    server.stop(None)
    assert ran.code == 1
    assert ran.err.endswith("; a planner with TLS answers on DIP_HEALTH_LISTEN, in plain text\n")


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["127.0.0.1:1", "--timeout", "0"], ["127.0.0.1:1", "--timeout", "nan"]]
)
def test_what_cannot_be_asked_is_explained(dip: Callable[..., Any], arguments: list[str]) -> None:
    ran = dip("health", *arguments)
    assert ran.code == 2
    assert arguments[-1] in ran.err
