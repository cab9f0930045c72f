"""Why a plan cannot be run: each error names the rank and the action."""

from __future__ import annotations

from dip.errors import DipError


class SimulationError(DipError):
    """A plan that cannot be run.

    Parameters
    ----------
    reason
        What is wrong.
    rank
        Where; None where it concerns no rank in particular.
    action
        Place of the action in that rank's schedule; None where it concerns none in particular.
    """

    def __init__(self, reason: str, *, rank: int | None = None, action: int | None = None) -> None:
        self.reason, self.rank, self.action = reason, rank, action
        place = "" if rank is None else f"rank {rank}: " if action is None else f"rank {rank}, action {action}: "
        super().__init__(place + reason)


class BrokenPartsError(SimulationError):
    """A partition or sub-microbatches that do not hold every layer and every instance once."""


class BrokenActionError(SimulationError):
    """An action that does not belong where it stands, or says what its work is not."""


class MissingTaskError(SimulationError):
    """Work that no action does."""


class MissingTransferError(SimulationError):
    """Data that a task on another rank waits for and that is not sent, or not received."""


class WaitsForItselfError(SimulationError):
    """A rank that waits for ever at an action: for itself, or for ranks that wait for it."""


class OverMemoryError(SimulationError):
    """A rank that holds more than it may when an action starts, or for its layers alone.

    Parameters
    ----------
    held_bytes, limit_bytes
        What it then holds, static bytes included, and what it may hold.
    """

    def __init__(self, *, rank: int, action: int | None, held_bytes: int, limit_bytes: int) -> None:
        self.held_bytes, self.limit_bytes = held_bytes, limit_bytes
        super().__init__(f"holds {held_bytes} bytes, {limit_bytes} are allowed", rank=rank, action=action)
