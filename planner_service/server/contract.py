"""The service that is served, as the contract describes it."""

from __future__ import annotations

from typing import Final

from dip.planner.v1 import planner_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]

STREAMS: Final = frozenset(
    f"/{SERVICE.full_name}/{method.name}" for method in SERVICE.methods if method.server_streaming
)
"""Paths of the methods that stream their answers."""
