"""What global rank 0 decides for all processes: told to them, and so is whatever goes wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.errors import TrainerAgentError
    from trainer_agent.mesh import Mesh

_Decision = TypeVar("_Decision")


def decided_by_first_rank(
    decide: Callable[[], _Decision], mesh: Mesh, *, what: str, failure: Callable[[str], TrainerAgentError]
) -> _Decision:
    """Let global rank 0 decide and tell the others; collective over all processes, on the CPU.

    Parameters
    ----------
    decide
        Called on global rank 0; returns what can be pickled.
    mesh
        All processes.
    what
        What is decided, for errors.
    failure
        Makes the error that all processes raise where ``decide`` raises; on rank 0 with that as its cause.

    Raises
    ------
    StepTimeoutError, PeerLostError
        Rank 0 did not tell.
    """
    told: list[tuple[_Decision | None, str]] = [(None, "")]
    cause: Exception | None = None
    if dist.get_rank() == 0:
        try:
            told = [(decide(), "")]
        except Exception as error:  # a user's own code may raise anything, and the others wait to hear of it
            cause, told = error, [(None, f"{what} failed on rank 0: {type(error).__name__}: {error}")]
    with naming(mesh.rank, -1, what, mesh.timeout):
        dist.broadcast_object_list(told, src=0, group=mesh.world)
    decision, reason = told[0]
    if reason or decision is None:
        raise failure(reason) from cause
    return decision
