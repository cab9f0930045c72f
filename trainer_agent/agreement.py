"""The ranks of one pipeline agree on what they run, before the first transfer of an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainer_agent.errors import RankMismatchError
from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_agent.mesh import Mesh

DIGEST_BYTES = 32
NO_PLAN = bytes(DIGEST_BYTES)
# Ranks that a reason names at most.
_NAMED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Ballot:
    """What one rank brings to the vote.

    Parameters
    ----------
    attempt, iteration
        Of the rank's training loop.
    batch_digest
        Of the batch's metadata as this rank knows it.
    plan_digest
        Of the plan that this rank would run, its own schedule's digest recomputed; None where it has none that it can
        run.
    """

    attempt: int
    iteration: int
    batch_digest: bytes
    plan_digest: bytes | None

    def to_bytes(self) -> bytes:
        """Write it as a string of fixed length."""
        numbers = self.attempt.to_bytes(8, "big", signed=True) + self.iteration.to_bytes(8, "big", signed=True)
        return numbers + self.batch_digest + (self.plan_digest or NO_PLAN)

    @classmethod
    def from_bytes(cls, data: bytes) -> Ballot:
        """Read what `to_bytes` wrote."""
        plan_digest = data[16 + DIGEST_BYTES :]
        return cls(
            attempt=int.from_bytes(data[:8], "big", signed=True),
            iteration=int.from_bytes(data[8:16], "big", signed=True),
            batch_digest=data[16 : 16 + DIGEST_BYTES],
            plan_digest=None if plan_digest == NO_PLAN else plan_digest,
        )


def disagreement(ballots: Sequence[Ballot]) -> str:
    """Decide a vote: empty where all run the plan; otherwise all run the fallback, for the reason that is returned.

    Raises
    ------
    RankMismatchError
        The ranks do not have the same batch, so not even the fallback, a function of the batch, would be the same.
    """
    first = ballots[0]
    strangers = [rank for rank, ballot in enumerate(ballots) if ballot.batch_digest != first.batch_digest]
    if strangers:
        seen = ", ".join(f"rank {rank} at iteration {ballot.iteration}" for rank, ballot in enumerate(ballots))
        raise RankMismatchError(what=f"the metadata of the batch ({seen})", ranks=strangers)
    without = [rank for rank, ballot in enumerate(ballots) if ballot.plan_digest is None]
    if len(without) == len(ballots):
        return "no rank had a plan"
    if without:
        return f"not every rank had a plan: {_ranks(without)} had none"
    if elsewhere := [rank for rank, ballot in enumerate(ballots) if _when(ballot) != _when(first)]:
        return f"not every rank is at the same iteration: {_ranks(elsewhere)} not where rank 0 is, {_when(first)}"
    if others := [rank for rank, ballot in enumerate(ballots) if ballot.plan_digest != first.plan_digest]:
        return f"not every rank had the same plan: {_ranks(others)} had another than rank 0"
    return ""


def _when(ballot: Ballot) -> str:
    return f"iteration {ballot.iteration} of attempt {ballot.attempt}"


def _ranks(ranks: Sequence[int]) -> str:
    """Name ranks, the first few of many."""
    named = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"


def vote(mesh: Mesh, ballot: Ballot) -> str:
    """Compare ballots over the ranks of this replica; collective on the CPU.

    Returns
    -------
    str
        The same on all ranks: empty where all of them bring the same plan for the same iteration of the same attempt,
        and where they do not, in what they differ.

    Raises
    ------
    RankMismatchError
        On all ranks, where their batches differ.
    StepTimeoutError, PeerLostError
        A rank did not vote.
    """
    if mesh.ranks == 1:
        return disagreement([ballot])
    mine = torch.frombuffer(bytearray(ballot.to_bytes()), dtype=torch.uint8)
    found = [torch.empty_like(mine) for _ in range(mesh.ranks)]
    with naming(mesh.rank, -1, f"agreement on iteration {ballot.iteration}", mesh.timeout):
        dist.all_gather(found, mine, group=mesh.pipeline_control)
    return disagreement([Ballot.from_bytes(data.numpy().tobytes()) for data in found])


def compare(group: dist.ProcessGroup, mesh: Mesh, *, what: str, digest: bytes) -> None:
    """Check that all processes of a group hold the same bytes; collective on the CPU.

    Raises
    ------
    RankMismatchError
        On all of them, naming those that differ from the first.
    """
    size = dist.get_world_size(group)
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    found = [torch.empty_like(mine) for _ in range(size)]
    with naming(mesh.rank, -1, f"comparison of {what}", mesh.timeout):
        dist.all_gather(found, mine, group=group)
    strangers = [rank for rank, data in enumerate(found) if not torch.equal(data, found[0])]
    if strangers:
        raise RankMismatchError(what=what, ranks=strangers)
