"""Transfers between two ranks without an executor: what ranks of the transfer tests run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from dip.planner.v1 import planner_pb2 as pb
from pipelines.processes import RANK_LIMIT_S

from trainer_agent.errors import TransferError
from trainer_agent.mesh import Mesh
from trainer_agent.program import Cell, Parcel, TransferStep
from trainer_agent.transfers import GroupTransport


@dataclass(frozen=True)
class Message:
    """One transfer from rank 0 to rank 1: who made it, in which step, and its rows of three numbers."""

    sub_microbatch: int
    rows: int
    number: int = 0
    gradient: bool = False


def transfer_step(message: Message, *, sends: bool) -> TransferStep:
    return TransferStep(
        action=pb.Action(),
        parcel=Parcel(
            gradient=message.gradient,
            source=Cell("vision", 0, message.sub_microbatch),
            target=Cell("language", 0, message.sub_microbatch + 10),
        ),
        sends=sends,
        peer=1 if sends else 0,
        shape=(message.rows, 3),
        dtype=torch.float32,
    )


def contents(message: Message) -> torch.Tensor:
    return torch.arange(3.0 * message.rows).reshape(message.rows, 3) + 100 * message.sub_microbatch


def exchange(
    sent: list[Message], expected: list[Message], *, timeout_s: float = RANK_LIMIT_S, awaits_sends: bool = True
) -> list[bool] | tuple[str, str]:
    """Send all of one list from rank 0, receive all of the other on rank 1, all issued before any is awaited.

    The connections are open before the timeout counts. Where sends are not awaited, as nobody may take them, they stay
    alive until the other rank is done.

    Returns
    -------
    list of bool, or (kind, message)
        Whether each that arrived holds what it should; on an error its kind and text.
    """
    mesh = Mesh.create(timeout_s=RANK_LIMIT_S)
    GroupTransport(mesh).warm_up()
    transport = GroupTransport(replace(mesh, timeout=timedelta(seconds=timeout_s)))
    try:
        if mesh.rank == 0:
            outgoing = [transport.send(contents(m), transfer_step(m, sends=True), m.number) for m in sent]
            for one in outgoing if awaits_sends else ():
                one.wait()
            if not awaits_sends:
                dist.barrier(mesh.pipeline_control)
            return [True] * len(outgoing)
        incoming = [transport.receive(transfer_step(m, sends=False), m.number) for m in expected]
        return [torch.equal(one.wait(), contents(m)) for m, one in zip(expected, incoming, strict=True)]
    except TransferError as error:
        if not awaits_sends:
            dist.barrier(mesh.pipeline_control)
        return type(error).__name__, str(error)


def warm_up() -> bool:
    """Open all connections, then use each of them in both directions."""
    mesh = Mesh.create(timeout_s=RANK_LIMIT_S)
    GroupTransport(mesh).warm_up()
    found = [torch.zeros(1) for _ in range(mesh.ranks)]
    dist.all_gather(found, torch.tensor([float(mesh.rank)]), group=mesh.pipeline)
    return [float(one) for one in found] == list(range(mesh.ranks))
