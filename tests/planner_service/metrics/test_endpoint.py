"""Shows that the metrics are had at one address and path alone, and that no client of it holds the planner up."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from waiting import PATIENCE_S, until

from benchmarks.held_port import HeldPort
from planner_service.metrics import MetricsEndpoint, endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut nobody because this machine was slow."""
    monkeypatch.setattr(endpoint, "LONGEST_S", PATIENCE_S)
    monkeypatch.setattr(endpoint._Handler, "timeout", PATIENCE_S)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Serve metrics to all tests together."""
    served = MetricsEndpoint("127.0.0.1", 0)
    served.start()
    yield served.port
    served.close()


def ask(port: int, method: str = "GET", path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path)
    with contextlib.closing(connection), connection.getresponse() as response:
        return response.status, response.read().decode()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def is_cut(connection: socket.socket) -> bool:
    """Whether the other end hangs up, without having been sent a whole request."""
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def num_threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_prometheus_can_read_it(port: int) -> None:
    status, text = ask(port)
    assert status == 200
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"dip_queue_batches", "dip_calls", "dip_event_loop_lag_seconds", "process_resident_memory_bytes"} <= names
    assert not [name for name in names if name.endswith("_created")]


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics/../etc/passwd", "/favicon.ico"])
def test_nothing_else_is_there(port: int, path: str) -> None:
    assert ask(port, path=path) == (404, "metrics are at /metrics\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"])
def test_nothing_else_can_be_done(port: int, method: str) -> None:
    status, _ = ask(port, method)
    assert status in (405, 501)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"x" * 2**20 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: x\r\n" * 100_000 + b"\r\n",
        b"GET /" + b"x" * 2**20 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10 + b"\r\n\r\n",
        b"\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
    ],
    ids=["header", "headers", "path", "tls", "empty", "version"],
)
def test_what_is_too_much_or_nonsense_is_not_answered(
    port: int, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request_bytes)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(2**16):
                answer += part
    assert b"dip_" not in answer
    assert ask(port)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_many_connections_that_say_nothing_keep_nobody_out(port: int) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(port)) for _ in range(10 * endpoint.MOST_CONNECTIONS)]
        assert ask(port)[0] == 200
        until(lambda: num_threads() <= endpoint.MOST_CONNECTIONS)  # one that is cut may not have ended yet
        assert is_cut(silent[0])


def test_slow_requests_are_cut(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LONGEST_S", 0.2)
    with connected(port) as connection:
        connection.sendall(b"GET /metr")
        assert is_cut(connection)
    with connected(port) as connection:
        connection.settimeout(0.05)
        while True:  # a byte now and then does not help
            try:
                connection.sendall(b"x")
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break


def test_client_that_does_not_read_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def endless(registry: object) -> object:
        def application(environ: object, start_response: Callable[..., object]) -> list[bytes]:
            start_response("200 OK", [])
            answered.set()
            return [bytes(2**26)]  # more than sockets take

        return application

    monkeypatch.setattr(endpoint, "make_wsgi_app", endless)
    served = MetricsEndpoint("127.0.0.1", 0)
    served.start()
    with connected(served.port) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert answered.wait(PATIENCE_S)
        monkeypatch.setattr(endpoint, "LONGEST_S", 0.2)  # no sooner: a busy machine's request takes its time to come
        until(lambda: not num_threads())
    served.close()


def test_address_in_use_is_an_error_of_the_system(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsEndpoint("127.0.0.1", port)


def test_port_is_free_after_closing() -> None:
    held = HeldPort()  # nobody else takes it meanwhile
    served = MetricsEndpoint("127.0.0.1", held.number)
    served.start()
    with connected(served.port) as idle:
        served.close()
        assert is_cut(idle)
    again = MetricsEndpoint("127.0.0.1", held.number)
    again.close()  # never started


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this machine")
def test_ipv6() -> None:
    try:
        served = MetricsEndpoint("::1", 0)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    served.start()
    with socket.create_connection(("::1", served.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 200"
    served.close()
