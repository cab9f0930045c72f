"""The service that is served, as the contract describes it."""

from __future__ import annotations

from dip.planner.v1 import planner_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]
