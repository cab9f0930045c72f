"""What a batch of a job costs: by module and way to run its layers, and by rank under a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dip.chunk_costs import layers_cost
from dip.costs import STORE, kept_bytes
from dip.job import Job
from dip.partition import batch_load
from dip.work import chunks_of, static_bytes

from planner_service.costs.efficient import efficient_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.job import Module
    from dip.memory import Way
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Chunk

Sizes: TypeAlias = "Sequence[tuple[int, int, int]]"
"""Units and squared units of microbatches, with how many there are of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WayCost:
    """A module whose layers all run in one way, where they have it, on a rank of speed 1.

    Parameters
    ----------
    name
        The way: "store" or a strategy.
    forward_us, backward_input_us, backward_weight_us
        For the whole batch, every microbatch run whole.
    kept_bytes, split_kept_bytes
        What all layers keep of the largest microbatch: until the backward, and between the halves of a split one.
    """

    name: str
    forward_us: int
    backward_input_us: int
    backward_weight_us: int
    kept_bytes: int
    split_kept_bytes: int

    @property
    def total_us(self) -> int:
        """All passes together."""
        return self.forward_us + self.backward_input_us + self.backward_weight_us


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleCost:
    """One module.

    Parameters
    ----------
    name, num_layers
        Which, and how many layers it has.
    units, largest_units
        Of the whole batch, and of its largest microbatch.
    instance_units
        Typical size of an instance: the sum of squares over the sum, which is what attention's share depends on.
    share
        Of the time of all modules, storing everything.
    static_bytes
        Weights, gradients and optimizer state of all layers.
    efficient_units
        The smallest sub-microbatch that keeps 95% of the best throughput.
    ways
        Ways to run its layers, "store" first.
    """

    name: str
    num_layers: int
    units: int
    largest_units: int
    instance_units: float
    share: float
    static_bytes: int
    efficient_units: int
    ways: tuple[WayCost, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkRange:
    """Layers of one module on a rank: ``first_layer`` to ``last_layer``."""

    module: str
    first_layer: int
    last_layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCost:
    """One rank.

    Parameters
    ----------
    rank
        Which.
    chunks
        What it holds.
    module_us
        Time of the whole batch by module, at the rank's speed, every microbatch run whole and stored.
    total_us, share
        Sum of these, and its share of all ranks'.
    static_bytes, memory_bytes
        What its layers hold for good, and what it may hold; 0: no limit.
    """

    rank: int
    chunks: tuple[ChunkRange, ...]
    module_us: Mapping[str, int]
    total_us: int
    share: float
    static_bytes: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCost:
    """What a batch costs.

    Parameters
    ----------
    microbatches
        Microbatches of the batch.
    modules
        In the order of the model.
    ranks
        In order.
    """

    microbatches: int
    modules: tuple[ModuleCost, ...]
    ranks: tuple[RankCost, ...]


def job_cost(spec: pb.JobSpec, batch: pb.Batch, partition: pb.Partition) -> JobCost:
    """Account for a batch of a job; spec, batch and partition must be valid."""
    job = Job.from_spec(spec)
    loads = [_load(module, batch) for module in job.modules]
    backward = not batch.forward_only
    ways = [_ways(module, load, backward=backward) for module, load in zip(job.modules, loads, strict=True)]
    whole_us = sum(of_module[0].total_us for of_module in ways)
    modules = tuple(
        _module_cost(message, module, load, made, whole_us=whole_us, backward=backward)
        for message, module, load, made in zip(spec.model.modules, job.modules, loads, ways, strict=True)
    )
    ranks = _ranks(job, loads, chunks_of(job, partition), backward=backward)
    return JobCost(microbatches=len(batch.microbatches), modules=modules, ranks=ranks)


def _load(module: Module, batch: pb.Batch) -> Sizes:
    """Sizes of the microbatches that have work for a module; none where the batch has none."""
    present = any(module.name in sample.instances for m in batch.microbatches for sample in m.samples)
    return batch_load(module, batch).sizes if present else ()


def _ways(module: Module, load: Sizes, *, backward: bool) -> tuple[WayCost, ...]:
    names = dict.fromkeys(name for run in module.runs for name in run.table.strategies)
    return tuple(_way(module, load, name, backward=backward and module.trains) for name in names)


def _way(module: Module, load: Sizes, name: str, *, backward: bool) -> WayCost:
    way: Way = tuple((name if name in run.table.strategies else STORE, run.stop - run.start) for run in module.runs)
    forward = given = weight = kept = split = 0.0
    for units, squares, count in load:
        cost = layers_cost(module, 0, way, units=units, squares=squares)
        forward += count * cost.forward_us
        if backward:
            given += count * cost.backward_input_us
            weight += count * (0.0 if module.frozen else cost.backward_weight_us)
            kept, split = max(kept, cost.activation_bytes), max(split, cost.split_activation_bytes)
    return WayCost(
        name=name,
        forward_us=round(forward),
        backward_input_us=round(given),
        backward_weight_us=round(weight),
        kept_bytes=kept_bytes(kept),
        split_kept_bytes=kept_bytes(split),
    )


def _module_cost(
    message: pb.Module,
    module: Module,
    load: Sizes,
    ways: tuple[WayCost, ...],
    *,
    whole_us: int,
    backward: bool,
) -> ModuleCost:
    units = sum(count * units for units, _, count in load)
    squares = sum(count * squares for _, squares, count in load)
    return ModuleCost(
        name=module.name,
        num_layers=module.num_layers,
        units=units,
        largest_units=max((units for units, _, _ in load), default=0),
        instance_units=squares / max(1, units),
        share=ways[0].total_us / whole_us if whole_us else 0.0,
        static_bytes=module.static_bytes(0, module.num_layers),
        efficient_units=efficient_units(message, module, instance_units=squares / max(1, units), backward=backward),
        ways=ways,
    )


def _ranks(
    job: Job, loads: Sequence[Sizes], chunks: Sequence[Sequence[Chunk]], *, backward: bool
) -> tuple[RankCost, ...]:
    times = [dict.fromkeys((module.name for module in job.modules), 0) for _ in range(job.ranks)]
    held: list[list[ChunkRange]] = [[] for _ in range(job.ranks)]
    for module, load, of_module in zip(job.modules, loads, chunks, strict=True):
        for chunk in of_module:
            last = chunk.first_layer + chunk.num_layers - 1
            held[chunk.rank].append(ChunkRange(module=module.name, first_layer=chunk.first_layer, last_layer=last))
            times[chunk.rank][module.name] += _chunk_us(job, chunk, load, backward=backward and module.trains)
    totals = [sum(of_rank.values()) for of_rank in times]
    static = static_bytes(job, chunks)
    return tuple(
        RankCost(
            rank=rank,
            chunks=tuple(held[rank]),
            module_us=times[rank],
            total_us=totals[rank],
            share=totals[rank] / max(1, sum(totals)),
            static_bytes=static[rank],
            memory_bytes=job.memory_bytes[rank],
        )
        for rank in range(job.ranks)
    )


def _chunk_us(job: Job, chunk: Chunk, load: Sizes, *, backward: bool) -> int:
    """Time of all microbatches on a chunk, as stage tasks take it."""
    total = 0
    for units, squares, count in load:
        cost = job.cost_book.cost(chunk, units=units, squares=squares)
        total += count * (cost.forward_us + (cost.backward_us if backward else 0))
    return total
