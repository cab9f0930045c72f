"""``GET /metrics`` over HTTP, in threads beside the event loop.

The text is prometheus_client's, the server the standard library's; what is added bounds what clients can take: so many
connections, so long, so many bytes of a request, and one text at a time. Where there are too many connections, the
oldest gives way, so that whoever asks quickly is answered. Nothing that a client sends is logged above DEBUG.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import logging
import socket
import threading
import time
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from planner_service.metrics.catalogue import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

PATH: Final = "/metrics"
MOST_CONNECTIONS: Final = 16
LONGEST_S: Final = 5.0
"""From the moment when a connection is made until it is cut, whatever it does."""
MOST_REQUEST_BYTES: Final = 16 * 2**10

_POLL_S: Final = 0.1
_REST: Final = 4
"""Times what a text took to make, for which the next one waits: a flood of requests gets a fifth of a core at most."""

_log = logging.getLogger(__name__)


class MetricsEndpoint:
    """The endpoint, listening from its construction on, answering once started.

    Parameters
    ----------
    host, port
        Where; port 0 takes a free one.

    Raises
    ------
    OSError
        The address cannot be had.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = _Server(host, port)
        self._server.set_app(_only_metrics())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port that was taken."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and cut whoever is connected; for a thread, as it waits for the server's own."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a connection, for a bounded time and number of them."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, where = found[0]
        self._began_s: dict[socket.socket, float] = {}  # the oldest connection comes first
        self._guard = threading.Condition()
        super().__init__((str(where[0]), port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking name servers what this machine is called."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; a connection too many costs the oldest one."""
        with self._guard:
            while len(self._began_s) >= MOST_CONNECTIONS:
                _cut(next(iter(self._began_s)))
                self._guard.wait()
            self._began_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, for whatever reason."""
        super().shutdown_request(request)
        with self._guard:
            self._began_s.pop(request, None)
            self._guard.notify_all()

    def service_actions(self) -> None:
        """Cut connections that have had their time; called several times a second."""
        overdue_s = time.monotonic() - LONGEST_S
        with self._guard:
            for connection in [made for made, began_s in self._began_s.items() if began_s < overdue_s]:
                _cut(connection)

    def server_close(self) -> None:
        """Stop listening and cut everybody."""
        super().server_close()
        with self._guard:
            for connection in self._began_s:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves, sends nonsense or is cut is no trouble of ours."""
        _log.debug("a connection to the metrics ended early", exc_info=True)


class _Handler(WSGIRequestHandler):
    """One request."""

    timeout = LONGEST_S
    rbufsize = 0

    def setup(self) -> None:
        """Read no more than a request may hold."""
        super().setup()
        self.rfile = _Bounded(self.rfile, MOST_REQUEST_BYTES)

    def get_stderr(self) -> io.StringIO:
        """Have tracebacks of connections that were cut go nowhere."""
        return io.StringIO()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: what clients send is theirs."""


class _Bounded(io.BufferedReader):
    """Lines of an unbuffered stream, until there are too many bytes of them."""

    def __init__(self, stream: Any, most_bytes: int) -> None:
        super().__init__(stream)
        self._left = most_bytes

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line; raises LineTooLong, which ends the connection, among headers with 431."""
        line = super().readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("request")
        return line


def _cut(connection: socket.socket) -> None:
    """End a connection under the thread that serves it, which closes it then."""
    with contextlib.suppress(OSError):  # it has just ended
        connection.shutdown(socket.SHUT_RDWR)


def _only_metrics() -> Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]:
    """prometheus_client's application, for one path and method, one text at a time."""
    metrics = make_wsgi_app(REGISTRY)
    turn = threading.Lock()

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return _refuse(start_response, "404 Not Found", f"metrics are at {PATH}\n")
        if environ["REQUEST_METHOD"] != "GET":
            return _refuse(start_response, "405 Method Not Allowed", "GET only\n", ("Allow", "GET"))
        with turn:
            began_s = time.thread_time()
            text: Iterable[bytes] = metrics(environ, start_response)
            time.sleep(_REST * (time.thread_time() - began_s))
        return text

    return application


def _refuse(start_response: StartResponse, status: str, why: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [why.encode()]
