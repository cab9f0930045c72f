"""The stage tasks of one batch on one partition: what must run where, after what, and what it costs.

A *cell* is one (chunk, sub-microbatch): its forward, and its backward where its module trains. Cells of a
sub-microbatch are numbered in chunk order, one sub-microbatch after another; an edge says that a cell consumes
another's output, and where both train, its backward hands the gradient back along the same edge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dip.costs import STORE, ZERO, duration_us, kept_bytes
from dip.memory import LeanWays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dip.costs import Cost
    from dip.job import Job, Module
    from dip.memory import Way
    from dip.planner.v1 import planner_pb2 as pb


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Consecutive layers of one module on one rank."""

    module: int
    index: int
    rank: int
    first_layer: int
    num_layers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A sub-microbatch: the instances of one microbatch that one module processes together.

    Parameters
    ----------
    module, microbatch
        Whose it is.
    samples, instances, sizes
        For each instance: its sample in the microbatch, its place among the sample's instances, its units.
    units, squares
        Sums of the units of all instances, and of their squares: what costs depend on.
    """

    module: int
    microbatch: int
    samples: tuple[int, ...]
    instances: tuple[int, ...]
    sizes: tuple[int, ...]
    units: int = field(init=False)
    squares: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", sum(self.sizes))
        object.__setattr__(self, "squares", sum(size * size for size in self.sizes))


@dataclass(frozen=True, kw_only=True, slots=True)
class CellCost:
    """What a cell takes on its rank, in whole microseconds, and keeps, in whole bytes.

    Parameters
    ----------
    forward_us, backward_us, backward_input_us, backward_weight_us
        Durations; ``backward_us`` is that of a backward that is not split. A frozen module's weight half takes 0.
    kept_bytes
        Held from the start of the forward to the end of the backward, or to the start of its input half.
    split_kept_bytes
        Held from the start of the input half to the end of the weight half.
    """

    forward_us: int
    backward_us: int
    backward_input_us: int
    backward_weight_us: int
    kept_bytes: int
    split_kept_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What cells of equal cost have in common: their chunk, and their instances' units and squared units."""

    chunk: Chunk
    units: int
    squares: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """The forward of ``consumer`` needs the output of ``producer``; both are cells.

    Parameters
    ----------
    num_bytes
        Size of the output, and of its gradient.
    hop_us
        What the transfer takes; 0 on one rank.
    crosses
        Whether the cells lie on different ranks.
    """

    producer: int
    consumer: int
    num_bytes: int
    hop_us: int
    crosses: bool


class Work:
    """Everything that one batch asks of one partition.

    Parameters
    ----------
    job
        The job.
    forward_only
        Whether there is no backward at all.
    chunks
        The chunks of each module, by index.
    parts
        The sub-microbatches; their place is their id.
    """

    def __init__(
        self, *, job: Job, forward_only: bool, chunks: Sequence[Sequence[Chunk]], parts: Sequence[Part]
    ) -> None:
        self.job = job
        self.forward_only = forward_only
        self.chunks = tuple(tuple(of_module) for of_module in chunks)
        self.parts = tuple(parts)
        self.first_cell: list[int] = []
        self.cell_part: list[int] = []
        self.cell_chunk: list[Chunk] = []
        for p, part in enumerate(self.parts):
            self.first_cell.append(len(self.cell_part))
            for chunk in self.chunks[part.module]:
                self.cell_part.append(p)
                self.cell_chunk.append(chunk)
        # Cells of one chunk and of sub-microbatches of one size cost the same: they are of one kind.
        self.cell_kind: list[int] = []
        self.kinds: list[Kind] = []
        numbers: dict[tuple[int, int, int, int], int] = {}
        for p, chunk in zip(self.cell_part, self.cell_chunk, strict=True):
            part = self.parts[p]
            key = chunk.module, chunk.index, part.units, part.squares
            if key not in numbers:
                numbers[key] = len(self.kinds)
                self.kinds.append(Kind(chunk=chunk, units=part.units, squares=part.squares))
            self.cell_kind.append(numbers[key])
        self._costs: dict[tuple[int, Way], CellCost] = {}

    @property
    def num_cells(self) -> int:
        """Cells of the whole batch."""
        return len(self.cell_part)

    def module_of(self, cell: int) -> Module:
        """Module that a cell belongs to."""
        return self.job.modules[self.cell_chunk[cell].module]

    def has_backward(self, cell: int) -> bool:
        """Whether a cell has a backward, and keeps activations for it."""
        return not self.forward_only and self.module_of(cell).trains

    def last_cell(self, part: int) -> int:
        """Cell of a sub-microbatch in the last chunk of its module."""
        return self.first_cell[part] + len(self.chunks[self.parts[part].module]) - 1

    @cached_property
    def links(self) -> list[tuple[int, int, int]]:
        """Pairs of sub-microbatches (producer, consumer) and the producer's units that the consumer takes."""
        holders: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        for p, part in enumerate(self.parts):
            for sample, size in zip(part.samples, part.sizes, strict=True):
                held = holders[part.microbatch, part.module, sample]
                held[p] = held.get(p, 0) + size
        found: list[tuple[int, int, int]] = []
        for q, part in enumerate(self.parts):
            for upstream in self.job.modules[part.module].inputs:
                taken: dict[int, int] = {}
                for sample in dict.fromkeys(part.samples):
                    for p, units in holders.get((part.microbatch, upstream, sample), {}).items():
                        taken[p] = taken.get(p, 0) + units
                found.extend((p, q, taken[p]) for p in sorted(taken))
        return found

    @cached_property
    def edges(self) -> list[Edge]:
        """All edges: inside each sub-microbatch, then between modules."""
        made: list[Edge] = []
        for p, part in enumerate(self.parts):
            size = self.job.modules[part.module].output_bytes * part.units
            first = self.first_cell[p]
            made.extend(self._edge(cell - 1, cell, size) for cell in range(first + 1, self.last_cell(p) + 1))
        for p, q, units in self.links:
            size = self.job.modules[self.parts[p].module].result_bytes * units
            made.append(self._edge(self.last_cell(p), self.first_cell[q], size))
        return made

    def _edge(self, producer: int, consumer: int, num_bytes: int) -> Edge:
        crosses = self.cell_chunk[producer].rank != self.cell_chunk[consumer].rank
        hop = self.job.hop_us(num_bytes) if crosses else 0
        return Edge(producer=producer, consumer=consumer, num_bytes=num_bytes, hop_us=hop, crosses=crosses)

    def cost(self, cell: int, way: Way = ()) -> CellCost:
        """What a cell costs when its layers run in the given way."""
        key = self.cell_kind[cell], way
        found = self._costs.get(key)
        if found is None:
            kind = self.kinds[key[0]]
            found = chunk_cost(self.job, kind.chunk, units=kind.units, squares=kind.squares, way=way)
            self._costs[key] = found
        return found

    @cached_property
    def lean_ways(self) -> LeanWays:
        """Ways to run each kind of cell that keep less memory."""
        return LeanWays(self.job, self.kinds)

    @cached_property
    def groups(self) -> list[int]:
        """For each sub-microbatch the group of those that depend on each other; numbered by their first."""
        root = list(range(len(self.parts)))

        def find(p: int) -> int:
            while root[p] != p:
                root[p] = root[root[p]]
                p = root[p]
            return p

        for p, q, _ in self.links:
            a, b = find(p), find(q)
            root[max(a, b)] = min(a, b)
        number: dict[int, int] = {}
        return [number.setdefault(find(p), len(number)) for p in range(len(self.parts))]

    @cached_property
    def static_bytes(self) -> list[int]:
        """Weights, gradients and optimizer state on each rank."""
        return static_bytes(self.job, self.chunks)


