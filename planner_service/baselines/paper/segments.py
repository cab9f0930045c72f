"""Segments and chunks by the paper's formula.

With the modules' latencies sorted, the cheapest module gets K_1 = 1 segment and module i gets K_i = floor(T_i / T_1),
at most as many as it has layers for; its layers are cut into P * K_i chunks of equal size, in a loop over the ranks.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE
from dip.partition import partition_message, slots_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.job import Job
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part


class Latency(Enum):
    """What the latency T_i of a module is taken of: the formula can be read in two ways."""

    MICROBATCH = "a mean microbatch"
    SUB_MICROBATCH = "a mean sub-microbatch"


def module_times_us(job: Job, parts: Sequence[Part], *, forward_only: bool) -> list[float]:
    """Time of each module for all its sub-microbatches, forward and backward, on a rank of speed 1."""
    times = [0.0] * len(job.modules)
    for part in parts:
        module = job.modules[part.module]
        for run in module.runs:
            cost = layers_cost(module, run.start, ((STORE, 1),), units=part.units, squares=part.squares)
            layers = run.stop - run.start
            times[part.module] += layers * cost.forward_us
            if module.trains and not forward_only:
                weight = 0.0 if module.frozen else cost.backward_weight_us
                times[part.module] += layers * (cost.backward_input_us + weight)
    return times


def latencies_us(
    job: Job, parts: Sequence[Part], latency: Latency, *, num_microbatches: int, forward_only: bool
) -> list[float]:
    """T_i of each module; 0 where it has no work."""
    times = module_times_us(job, parts, forward_only=forward_only)
    if latency is Latency.MICROBATCH:
        return [time / max(1, num_microbatches) for time in times]
    counts = [sum(part.module == m for part in parts) for m in range(len(times))]
    return [time / max(1, count) for time, count in zip(times, counts, strict=True)]


def segment_counts(
    latencies: Sequence[float], layers: Sequence[int], ranks: int, asked: Mapping[int, int] | None = None
) -> list[int]:
    """K_i of each module.

    Parameters
    ----------
    latencies
        T_i; modules without work get one segment.
    layers
        Number of layers of each module: K_i is at most ``layers // ranks``, and at least 1.
    ranks
        Pipeline ranks, P.
    asked
        Segments that the job asks for, by module; they stand in place of the formula.
    """
    cheapest = min((latency for latency in latencies if latency > 0), default=1.0)
    counts: list[int] = []
    for m, (latency, num_layers) in enumerate(zip(latencies, layers, strict=True)):
        wanted = math.floor(latency / cheapest + 1e-9)
        counts.append((asked or {}).get(m) or max(1, min(wanted, num_layers // ranks)))
    return counts


def equal_partition(job: Job, counts: Sequence[int], times: Sequence[float]) -> pb.Partition:
    """Cut every module into ``P * K_i`` chunks of equal layers in looped placement.

    Where the layers do not divide, some chunks have one more: those on the ranks that have least to do so far, and room
    for its static bytes. A module with fewer layers than ranks has one on each of the ranks with least to do.

    Parameters
    ----------
    job
        The job.
    counts
        K_i of each module.
    times
        Time of each module, of all its layers.
    """
    busy = [0.0] * job.ranks
    held = [0] * job.ranks
    chunks: dict[int, list[tuple[int, int]]] = {}
    order = sorted(range(len(counts)), key=lambda m: (job.modules[m].num_layers < job.ranks, -times[m]))
    for m in order:
        module = job.modules[m]
        ranks = slots_of(job, module, counts[m])
        if len(ranks) < job.ranks:
            ranks = sorted(sorted(range(job.ranks), key=lambda r: (busy[r], r))[: len(ranks)])
        sizes = _equal_sizes(job, m, ranks, times[m], busy, held)
        chunks[m] = list(zip(ranks, sizes, strict=True))
    return partition_message(job, chunks)


def _equal_sizes(job: Job, m: int, ranks: Sequence[int], time: float, busy: list[float], held: list[int]) -> list[int]:
    """Layers of each chunk of a module; adds its time and its static bytes to what the ranks have."""
    module = job.modules[m]
    each, extra = divmod(module.num_layers, len(ranks))
    static = module.static_bytes(0, module.num_layers) // module.num_layers
    sizes = [each] * len(ranks)

    def key(slot: int) -> tuple[bool, bool, float, int]:
        rank = ranks[slot]
        full = bool(job.memory_bytes[rank]) and held[rank] + static > job.memory_bytes[rank]
        return sizes[slot] > each, full, busy[rank], slot

    for rank in ranks:
        busy[rank] += each * time / module.num_layers
        held[rank] += each * static
    for _ in range(extra):
        slot = min(range(len(ranks)), key=key)
        sizes[slot] += 1
        busy[ranks[slot]] += time / module.num_layers
        held[ranks[slot]] += static
    return sizes
