"""Random partitions, sub-microbatches and schedules: everything that the contract allows, not only what is good."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from dip.job import Job
from dip.lowering import Phase, Task, lower
from dip.parts import instances_of, make_part
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Part, Work, chunks_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Set

    from dip.memory import Way


def random_partition(draw: random.Random, spec: pb.JobSpec) -> pb.Partition:
    """Cut each module anywhere and put its chunks on any ranks."""
    partition = pb.Partition()
    for module in spec.model.modules:
        layers = sum(run.count for run in module.layers)
        num_chunks = draw.randint(1, min(layers, 2 * spec.cluster.ranks))
        cuts = [0, *sorted(draw.sample(range(1, layers), num_chunks - 1)), layers]
        ranks = [draw.randrange(spec.cluster.ranks) for _ in range(num_chunks)]
        for index, (start, stop) in enumerate(itertools.pairwise(cuts)):
            partition.chunks.add(
                module=module.name, index=index, rank=ranks[index], first_layer=start, num_layers=stop - start
            )
    return partition


def random_parts(draw: random.Random, job: Job, batch: pb.Batch) -> list[Part]:
    """Put a microbatch's instances for a module into any groups, in any order."""
    parts = []
    for j, microbatch in enumerate(batch.microbatches):
        for module in job.modules:
            instances = instances_of(microbatch, module, range(len(microbatch.samples)))
            draw.shuffle(instances)
            while instances:
                size = draw.randint(1, len(instances))
                parts.append(make_part(module, j, instances[:size]))
                instances = instances[size:]
    draw.shuffle(parts)
    return parts


def random_plan(
    draw: random.Random,
    spec: pb.JobSpec,
    partition: pb.Partition,
    batch: pb.Batch,
    *,
    recompute: float = 0.3,
    split: float = 0.7,
) -> pb.Plan:
    """Make a plan whose order is any that the tasks' dependencies allow.

    Each layer of each cell runs in one of its leaner ways in a share ``recompute`` of all draws; where the job allows
    it, a share ``split`` of backwards are two halves.
    """
    job = Job.from_spec(spec)
    work = Work(
        job=job,
        forward_only=batch.forward_only,
        chunks=chunks_of(job, partition),
        parts=random_parts(draw, job, batch),
    )
    ways: list[Way] = []
    for chunk in work.cell_chunk:
        (runs,) = {tuple(run.table.strategies) for run in job.modules[chunk.module].runs}
        lean = [name for name in runs if name != "store"]
        names = [draw.choice(lean) if draw.random() < recompute else "store" for _ in range(chunk.num_layers)]
        ways.append(tuple((name, 1) for name in names))
    halved = {cell for cell in range(work.num_cells) if job.split_backward and draw.random() < split}
    return lower(
        work,
        batch=batch,
        partition=partition,
        orders=ordered(work, lambda ready: draw.randrange(len(ready)), halved),
        ways=ways,
        lower_bound_us=1,
    )


def ordered(work: Work, choose: Callable[[list[Task]], int], halved: Set[int] = frozenset()) -> list[list[Task]]:
    """Order of each rank's tasks: again and again one of those that are ready is chosen.

    The backwards of the cells in ``halved`` are two halves, of frozen modules the input half alone.
    """
    needs: dict[Task, int] = {}
    after: dict[Task, list[Task]] = defaultdict(list)

    def precede(earlier: Task, later: Task) -> None:
        after[earlier].append(later)
        needs[later] += 1

    def first(cell: int) -> Phase:
        return Phase.BACKWARD_INPUT if cell in halved else Phase.BACKWARD

    for cell in range(work.num_cells):
        needs[Phase.FORWARD, cell] = 0
        if work.has_backward(cell):
            needs[first(cell), cell] = 0
            precede((Phase.FORWARD, cell), (first(cell), cell))
            if cell in halved and not work.module_of(cell).frozen:
                needs[Phase.BACKWARD_WEIGHT, cell] = 0
                precede((Phase.BACKWARD_INPUT, cell), (Phase.BACKWARD_WEIGHT, cell))
    for edge in work.edges:
        precede((Phase.FORWARD, edge.producer), (Phase.FORWARD, edge.consumer))
        if work.has_backward(edge.producer):
            precede((first(edge.consumer), edge.consumer), (first(edge.producer), edge.producer))
    orders: list[list[Task]] = [[] for _ in range(work.job.ranks)]
    ready = [task for task, count in needs.items() if not count]
    while ready:
        task = ready.pop(choose(ready))
        orders[work.cell_chunk[task[1]].rank].append(task)
        for later in after[task]:
            needs[later] -= 1
            if not needs[later]:
                ready.append(later)
    return orders
