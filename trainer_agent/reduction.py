"""What the replicas add up: the weight that the loss is divided by, and gradients."""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat

import torch
import torch.distributed as dist

from trainer_agent.errors import RankMismatchError, TrainerAgentError
from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_agent.mesh import Mesh

BUCKET_BYTES = 25 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class LossWeight:
    """The weight of an iteration's loss over all replicas, on its way while the forward runs.

    Made by `gather`; `total` waits for it. The same collective compares what the replicas run: one that evaluates
    while another trains, or that is at another iteration, is an error instead of a hang in the gradients.
    """

    mesh: Mesh
    mine: torch.Tensor
    found: Sequence[torch.Tensor]
    work: dist.Work | None

    @classmethod
    def gather(cls, mesh: Mesh, *, weight: float, iteration: int, training: bool) -> LossWeight:
        """Start to add this replica's weight to the others'; collective over this rank's peers, on the CPU.

        Raises
        ------
        TrainerAgentError
            The weight is not a number of 0 or more.
        """
        mine = torch.tensor([_checked_weight(weight), iteration, training], dtype=torch.float64)
        if mesh.replicas == 1:
            return cls(mesh=mesh, mine=mine, found=[mine], work=None)
        found = [torch.empty_like(mine) for _ in range(mesh.replicas)]
        with naming(mesh.rank, -1, "weight of the loss over the replicas", mesh.timeout):
            work = dist.all_gather(found, mine, group=mesh.peers_control, async_op=True)
        return cls(mesh=mesh, mine=mine, found=found, work=work)

    def total(self) -> float:
        """Wait for the weight over all replicas, the same on all processes.

        Raises
        ------
        RankMismatchError
            Replicas are at different iterations, or some train and some evaluate; names global ranks.
        """
        if self.work is not None:
            with naming(self.mesh.rank, -1, "weight of the loss over the replicas", self.mesh.timeout):
                self.work.wait()
        strangers = [r for r, one in enumerate(self.found) if one[1:].tolist() != self.found[0][1:].tolist()]
        if strangers:
            ranks = [replica * self.mesh.ranks + self.mesh.rank for replica in strangers]
            what = "the iteration, or whether it trains,"
            raise RankMismatchError(what=what, ranks=ranks, reference=self.mesh.rank)
        return math.fsum(float(one[0]) for one in self.found)

    def scale(self) -> float:
        """What the summed loss is multiplied with; 0 where nothing in the whole batch has a weight."""
        total = self.total()
        return 1.0 / total if total else 0.0


def _checked_weight(weight: object) -> float:
    """Return what the user's function returned as a number; numpy's and torch's scalars are numbers too."""
    number = math.nan
    if isinstance(weight, SupportsFloat):
        with suppress(TypeError, ValueError, RuntimeError):  # an array of several
            number = float(weight)
    if not (math.isfinite(number) and number >= 0):
        raise TrainerAgentError(f"loss_weight returned {weight!r}; must be a finite number of 0 or more")
    return number


class EarlierGradients:
    """What earlier steps left in the gradients, kept apart while a step adds its own.

    It was added up over the replicas then: were it there when this step's gradients are, the replicas would count it
    once each, and so would the copies of a tied parameter. What nobody adds up is not taken away.

    Parameters
    ----------
    parameters
        Those of this rank; their gradients are taken away until `put_back`.
    tied
        Those of them that are tied.
    mesh
        Tells whether there are replicas.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], tied: Iterable[torch.nn.Parameter], mesh: Mesh
    ) -> None:
        self._kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        for parameter in parameters if mesh.replicas > 1 else tied:
            if parameter.grad is not None:
                self._kept.append((parameter, parameter.grad))
                parameter.grad = None

    def put_back(self) -> None:
        """Add the gradients since to those that were kept, in the tensors that the program knows."""
        for parameter, earlier in self._kept:
            if parameter.grad is not None:
                earlier.add_(parameter.grad)
            parameter.grad = earlier


def reduce_gradients(parameters: Iterable[torch.nn.Parameter], mesh: Mesh, *, bucket_bytes: int = BUCKET_BYTES) -> None:
    """Add gradients up over the replicas; collective over this rank's peers.

    A parameter without a gradient on some replicas counts as zeros there; one without a gradient on all replicas
    keeps none, as in a single process.

    Parameters
    ----------
    parameters
        Those of this rank, in an order that is the same on all its peers.
    mesh
        Groups and timeout.
    bucket_bytes
        About how much one collective carries.
    """
    if mesh.replicas == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        return
    action = "gradients over the replicas"
    present = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.uint8)
    with naming(mesh.rank, -1, action, mesh.timeout):
        dist.all_reduce(present, op=dist.ReduceOp.MAX, group=mesh.peers_control)
    gradients: list[torch.Tensor] = []
    for parameter, somewhere in zip(trained, present.tolist(), strict=True):
        if somewhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    with naming(mesh.rank, -1, action, mesh.timeout):
        for bucket in _buckets(gradients, bucket_bytes):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat, group=mesh.peers)
            for gradient, total in zip(bucket, torch.split(flat, [g.numel() for g in bucket]), strict=True):
                gradient.copy_(total.view_as(gradient))


def _buckets(gradients: Sequence[torch.Tensor], bucket_bytes: int) -> list[list[torch.Tensor]]:
    """Group gradients of one type; one that is larger than a bucket stands alone."""
    made: list[list[torch.Tensor]] = []
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        by_dtype[gradient.dtype].append(gradient)
    for of_dtype in by_dtype.values():
        held = bucket_bytes
        for gradient in of_dtype:
            size = gradient.numel() * gradient.element_size()
            if held + size > bucket_bytes:
                made.append([])
                held = 0
            made[-1].append(gradient)
            held += size
    return made
