"""Health as gRPC describes it (grpc.health.v1), and no client can hold it up.

Two names are asked for, which say two things:

- The empty one is the process: it runs, and does not drain. Probes of start and life ask for it, as do `dip health` and
  containers' health checks. It depends on nothing that takes long, or that another start would not mend: neither on the
  store nor on solver processes, which take a minute to come up on a machine that is busy.
- The planner's service, by its full name, is readiness: the store answers, and a solver process was ready once. What
  sends trainers to a planner, or ends an older one because this one is there, asks for it (`dip health --ready`).
  Solvers that are lost later take nothing away: they are replaced, and agents want this planner meanwhile for the plans
  that it keeps, for fixed schedules, and for their reports. Metrics and the log tell of such solvers.

Both are NOT_SERVING from the beginning of the drain. Calls are taken all the while, whatever is said here.

The servicer of grpcio-health-checking has a lock held while it writes to whoever watches: a client that opens Watch and
does not read keeps the planner from becoming ready, and from stopping. Here each watcher looks for itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from planner_service.server.refusals import RefusalError

if TYPE_CHECKING:
    from planner_service.server.handlers import Context

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):
    """Status of each service by its name; the process as such is the service "". For use from one event loop."""

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {"": _SERVING}
        self._changed = asyncio.Event()
        self._stopping = False

    def set(self, service: str, status: int) -> None:
        """Say how a service is; without effect once everything stops."""
        if not self._stopping:
            self._statuses[service] = status
            self._wake()

    def stop(self) -> None:
        """Say of everything, from now on, that it does not serve."""
        self._stopping = True
        self._statuses = dict.fromkeys(self._statuses, _NOT_SERVING)
        self._wake()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Tell how a service is; NOT_FOUND for one that there is not."""
        status = self._statuses.get(request.service)
        if status is None:
            raise RefusalError(code_pb2.NOT_FOUND, "there is no such service here")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:  # noqa: N802
        """Tell how a service is, now and after each change that is still so when the client has read the last."""
        told: int | None = None
        while True:
            changed, status = self._changed, self._statuses.get(request.service, _UNKNOWN)
            if status != told:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                told = status
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
