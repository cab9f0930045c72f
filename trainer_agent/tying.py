"""Parameters that are one tensor of the model but live on several ranks, like an embedding that is the head as well.

Each rank has a copy. Copies start alike, and once a step, after both the last backward and the sum over the replicas,
their gradients are added up, so that every copy gets the gradient of the one tensor and the optimizers keep them alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainer_agent.errors import TrainerAgentError
from trainer_agent.transfers import naming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from trainer_agent.mesh import Mesh

_Kind = tuple[tuple[int, ...], str, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tie:
    """One tensor: its names, this rank's copies of it, each once, and the group of all ranks that have some."""

    names: tuple[str, ...]
    copies: tuple[nn.Parameter, ...]
    group: dist.ProcessGroup | None

    def __str__(self) -> str:
        return " = ".join(self.names)


class TiedParameters:
    """What of this rank is tied. Made on all processes, collectively.

    Parameters
    ----------
    tied
        For each tensor the names of its copies, as `Executor.named_parameters` has them; the same on all processes. The
        first of them gives the others their values.
    named
        This rank's parameters by these names.
    mesh
        Groups and timeout.

    Raises
    ------
    TrainerAgentError
        A name is no parameter of the model, stands in two places, or its tensor is unlike the others of its tie.
    """

    def __init__(self, tied: Sequence[Sequence[str]], named: Mapping[str, nn.Parameter], mesh: Mesh) -> None:
        self._mesh = mesh
        self._ties: list[_Tie] = []
        if not tied:
            return
        listed = [name for names in tied for name in names]
        kinds = self._exchanged({name: named[name] for name in listed if name in named})
        for names in tied:
            _check(names, listed, kinds)
            self._ties.append(
                self._tie(names, named, [rank for rank, known in enumerate(kinds) if {*names} & {*known}])
            )
        for tie in self._ties:
            self._start_alike(tie, named)

    def parameters(self) -> list[nn.Parameter]:
        """Return this rank's copies."""
        return [copy for tie in self._ties for copy in tie.copies]

    def add_up(self) -> None:
        """Give every copy the sum of all copies' gradients; collective over the ranks of this replica.

        Copies without a gradient count as zeros; where none has one, none gets one.
        """
        if not self._ties:
            return
        present = torch.tensor([any(copy.grad is not None for copy in tie.copies) for tie in self._ties]).byte()
        with naming(self._mesh.rank, -1, "gradients of tied parameters", self._mesh.timeout):
            dist.all_reduce(present, op=dist.ReduceOp.MAX, group=self._mesh.pipeline_control)
        for tie, somewhere in zip(self._ties, present.tolist(), strict=True):
            if somewhere and tie.copies:
                self._add_up(tie)

    def _add_up(self, tie: _Tie) -> None:
        gradients = [copy.grad for copy in tie.copies if copy.grad is not None]
        total = gradients[0].clone() if gradients else torch.zeros_like(tie.copies[0])
        for gradient in gradients[1:]:
            total += gradient
        if tie.group is not None:
            with naming(self._mesh.rank, -1, f"gradients of {tie}", self._mesh.timeout):
                dist.all_reduce(total, group=tie.group)
        for copy in tie.copies:
            if copy.grad is None:
                copy.grad = total.clone()
            else:
                copy.grad.copy_(total)

    def _exchanged(self, mine: Mapping[str, nn.Parameter]) -> list[dict[str, _Kind]]:
        """Tell all ranks of this replica which of the tied parameters this one has."""
        kinds: dict[str, _Kind] = {n: (tuple(p.shape), str(p.dtype), p.requires_grad) for n, p in mine.items()}
        found: list[dict[str, _Kind]] = [{} for _ in range(self._mesh.ranks)]
        with naming(self._mesh.rank, -1, "names of tied parameters", self._mesh.timeout):
            dist.all_gather_object(found, kinds, group=self._mesh.pipeline_control)
        return found

    def _tie(self, names: Sequence[str], named: Mapping[str, nn.Parameter], owners: Sequence[int]) -> _Tie:
        mesh, group = self._mesh, None
        backend = "nccl" if mesh.device.type == "cuda" else "gloo"
        if len(owners) > 1:
            # Every process makes every group, in the same order, as torch.distributed wants it.
            for replica in range(mesh.replicas):
                members = [replica * mesh.ranks + rank for rank in owners]
                made = dist.new_group(members, timeout=mesh.timeout, backend=backend)
                if replica == mesh.replica and mesh.rank in owners:
                    group = made
        copies = {id(named[name]): named[name] for name in names if name in named}
        return _Tie(names=tuple(names), copies=tuple(copies.values()), group=group)

    def _start_alike(self, tie: _Tie, named: Mapping[str, nn.Parameter]) -> None:
        """Copy the values of the first of the names to all others."""
        if not tie.copies:
            return
        first = named.get(tie.names[0])
        total = torch.zeros_like(tie.copies[0]) if first is None else first.detach().clone()
        if tie.group is not None:
            # One rank has values and the others zeros: their sum are the values, whoever has them.
            with naming(self._mesh.rank, -1, f"values of {tie}", self._mesh.timeout):
                dist.all_reduce(total, group=tie.group)
        for copy in tie.copies:
            copy.data.copy_(total)


def _check(names: Sequence[str], listed: Sequence[str], kinds: Sequence[Mapping[str, _Kind]]) -> None:
    """Check one tie against what all ranks have."""
    known = {name: kind for of_rank in kinds for name, kind in of_rank.items()}
    if len(names) < 2:
        raise TrainerAgentError(f"tied: {list(names)}; must be the names of two parameters or more")
    for name in names:
        if name not in known:
            raise TrainerAgentError(f"tied: {name!r}; no rank has a parameter of this name in its named_parameters")
        if listed.count(name) > 1:
            raise TrainerAgentError(f"tied: {name!r} stands there twice")
        if known[name] != known[names[0]]:
            raise TrainerAgentError(
                f"tied: {name!r} is {_described(known[name])}, {names[0]!r} is {_described(known[names[0]])}; must be "
                "alike"
            )


def _described(kind: _Kind) -> str:
    shape, dtype, trains = kind
    return f"{list(shape)} of {dtype}, {'trained' if trains else 'frozen'}"
