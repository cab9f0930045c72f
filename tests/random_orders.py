"""Random orders of stage tasks that can run, with random ways and halves: plans that no scheduler would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.bounds import chain_bound_us
from dip.job import Job
from dip.lowering import Phase, lower, peak_bytes
from dip.parts import group_parts, pieces_of
from dip.work import Work, chunks_of

if TYPE_CHECKING:
    import random

    from dip.lowering import Task
    from dip.memory import Way
    from dip.planner.v1 import planner_pb2 as pb


def random_plan(request: pb.PlanRequest, rng: random.Random) -> pb.Plan:
    """Plan of a request that has a partition: any order, any ways. Memory limits are raised to what it holds."""
    job = Job.from_spec(request.job)
    groups = [[range(len(pieces_of(job, microbatch)))] for microbatch in request.batch.microbatches]
    parts = group_parts(job, request.batch, groups)
    chunks = chunks_of(job, request.partition)
    work = Work(job=job, forward_only=request.batch.forward_only, chunks=chunks, parts=parts)
    orders, ways = random_orders(work, rng), random_ways(work, rng)
    if any(job.memory_bytes):
        request.job.cluster.memory_bytes[:] = [max(1, held) for held in peak_bytes(work, orders, ways)]
    return lower(
        work,
        batch=request.batch,
        partition=request.partition,
        orders=orders,
        ways=ways,
        lower_bound_us=chain_bound_us(work),
    )


def random_ways(work: Work, rng: random.Random) -> list[Way]:
    """Any number of lean layers for each cell."""
    lean = work.lean_ways
    return [lean.way(kind, rng.randint(0, lean.most(kind))) for kind in work.cell_kind]


def random_orders(work: Work, rng: random.Random) -> list[list[Task]]:
    """One order of all tasks in which each comes after what it needs, shared out to the ranks."""
    split = {cell: work.job.split_backward and rng.random() < 0.5 for cell in range(work.num_cells)}

    def gradient(cell: int) -> Task:
        return (Phase.BACKWARD_INPUT if split[cell] else Phase.BACKWARD), cell

    needs: dict[Task, set[Task]] = {}
    for cell in range(work.num_cells):
        needs[Phase.FORWARD, cell] = set()
        if work.has_backward(cell):
            needs[gradient(cell)] = {(Phase.FORWARD, cell)}
            if split[cell] and not work.module_of(cell).frozen:
                needs[Phase.BACKWARD_WEIGHT, cell] = {gradient(cell)}
    for edge in work.edges:
        needs[Phase.FORWARD, edge.consumer].add((Phase.FORWARD, edge.producer))
        if work.has_backward(edge.producer):
            needs[gradient(edge.producer)].add(gradient(edge.consumer))
    orders: list[list[Task]] = [[] for _ in range(work.job.ranks)]
    done: set[Task] = set()
    while needs:
        task = rng.choice([task for task, of_task in needs.items() if of_task <= done])
        del needs[task]
        done.add(task)
        orders[work.cell_chunk[task[1]].rank].append(task)
    return orders
