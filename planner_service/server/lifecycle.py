"""The running planner: started, serving, drained."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from planner_service import logs, metrics
from planner_service import settings as names
from planner_service.access import Access
from planner_service.loops import start_loop
from planner_service.pool import SolverPool, default_workers, usable_cores
from planner_service.pool.pool import DEFAULT_ENGINE
from planner_service.server.authentication import Authentication
from planner_service.server.channel_options import HEALTH_CONNECTIONS, HEALTH_MESSAGE_BYTES, server_options
from planner_service.server.client_calls import ClientCalls
from planner_service.server.compilation import compile_beside
from planner_service.server.contract import SERVICE, STREAMS
from planner_service.server.counting import Counting
from planner_service.server.handlers import add_servicer
from planner_service.server.health import Health
from planner_service.server.listening import ListenError, listen
from planner_service.server.metrics_port import listen_for_metrics
from planner_service.server.observing import Observing
from planner_service.server.open_files import most_connections
from planner_service.server.sampling import sample_store
from planner_service.server.servicer import PlannerServicer
from planner_service.server.tls import server_credentials
from planner_service.store import PlanStore, open_store, without_password

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from planner_service.metrics import MetricsEndpoint
    from planner_service.settings import Settings

_LOOK_S: Final = 3_600.0

_log = logging.getLogger(__name__)


class PlannerServer:
    """A planner in this process and event loop.

    Parameters
    ----------
    settings
        What to run with.
    engine
        Module that workers solve with.
    store
        Where jobs and plans are kept; None: where the settings say.

    Attributes
    ----------
    address, health_address, metrics_address
        Where it listens, once started; with the port that was taken where the setting asked for port 0.
    """

    def __init__(self, settings: Settings, *, engine: str = DEFAULT_ENGINE, store: PlanStore | None = None) -> None:
        self._settings = settings
        self.address = settings.listen
        self.health_address = settings.health_listen
        self.metrics_address = settings.metrics_listen
        self._endpoint: MetricsEndpoint | None = None
        self._store = store or open_store(
            settings.store,
            password_file=settings.store_password_file,
            kept_iterations=settings.kept_iterations,
            kept_bytes=settings.kept_bytes,
            kept_closed_jobs=settings.kept_closed_jobs,
            idle_job_s=settings.idle_job_s,
            most_bytes=settings.max_store_bytes,
        )
        self._pool = SolverPool(
            workers=settings.search_workers or default_workers(usable_cores()),
            memory_bytes=settings.worker_memory_bytes,
            engine=engine,
        )
        self._servicer = PlannerServicer(self._store, self._pool, settings)
        self._pool.on_ready(self._on_ready)
        self._health = Health()
        self._tasks: list[asyncio.Task[None]] = []
        self._store_answers = False
        self._draining = False

    @property
    def idle_workers(self) -> int:
        """Solver processes that are ready and have nothing to do."""
        return self._pool.idle

    async def start(self) -> None:
        """Listen, answer, and say so in one line; workers get ready meanwhile.

        Raises
        ------
        AccessError
            Files that say who may call cannot be used, or anybody from beyond this machine could.
        ListenError
        StoreError
            The store can never be used as it is set up.
        """
        access = Access(self._settings)
        await self._store.start(on_lost=self._servicer.on_store_lost, on_available=self._on_available)
        try:
            self._listen(access)
        except ListenError:
            await self._store.close()
            raise
        self._show_health()
        await self._main_server.start()
        await self._health_server.start()
        self._pool.start()
        self._servicer.start()
        if self._endpoint is not None:
            self._endpoint.start()
        self._tasks = [
            asyncio.create_task(compile_beside(), name="compilation"),
            *(start_loop(work, name) for name, work in self._measuring().items()),
            start_loop(access.follow(self._servicer.on_tokens), "access"),
            start_loop(self._watch(self._main_server), "gRPC's server"),
            start_loop(self._watch(self._health_server), "gRPC's server of health"),
        ]
        _log.info(
            "serving",
            extra=logs.fields(
                listen=self.address,
                health=self.health_address,
                metrics=self.metrics_address,
                store=without_password(self._settings.store),
                workers=self._pool.workers,
                connections=most_connections(),
            ),
        )

    def _listen(self, access: Access) -> None:
        options = server_options(max_message_bytes=self._settings.max_message_bytes, max_connections=most_connections())
        limited = partial(
            ClientCalls,
            max_calls=self._settings.max_client_calls,
            max_unread_bytes=self._settings.max_client_bytes,
        )
        self._main_server = grpc.aio.server(
            options=options,
            interceptors=[Observing(), Counting(), Authentication(access), limited(uncounted_streams=STREAMS)],
        )
        options = server_options(max_message_bytes=HEALTH_MESSAGE_BYTES, max_connections=HEALTH_CONNECTIONS)
        self._health_server = grpc.aio.server(options=options, interceptors=[limited()])
        add_servicer(self._main_server, self._servicer)
        for server in (self._main_server, self._health_server):
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME), self._main_server
        )
        socket_mode = int(self._settings.socket_mode, 8)
        self.address = listen(
            self._main_server,
            self._settings.listen,
            names.LISTEN,
            credentials=server_credentials(access),
            socket_mode=socket_mode,
        )
        # Native probes of gRPC speak no TLS.
        self.health_address = listen(
            self._health_server, self._settings.health_listen, names.HEALTH_LISTEN, socket_mode=socket_mode
        )
        self._endpoint, self.metrics_address = listen_for_metrics(self._settings.metrics_listen)

    def _measuring(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What measures, where anybody can read it."""
        if self._endpoint is None:
            return {}
        return {"event loop's lag": metrics.watch_event_loop(), "the store's metrics": sample_store(self._store)}

    async def drain(self) -> None:
        """Stop cleanly: unhealthy first, then no new calls, streams and solves ended, everything let go."""
        self._draining = True
        _log.info("draining", extra=logs.fields(listen=self.address))
        self._health.stop()
        await self._servicer.drain()
        await self._main_server.stop(grace=self._settings.drain_ms / 1000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()
        await self._store.close()
        await self._health_server.stop(grace=0)
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.close)
        _log.info("stopped", extra=logs.fields(listen=self.address))

    def _on_available(self, answers: bool) -> None:
        self._store_answers = answers
        metrics.store_available(answers)
        self._show_health()

    def _on_ready(self) -> None:
        _log.info("ready to plan", extra=logs.fields(listen=self.address))
        self._show_health()

    async def _watch(self, server: grpc.aio.Server) -> None:
        """Fail where a server ends by itself: gRPC's does where its loop meets with an error, and nobody is told."""
        # To cancel a wait without a time limit would cancel the server's own wait for its end.
        while await server.wait_for_termination(timeout=_LOOK_S):
            pass
        if not self._draining:
            raise RuntimeError("gRPC's server has ended by itself")

    def _show_health(self) -> None:
        """Say whether the service is ready; see `planner_service.server.health` for what that means."""
        status = health_pb2.HealthCheckResponse
        is_ready = self._store_answers and self._pool.was_ready
        self._health.set(SERVICE.full_name, status.SERVING if is_ready else status.NOT_SERVING)