def static_bytes(job: Job, chunks: Iterable[Iterable[Chunk]]) -> list[int]:
    """Weights, gradients and optimizer state that a partition puts on each rank."""
    held = [0] * job.ranks
    for of_module in chunks:
        for chunk in of_module:
            held[chunk.rank] += job.modules[chunk.module].static_bytes(chunk.first_layer, chunk.num_layers)
    return held


def chunk_cost(job: Job, chunk: Chunk, *, units: int, squares: int, way: Way = ()) -> CellCost:
    """Cost of a chunk for instances whose sizes sum to ``units`` and their squares to ``squares``.

    Raises
    ------
    ValueError
        If ``way`` does not cover the chunk's layers, or names a strategy that a layer does not have.
    """
    module, speed = job.modules[chunk.module], job.speed[chunk.rank]
    total = layers_cost(module, chunk.first_layer, way or ((STORE, chunk.num_layers),), units=units, squares=squares)
    weight = 0.0 if module.frozen else total.backward_weight_us
    return CellCost(
        forward_us=duration_us(total.forward_us, speed),
        backward_us=duration_us(total.backward_input_us + weight, speed),
        backward_input_us=duration_us(total.backward_input_us, speed),
        backward_weight_us=0 if module.frozen else duration_us(weight, speed),
        kept_bytes=kept_bytes(total.activation_bytes),
        split_kept_bytes=kept_bytes(total.split_activation_bytes),
    )


def layers_cost(module: Module, first_layer: int, way: Way, *, units: int, squares: int) -> Cost:
    """Sum of the layers from ``first_layer`` on, as many as ``way`` covers, each run in its way."""
    total, layer = ZERO, first_layer
    for name, count in way:
        for run, inside in module.runs_of(layer, count):
            if name not in run.table.strategies:
                allowed = ", ".join(run.table.strategies)
                raise ValueError(f"strategy {name!r} of module {module.name!r}, layer {layer}: allowed are {allowed}")
            total = total.plus(run.table.at(name, units, squares), inside)
        layer += count
    return total


def chunks_of(job: Job, partition: pb.Partition) -> list[list[Chunk]]:
    """Chunks of each module of a partition, by index."""
    by_module: list[list[Chunk]] = [[] for _ in job.modules]
    for chunk in partition.chunks:
        module = job.module_index[chunk.module]
        by_module[module].append(
            Chunk(
                module=module,
                index=chunk.index,
                rank=chunk.rank,
                first_layer=chunk.first_layer,
                num_layers=chunk.num_layers,
            )
        )
    for of_module in by_module:
        of_module.sort(key=lambda chunk: chunk.index)
    return by_module
