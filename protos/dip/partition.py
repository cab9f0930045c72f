"""Cutting modules into chunks: even in time, aware of ranks' speeds and memory, for any number of layers and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE
from dip.job import Job
from dip.layers import share_layers
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.job import Module


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What one module has to do for a batch, as far as cutting it goes.

    Parameters
    ----------
    sizes
        Units and squared units of the sub-microbatches that are typical for it, with how many there are of each.
    """

    sizes: tuple[tuple[int, int, int], ...]


def default_partition(spec: pb.JobSpec, batch: pb.Batch | None = None) -> pb.Partition:
    """Partition that every rank can make alone: one segment a module, or as many as the job asks for.

    Parameters
    ----------
    spec
        A valid specification.
    batch
        A batch like those to come; without one, modules are compared at their middle cost point.
    """
    job = Job.from_spec(spec)
    loads = [batch_load(module, batch) for module in job.modules] if batch else [typical_load(m) for m in job.modules]
    slots = [slots_of(job, module, job.segments.get(module.index, 1)) for module in job.modules]
    return cut(job, loads, slots)


def typical_load(module: Module) -> Load:
    """One sub-microbatch of the size of the middle cost point of the module's first layer, or of the largest asked."""
    units = module.max_units or module.runs[0].table.middle_units
    return Load(sizes=((units, units * units, 1),))


def batch_load(module: Module, *batches: pb.Batch) -> Load:
    """One sub-microbatch for each microbatch of some batches that has work for the module."""
    sizes: dict[tuple[int, int], int] = {}
    for microbatch in (microbatch for batch in batches for microbatch in batch.microbatches):
        units = [u for s in microbatch.samples if module.name in s.instances for u in s.instances[module.name].units]
        if units:
            key = sum(units), sum(u * u for u in units)
            sizes[key] = sizes.get(key, 0) + 1
    listed = tuple((units, squares, count) for (units, squares), count in sizes.items())
    return Load(sizes=listed) if listed else typical_load(module)


def slots_of(
    job: Job, module: Module, segments: int, *, width: int = 0, zigzag: bool = False, backwards: bool = False
) -> list[int]:
    """Places of a module's chunks, in chunk order: ``segments`` times all ranks, or fewer where layers run out.

    Parameters
    ----------
    job, module
        What is cut.
    segments
        How many times a sub-microbatch passes through the ranks.
    width
        How many ranks the module is on, numbered from 0; 0: all.
    zigzag
        Whether every other segment runs in the opposite direction, so that a segment begins where the one before it
        ends (V-shaped placement: Qi et al., "Pipeline Parallelism with Controllable Memory", 2024).
    backwards
        Whether the first segment runs from the last rank to the first.
    """
    there = list(range(min(width or job.ranks, job.ranks)))
    if backwards:
        there.reverse()
    back = there[::-1] if zigzag else there
    slots = [rank for k in range(segments) for rank in (back if k % 2 else there)]
    return slots[: module.num_layers]


def layer_times_us(module: Module, load: Load) -> list[float]:
    """Time of each layer of a module, forward and backward, for all of a load, on a rank of speed 1."""
    times: list[float] = []
    for run in module.runs:
        one = 0.0
        for units, squares, count in load.sizes:
            cost = layers_cost(module, run.start, ((STORE, 1),), units=units, squares=squares)
            backward = cost.backward_input_us + (0.0 if module.frozen else cost.backward_weight_us)
            one += count * (cost.forward_us + (backward if module.trains else 0.0))
        times += [one] * (run.stop - run.start)
    return times


def cut(job: Job, loads: Sequence[Load], slots: Sequence[Sequence[int]], busy_us: Sequence[float] = ()) -> pb.Partition:
    """Cut every module into chunks in the given places, so that ranks are busy alike and hold what they can.

    Parameters
    ----------
    job
        The job.
    loads
        What each module has to do.
    slots
        For each module, the places of its chunks, in chunk order; at most as many as it has layers. Places are ranks
        where they are as many; where they are fewer, they are the ranks that have least to do, in rank order.
    busy_us
        For each rank what counts as busy beforehand; empty: nothing.
    """
    times = [layer_times_us(module, load) for module, load in zip(job.modules, loads, strict=True)]
    placed, counts = share_layers(job, [sum(of_module) for of_module in times], slots, busy_us)
    chunks = {m: list(zip(placed[m], _settle(counts[m], times[m]), strict=True)) for m in range(len(job.modules))}
    return partition_message(job, chunks)


def _settle(counts: Sequence[int], times: Sequence[float]) -> list[int]:
    """Move chunk borders so that chunks get the share of time that ``counts`` average layers stand for."""
    total, layers = sum(times), len(times)
    ends: list[int] = []
    done, reached, wanted = 0, 0.0, 0.0
    for i, count in enumerate(counts):
        wanted += total * count / layers
        last = layers - (len(counts) - 1 - i)
        size = 1
        reached += times[done]
        while done + size < last and abs(reached + times[done + size] - wanted) < abs(reached - wanted) + 1e-9 * total:
            reached += times[done + size]
            size += 1
        if i == len(counts) - 1:
            size = layers - done
        done += size
        ends.append(size)
    return ends


def partition_message(job: Job, chunks: Mapping[int, Sequence[tuple[int, int]]]) -> pb.Partition:
    """Partition from, for each module, the (rank, number of layers) of its chunks, in chunk order."""
    made = pb.Partition()
    for module in job.modules:
        first = 0
        for index, (rank, count) in enumerate(chunks[module.index]):
            made.chunks.add(module=module.name, index=index, rank=rank, first_layer=first, num_layers=count)
            first += count
    return made
