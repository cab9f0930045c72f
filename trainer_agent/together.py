"""What every process does by itself at the start, and all hear of where one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from trainer_agent.errors import TrainerAgentError
from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.mesh import Mesh

_Made = TypeVar("_Made")


def together(act: Callable[[], _Made], mesh: Mesh, *, what: str) -> _Made:
    """Let every process act, and none go on where one failed; collective over all processes, on the CPU.

    Parameters
    ----------
    act
        What this process does.
    mesh
        All processes.
    what
        What is done, for errors.

    Raises
    ------
    TrainerAgentError
        Another process failed: names it and says why. Where ``act`` itself raises, that passes through.
    StepTimeoutError, PeerLostError
        A process did not say how it went.
    """
    made: list[_Made] = []
    cause: Exception | None = None
    try:
        made.append(act())
    except Exception as error:  # a user's own code may raise anything, and the others wait to hear of it
        cause = error
    told = f"rank {mesh.rank} of replica {mesh.replica}: {type(cause).__name__}: {cause}" if cause else ""
    heard = [""] * dist.get_world_size(mesh.world)
    with naming(mesh.rank, -1, what, mesh.timeout):
        dist.all_gather_object(heard, told, group=mesh.world)
    if cause is not None:
        raise cause
    if failed := [reason for reason in heard if reason]:
        raise TrainerAgentError(f"{what} failed on {'; on '.join(failed)}")
    return made[0]
