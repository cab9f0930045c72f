"""``dip health``: asks a planner whether it serves, or can plan, as container engines and scripts can."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from planner_service.commands.failure import CommandError

if TYPE_CHECKING:
    import argparse

UNHEALTHY = 1

TIMEOUT_S = 3.0

DESCRIPTION = """Asks a planner whether it serves (grpc.health.v1). Exits 0 where it does, 1 where it does not or does
not answer. Without --ready: whether its process runs and is not told to stop. With it: whether it is ready to plan as
well, as its store answers and its solver processes have come up. Where no address is given it asks the planner of this
machine or container: DIP_HEALTH_LISTEN. It asks in plain text, as probes do; a planner's main address answers as well
where it has no TLS."""

_CUT_OFF = ("Socket closed", "Connection reset", "Broken pipe")

_EVERY_INTERFACE = re.compile(r"^(0\.0\.0\.0|\[::\]):")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("health", help="ask a planner whether it serves", description=DESCRIPTION)
    parser.add_argument("address", metavar="ADDRESS", nargs="?", help="host:port or unix:///path")
    parser.add_argument("--ready", action="store_true", help="ask whether it is ready to plan, too")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=TIMEOUT_S, help=f"default: {TIMEOUT_S:g}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask, and say what the planner answered."""
    import grpc
    from dip.connecting import Credentials, Endpoint
    from dip.planner.v1 import planner_pb2 as pb
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    if not arguments.timeout > 0:
        raise CommandError(f"--timeout is {arguments.timeout}, must be above 0")
    address = arguments.address or _own_address()
    try:
        endpoint = Endpoint.parse(address)
    except ValueError as error:
        raise CommandError(f"the address is {error}") from error
    service = pb.DESCRIPTOR.services_by_name["PlannerService"].full_name if arguments.ready else ""
    with Credentials().channel(endpoint) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=arguments.timeout)
        except grpc.RpcError as error:
            ends = any(sign in (error.details() or "") for sign in _CUT_OFF)
            hint = "; a planner with TLS answers on DIP_HEALTH_LISTEN, in plain text" if ends else ""
            print(f"{address}: {error.code().name}, {error.details()}{hint}", file=sys.stderr)
            return UNHEALTHY
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(f"{address}: {name}")
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else UNHEALTHY


def _own_address() -> str:
    """Where the planner of the same settings can be asked: one that listens everywhere, on this machine."""
    from planner_service.settings import SettingsError, load_settings

    try:
        listens = load_settings().health_listen
    except SettingsError as error:
        raise CommandError(str(error)) from error
    return _EVERY_INTERFACE.sub(lambda every: "127.0.0.1:" if every[1] == "0.0.0.0" else "[::1]:", listens)
