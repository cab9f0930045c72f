"""A planner, or several of one store, with all trainers of a job connected: what load and scaling are measured on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import grpc
from dip.planner.v1.planner_pb2_grpc import PlannerServiceStub

from benchmarks.load.processes import BenchmarkProcess, Crowd
from benchmarks.load.times import Times
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.load.work import Work

SLEEPING_ENGINE = "benchmarks.sleeping_engine"
_CALL_TIMEOUT_S = 240.0
_PATIENCE_MS = 240_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Connections:
    """How trainers connect.

    Parameters
    ----------
    processes
        Client processes that share the replicas.
    streams_a_channel
        Streams of one connection: 1 where each rank is a process of its own.
    """

    processes: int = 2
    streams_a_channel: int = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Planners:
    """How planners run.

    Parameters
    ----------
    count
        Planner processes; more than one share the store.
    workers
        Solver processes of each.
    store
        ``DIP_STORE``.
    engine
        What workers solve with.
    gate
        Whether plans of an iteration are stored together.
    kept_iterations
        ``DIP_KEPT_ITERATIONS``.
    """

    count: int = 1
    workers: int = 1
    store: str = "memory://"
    engine: str = SLEEPING_ENGINE
    gate: bool = False
    kept_iterations: int = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Servers with their trainers connected, and the stamps that both leave."""

    servers: Sequence[BenchmarkProcess]
    crowd: Crowd
    times: Times


@contextlib.contextmanager
def planner_site(
    work: Work, directory: Path, *, iterations: int, planners: Planners, connections: Connections
) -> Iterator[Site]:
    """Start planners, register the job, and connect its trainers.

    Parameters
    ----------
    directory
        Where the stamps are kept.
    iterations
        How many the job has, 0 the first.
    """
    times = _times(work, directory / "planner.times", iterations)
    with contextlib.ExitStack() as ended:
        arguments = [*_common(work, times), "--engine", planners.engine, *(["--gate"] if planners.gate else [])]
        servers = [
            ended.enter_context(BenchmarkProcess("benchmarks.load.server", arguments, _environment(planners)))
            for _ in range(planners.count)
        ]
        addresses = [server.hear() for server in servers]
        with grpc.insecure_channel(addresses[0], options=[("grpc.enable_http_proxy", 0)]) as channel:
            PlannerServiceStub(channel).RegisterJob(work.registration(), timeout=_CALL_TIMEOUT_S)
        crowd = _connected(ended, work, times, addresses, connections)
        yield Site(servers=servers, crowd=crowd, times=times)


@contextlib.contextmanager
def bare_site(work: Work, directory: Path, *, iterations: int, connections: Connections) -> Iterator[Site]:
    """Start a server that only writes, with as many trainers connected in the same way."""
    times = _times(work, directory / "bare.times", iterations)
    with contextlib.ExitStack() as ended:
        server = ended.enter_context(BenchmarkProcess("benchmarks.load.bare", _common(work, times)))
        crowd = _connected(ended, work, times, [server.hear()], connections)
        yield Site(servers=[server], crowd=crowd, times=times)


def _connected(
    ended: contextlib.ExitStack, work: Work, times: Times, addresses: Sequence[str], connections: Connections
) -> Crowd:
    bounds = [work.replicas * number // connections.processes for number in range(connections.processes + 1)]
    processes = []
    for first, last in pairwise(bounds):
        share = ["--first-replica", str(first), "--replicas", str(last - first)]
        where = ["--streams-a-channel", str(connections.streams_a_channel), *addresses]
        processes.append(
            ended.enter_context(BenchmarkProcess("benchmarks.load.client", [*_common(work, times), *share, *where]))
        )
    crowd = Crowd(processes)
    crowd.wait_until_ready()
    return crowd


def _times(work: Work, path: Path, iterations: int) -> Times:
    return Times(path, iterations=iterations, replicas=work.replicas, ranks=work.ranks)


def _common(work: Work, times: Times) -> list[str]:
    return ["--work", work.to_json(), "--times", str(times.path), "--iterations", str(times.iterations)]


def _environment(planners: Planners) -> dict[str, str]:
    return {
        names.LISTEN: "127.0.0.1:0",
        names.HEALTH_LISTEN: "127.0.0.1:0",
        names.METRICS_LISTEN: "127.0.0.1:0",
        names.STORE: planners.store,
        names.SEARCH_WORKERS: str(planners.workers),
        names.KEPT_ITERATIONS: str(planners.kept_iterations),
        # What a busy machine holds up is late, and measured so: no other schedule takes its place, and no planner.
        names.SOLVE_GRACE_MS: str(_PATIENCE_MS),
        names.LEASE_MS: str(_PATIENCE_MS),
    }
