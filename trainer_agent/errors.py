"""Everything that trainer_agent raises on its own account, under one root."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class TrainerAgentError(Exception):
    """Root of all errors of trainer_agent."""


class StageInterfaceError(TrainerAgentError):
    """The user's modules do not keep the interface of ``trainer_agent.stages``."""


class HandOffError(TrainerAgentError):
    """A tensor that leaves a chunk is not what its module's hand-off declares.

    Parameters
    ----------
    rank
        The rank that made the tensor.
    action
        The action that made it, in words.
    expected, found
        Shape and type, in words.
    """

    def __init__(self, *, rank: int, action: str, expected: str, found: str) -> None:
        super().__init__(f"rank {rank}, {action}: hand-off declares {expected}, found {found}")
        self.rank = rank
        self.action = action
        self.expected = expected
        self.found = found


class PlanError(TrainerAgentError):
    """A plan that this rank cannot run: it contradicts the contract, or asks for what this executor does not do.

    Parameters
    ----------
    rank
        The rank whose schedule is at fault.
    fault
        What is wrong, naming the action by its position.
    """

    def __init__(self, *, rank: int, fault: str) -> None:
        super().__init__(f"rank {rank}: {fault}")
        self.rank = rank
        self.fault = fault


class TransferError(TrainerAgentError):
    """A transfer failed.

    Parameters
    ----------
    rank, peer
        Pipeline ranks of this process and of the other one; a peer of -1 stands for "any of the group".
    action
        What was being done, in words.
    reason
        What went wrong.
    """

    def __init__(self, *, rank: int, peer: int, action: str, reason: str) -> None:
        other = f"rank {peer}" if peer >= 0 else "the other ranks"
        super().__init__(f"rank {rank}, {action}, with {other}: {reason}")
        self.rank = rank
        self.peer = peer
        self.action = action
        self.reason = reason


class TransferMismatchError(TransferError):
    """What arrived is not what the plan says should arrive: another transfer, or another size."""


class StepTimeoutError(TransferError):
    """The other side did not answer within the step timeout."""


class PeerLostError(TransferError):
    """The connection to the other side is gone: its process ended."""


class RankMismatchError(TrainerAgentError):
    """Ranks that must know the same thing know different things.

    Parameters
    ----------
    what
        What differs.
    ranks
        The ranks that differ.
    reference
        The rank that they differ from, the lowest of their group.
    """

    def __init__(self, *, what: str, ranks: Sequence[int], reference: int = 0) -> None:
        strangers = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        super().__init__(f"{what} of {strangers} differs from rank {reference}'s")
        self.what = what
        self.ranks = tuple(ranks)
        self.reference = reference


class ExecutorFailedError(TrainerAgentError):
    """A step failed before; its peers may be anywhere, so no further step is run."""


class ProfileError(TrainerAgentError):
    """The user's layers could not be profiled."""
