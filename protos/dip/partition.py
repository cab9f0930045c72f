"""Cutting modules into chunks: even in time, aware of ranks' speeds, for any number of layers and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE
from dip.job import Job
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
    ranks = [slots_of(job, module, job.segments.get(module.index, 1)) for module in job.modules]
    return cut(job, loads, ranks)


def typical_load(module: Module) -> Load:
    """One sub-microbatch of the size of the middle cost point of the module's first layer, or of the largest asked."""
    units = module.max_units or module.runs[0].table.middle_units
    return Load(sizes=((units, units * units, 1),))


def batch_load(module: Module, batch: pb.Batch) -> Load:
    """One sub-microbatch for each microbatch that has work for the module."""
    sizes: dict[tuple[int, int], int] = {}
    for microbatch in batch.microbatches:
        units = [u for s in microbatch.samples if module.name in s.instances for u in s.instances[module.name].units]
        if units:
            key = sum(units), sum(u * u for u in units)
            sizes[key] = sizes.get(key, 0) + 1
    listed = tuple((units, squares, count) for (units, squares), count in sizes.items())
    return Load(sizes=listed) if listed else typical_load(module)


def slots_of(job: Job, module: Module, segments: int) -> list[int]:
    """Ranks of a module's chunks in looped placement: ``segments`` times all ranks, or fewer where layers run out."""
    return [slot % job.ranks for slot in range(min(segments * job.ranks, module.num_layers))]


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


def cut(job: Job, loads: Sequence[Load], ranks: Sequence[Sequence[int]]) -> pb.Partition:
    """Cut every module into chunks on the given ranks, so that ranks are busy alike.

    Modules are cut from the longest to the shortest; each gives its layers one by one to the chunk whose rank has
    least to do, counted in time at the rank's speed and with what modules before put there, and static bytes allow it.

    Parameters
    ----------
    job
        The job.
    loads
        What each module has to do.
    ranks
        For each module, the ranks of its chunks, in chunk order; at most as many as it has layers.
    """
    times = [layer_times_us(module, load) for module, load in zip(job.modules, loads, strict=True)]
    busy = [0.0] * job.ranks
    held = [0] * job.ranks
    # A module with fewer chunks than ranks leaves ranks out: it goes last, to where there is least to do.
    order = sorted(range(len(ranks)), key=lambda m: (len(ranks[m]) < job.ranks, -sum(times[m])))
    chunks: dict[int, list[tuple[int, int]]] = {}
    for m in order:
        placed = list(ranks[m])
        if len(placed) < job.ranks:
            placed = sorted(sorted(range(job.ranks), key=lambda r: (busy[r], r))[: len(placed)])
        counts = _counts(job, m, placed, times[m], busy, held)
        chunks[m] = list(zip(placed, _settle(counts, times[m]), strict=True))
        first = 0
        for rank, count in chunks[m]:
            busy[rank] += sum(times[m][first : first + count]) / job.speed[rank]
            held[rank] += job.modules[m].static_bytes(first, count)
            first += count
    return partition_message(job, chunks)


def _counts(
    job: Job, m: int, placed: Sequence[int], times: Sequence[float], busy: Sequence[float], held: Sequence[int]
) -> list[int]:
    """Number of average layers for each chunk."""
    module = job.modules[m]
    mean = sum(times) / len(times)
    static = module.static_bytes(0, module.num_layers) / module.num_layers
    counts = [1] * len(placed)
    load, bytes_held = list(busy), [float(h) for h in held]
    for rank in placed:
        load[rank] += mean / job.speed[rank]
        bytes_held[rank] += static

    def key(slot: int) -> tuple[bool, float, int, int]:
        rank = placed[slot]
        full = bool(job.memory_bytes[rank]) and bytes_held[rank] + static > job.memory_bytes[rank]
        return full, load[rank] + mean / job.speed[rank], counts[slot], slot

    for _ in range(module.num_layers - len(placed)):
        slot = min(range(len(placed)), key=key)
        counts[slot] += 1
        load[placed[slot]] += mean / job.speed[placed[slot]]
        bytes_held[placed[slot]] += static
    return counts


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
