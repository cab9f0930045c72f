"""Connects agents on every process of a group: what ranks of the tests run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.connecting import Endpoints
from unhurried import unhurry
from waiting import PATIENCE_S

from trainer_agent import AgentSettings, Mesh, StartError, TrainerAgent

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Connected:
    """What one process was told."""

    job_id: str = ""
    attempt: int = 0
    partition: bytes = b""
    error: str = ""


def connect(spec: pb.JobSpec, endpoint: str, job_id: str | None) -> Connected:
    """Connect and close again."""
    unhurry()
    settings = AgentSettings(endpoints=Endpoints.parse(endpoint), job_id=job_id, connect_wait_s=PATIENCE_S)
    try:
        agent = TrainerAgent.connect(spec, Mesh.create(timeout_s=4 * PATIENCE_S), settings=settings)
    except StartError as error:
        return Connected(error=str(error))
    agent.close()
    return Connected(
        job_id=agent.job_id, attempt=agent.attempt, partition=agent.partition.SerializeToString(deterministic=True)
    )
