"""A rank's schedule, checked and resolved into steps that can be run without looking anything up.

A *cell* is one chunk's work on one sub-microbatch. An *edge* joins two cells: the consumer's forward takes the
producer's output, and where the producer trains, its backward takes the gradient that comes back along the edge. Where
the two live on different ranks, a transfer travels each way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dip.lowering import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.stages import Instance


NAMES = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.BACKWARD_INPUT: "input half",
    Phase.BACKWARD_WEIGHT: "weight half",
}


class Cell(NamedTuple):
    """One chunk's work on one sub-microbatch."""

    module: str
    chunk: int
    sub_microbatch: int

    def __str__(self) -> str:
        """Name it as errors do."""
        return f"{self.module}.{self.chunk} on sub-microbatch {self.sub_microbatch}"


class Parcel(NamedTuple):
    """What travels along an edge: the producer's activation, or its gradient on the way back.

    ``source`` made it and ``target`` consumes it: of a gradient, the edge's consumer and its producer.
    """

    gradient: bool
    source: Cell
    target: Cell

    def __str__(self) -> str:
        """Name it as errors do."""
        what = "gradient" if self.gradient else "activation"
        return f"{what} that {self.source} makes for {self.target}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """The forward of ``consumer`` takes the output of ``producer``, or some of its rows.

    Parameters
    ----------
    producer, consumer
        The two cells.
    producer_rank, consumer_rank
        Where they live.
    positions
        Which of the producer's instances travel, ascending; None: all, in one piece (inside a module).
    instances, rows
        The instances that travel, and the rows of each.
    shape, dtype
        Of the tensor that travels, and of its gradient.
    has_gradient
        Whether a gradient comes back.
    """

    producer: Cell
    consumer: Cell
    producer_rank: int
    consumer_rank: int
    positions: tuple[int, ...] | None
    instances: tuple[Instance, ...]
    rows: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    has_gradient: bool

    @property
    def crosses(self) -> bool:
        """Whether it takes transfers."""
        return self.producer_rank != self.consumer_rank

    @property
    def activation(self) -> Parcel:
        """What travels forward."""
        return Parcel(gradient=False, source=self.producer, target=self.consumer)

    @property
    def gradient(self) -> Parcel:
        """What travels back."""
        return Parcel(gradient=True, source=self.consumer, target=self.producer)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellPlan:
    """Everything about one cell of this rank.

    Parameters
    ----------
    cell
        The cell.
    microbatch, instances
        What it works on.
    output_rows, result_rows
        Rows of each instance inside the module and as handed on.
    inputs, outputs
        Edges that end and start here, in a fixed order that does not depend on the schedule.
    ways
        For each layer of the chunk how it runs.
    phases
        All that must run of it, in this order.
    """

    cell: Cell
    microbatch: int
    instances: tuple[Instance, ...]
    output_rows: tuple[int, ...]
    result_rows: tuple[int, ...]
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    ways: tuple[str, ...]
    phases: tuple[Phase, ...]

    @property
    def has_backward(self) -> bool:
        """Whether a backward follows, so that activations are kept."""
        return len(self.phases) > 1

    @property
    def is_split(self) -> bool:
        """Whether something is left after the input half."""
        return Phase.BACKWARD_WEIGHT in self.phases

    def exchanging(self, parcel: Parcel) -> Phase:
        """Return the phase that makes or takes a parcel: the forward, or what makes the gradients of the inputs."""
        return self.phases[1] if parcel.gradient else self.phases[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeStep:
    """Run one phase of a cell."""

    action: pb.Action
    work: CellPlan
    phase: Phase

    def __str__(self) -> str:
        """Name it as errors do."""
        return f"{NAMES[self.phase]} of {self.work.cell}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferStep:
    """Issue one side of a transfer.

    Parameters
    ----------
    action
        The action of the plan.
    parcel
        What travels.
    sends
        Whether this rank sends it.
    peer
        The other rank.
    shape, dtype
        Of the tensor.
    """

    action: pb.Action
    parcel: Parcel
    sends: bool
    peer: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        """Name it as errors do."""
        return f"{'send' if self.sends else 'receive'} of the {self.parcel}"


Step = ComputeStep | TransferStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What one rank runs in one iteration.

    Parameters
    ----------
    iteration
        The iteration.
    training
        Whether there is a backward pass.
    steps
        In the order in which the rank issues them.
    losses
        Ids of the sub-microbatches whose loss this rank computes.
    """

    iteration: int
    training: bool
    steps: Sequence[Step]
    losses: tuple[int, ...]
