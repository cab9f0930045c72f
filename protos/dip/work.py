"""The stage tasks of one batch on one partition: what must run where, after what, and what it costs.

A *cell* is one (chunk, sub-microbatch): its forward, and its backward where its module trains. Cells of a
sub-microbatch are numbered in chunk order, one sub-microbatch after another; an edge says that a cell consumes
another's output, and where both train, its backward hands the gradient back along the same edge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from dip.memory import LeanWays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dip.chunk_costs import CellCost
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
class Kind:
    """What cells of equal cost have in common: their instances' units and squared units, and chunks that are alike.

    Parameters
    ----------
    chunk
        One of the chunks.
    units, squares
        Sums over the instances.
    """

    chunk: Chunk
    units: int
    squares: int


class Edge(NamedTuple):
    """The forward of ``consumer`` needs the output of ``producer``; both are cells.

    Parameters
    ----------
    producer, consumer
        The cells.
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
        self.cell_kind: list[int] = []
        self.kinds: list[Kind] = []
        alike = [_alike(job, of_module) for of_module in self.chunks]
        first_kind: dict[tuple[int, int, int], int] = {}
        for p, part in enumerate(self.parts):
            of_module, (unlike, number) = self.chunks[part.module], alike[part.module]
            size = part.module, part.units, part.squares
            if size not in first_kind:
                first_kind[size] = len(self.kinds)
                self.kinds += [Kind(chunk=chunk, units=part.units, squares=part.squares) for chunk in unlike]
            kind = first_kind[size]
            self.first_cell.append(len(self.cell_part))
            self.cell_part += [p] * len(of_module)
            self.cell_chunk += of_module
            self.cell_kind += [kind + i for i in number]
        self._costs: dict[tuple[int, Way], CellCost] = {}

    @property
    def num_cells(self) -> int:
        """Cells of the whole batch."""
        return len(self.cell_part)

    def module_of(self, cell: int) -> Module:
        """Module that a cell belongs to."""
        return self.job.modules[self.cell_chunk[cell].module]

    @cached_property
    def cell_rank(self) -> list[int]:
        """Rank of each cell."""
        return [chunk.rank for chunk in self.cell_chunk]

    @cached_property
    def cell_trains(self) -> list[bool]:
        """For each cell, whether it has a backward, and keeps activations for it."""
        trains = [not self.forward_only and module.trains for module in self.job.modules]
        return [trains[chunk.module] for chunk in self.cell_chunk]

    def has_backward(self, cell: int) -> bool:
        """Whether a cell has a backward, and keeps activations for it."""
        return self.cell_trains[cell]

    def last_cell(self, part: int) -> int:
        """Cell of a sub-microbatch in the last chunk of its module."""
        return self.first_cell[part] + len(self.chunks[self.parts[part].module]) - 1

    @cached_property
    def links(self) -> list[tuple[int, int, int]]:
        """Pairs of sub-microbatches (producer, consumer) and the producer's units that the consumer takes."""
        modules = self.job.modules
        holders: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        for p, part in enumerate(self.parts):
            if modules[part.module].consumers:
                for sample, size in zip(part.samples, part.sizes, strict=True):
                    held = holders[part.microbatch, part.module, sample]
                    held[p] = held.get(p, 0) + size
        found: list[tuple[int, int, int]] = []
        for q, part in enumerate(self.parts):
            for upstream in modules[part.module].inputs:
                taken: dict[int, int] = {}
                for sample in dict.fromkeys(part.samples):
                    for p, units in holders.get((part.microbatch, upstream, sample), {}).items():
                        taken[p] = taken.get(p, 0) + units
                found.extend((p, q, taken[p]) for p in sorted(taken))
        return found

    @cached_property
    def edges(self) -> list[Edge]:
        """All edges: inside each sub-microbatch, then between modules."""
        job, rank = self.job, self.cell_rank
        crossing = [[a.rank != b.rank for a, b in pairwise(of_module)] for of_module in self.chunks]
        made: list[Edge] = []
        for first, part in zip(self.first_cell, self.parts, strict=True):
            size = job.modules[part.module].output_bytes * part.units
            hop = job.hop_us(size)
            for cell, crosses in enumerate(crossing[part.module], first):
                made.append(Edge(cell, cell + 1, size, hop if crosses else 0, crosses))
        for p, q, units in self.links:
            size = job.modules[self.parts[p].module].result_bytes * units
            producer, consumer = self.last_cell(p), self.first_cell[q]
            crosses = rank[producer] != rank[consumer]
            made.append(Edge(producer, consumer, size, job.hop_us(size) if crosses else 0, crosses))
        return made

    @cached_property
    def successors(self) -> list[list[tuple[int, int]]]:
        """What waits for the forward of each cell ``c`` (row ``c``) and for its gradient (row ``n + c``).

        Each entry is the row of a later forward or gradient, and the hop in between: a forward waits for its inputs,
        the backward of a cell (or the input half of it) for its forward and for the gradients of what consumed it.
        """
        n, trains = self.num_cells, self.cell_trains
        rows: list[list[tuple[int, int]]] = [[(n + cell, 0)] if has else [] for cell, has in enumerate(trains)]
        rows += [[] for _ in trains]
        for producer, consumer, _, hop, _ in self.edges:
            rows[producer].append((consumer, hop))
            if trains[producer]:
                rows[n + consumer].append((n + producer, hop))
        return rows

    @cached_property
    def num_inputs(self) -> list[int]:
        """How much each forward and each gradient waits for; in rows as those of ``successors``."""
        counts = [0] * (2 * self.num_cells)
        for row in self.successors:
            for later, _ in row:
                counts[later] += 1
        return counts

    def cost(self, cell: int, way: Way = ()) -> CellCost:
        """What a cell costs when its layers run in the given way."""
        key = self.cell_kind[cell], way
        found = self._costs.get(key)
        if found is None:
            kind = self.kinds[key[0]]
            found = self.job.cost_book.cost(kind.chunk, units=kind.units, squares=kind.squares, way=way)
            self._costs[key] = found
        return found

    def costs(self, ways: Sequence[Way]) -> list[CellCost]:
        """What all cells cost when the layers of each run in its way."""
        return [self.cost(cell, way) for cell, way in enumerate(ways)]

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


def _alike(job: Job, chunks: Sequence[Chunk]) -> tuple[list[Chunk], list[int]]:
    """Of all chunks those that differ in what they cost, and for each chunk the place of its like among them."""
    unlike: list[Chunk] = []
    number: dict[tuple[object, ...], int] = {}
    places: list[int] = []
    for chunk in chunks:
        likeness = job.cost_book.likeness(chunk)
        if likeness not in number:
            number[likeness] = len(unlike)
            unlike.append(chunk)
        places.append(number[likeness])
    return unlike, places


def static_bytes(job: Job, chunks: Iterable[Iterable[Chunk]]) -> list[int]:
    """Weights, gradients and optimizer state that a partition puts on each rank."""
    held = [0] * job.ranks
    for of_module in chunks:
        for chunk in of_module:
            held[chunk.rank] += job.modules[chunk.module].static_bytes(chunk.first_layer, chunk.num_layers)
    return held


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
