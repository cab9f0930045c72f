"""The fixed fallback: the schedule that all ranks run when they have no plan that they agree on.

A pure function of the job, the partition and the batch: each rank computes it alone and gets what all others get, so
its rules never change without a change of the contract. Microbatches run whole, 1F1B-like; where memory is short,
layers recompute (or use whatever strategy keeps least), and microbatches that do not fit even so are cut into pieces:
between samples, and between instances of samples that no other module has work for.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from dip.bounds import chain_bound_us
from dip.errors import CannotFitError
from dip.job import Job
from dip.listing import group_needs, list_schedule
from dip.lowering import lower
from dip.parts import group_parts, pieces_of
from dip.work import Work, chunks_of, static_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.memory import Way
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Chunk, Part


def fallback_plan(spec: pb.JobSpec, partition: pb.Partition, batch: pb.Batch) -> pb.Plan:
    """Fixed plan of a valid batch.

    Parameters
    ----------
    spec, partition, batch
        As :mod:`dip.validation` accepts them.

    Returns
    -------
    Plan
        Marked as fallback; its bound is that of :mod:`dip.bounds`.

    Raises
    ------
    CannotFitError
        If some piece does not fit its memory alone with every layer run in its leanest way.
    """
    job = Job.from_spec(spec)
    chunks = chunks_of(job, partition)
    room = activation_room(job, chunks)
    work = Work(
        job=job,
        forward_only=batch.forward_only,
        chunks=chunks,
        parts=fitting_parts(job, batch, chunks, room),
    )
    ways = fitting_ways(work, room, in_flight=min(len(batch.microbatches) or 1, job.ranks))
    return lower(
        work,
        batch=batch,
        partition=partition,
        orders=list_schedule(work, ways),
        ways=ways,
        lower_bound_us=chain_bound_us(work),
        fallback=True,
    )


def activation_room(job: Job, chunks: Sequence[Sequence[Chunk]]) -> list[int | None]:
    """Bytes that activations may take on each rank; None where there is no limit.

    Raises
    ------
    CannotFitError
        If a rank cannot even hold its layers.
    """
    room: list[int | None] = []
    for rank, (limit, static) in enumerate(zip(job.memory_bytes, static_bytes(job, chunks), strict=True)):
        if limit and static > limit:
            raise CannotFitError(rank=rank, needed_bytes=static, available_bytes=limit)
        room.append(limit - static if limit else None)
    return room


def leanest_ways(work: Work) -> list[Way]:
    """For each cell the way that keeps least."""
    lean = work.lean_ways
    return [
        lean.way(kind, lean.most(kind)) if work.has_backward(cell) else () for cell, kind in enumerate(work.cell_kind)
    ]


def fitting_parts(
    job: Job, batch: pb.Batch, chunks: Sequence[Sequence[Chunk]], room: Sequence[int | None]
) -> list[Part]:
    """Sub-microbatches of whole microbatches, cut between pieces only where they do not fit otherwise.

    Raises
    ------
    CannotFitError
        If a piece does not fit alone.
    """
    counts = [len(pieces_of(job, microbatch)) for microbatch in batch.microbatches]
    groups: list[list[Sequence[int]]] = [[range(count)] if count else [] for count in counts]
    while True:
        parts = group_parts(job, batch, groups)
        too_large = _too_large(Work(job=job, forward_only=batch.forward_only, chunks=chunks, parts=parts), room)
        if not too_large:
            return parts
        halved = [_halved(job, batch.microbatches[j], of_j, too_large.get(j, set())) for j, of_j in enumerate(groups)]
        if any(halved[j] == groups[j] for j in too_large):
            raise _shortage(job, batch, chunks, room)
        groups = halved


def _halved(
    job: Job, microbatch: pb.Microbatch, groups: list[Sequence[int]], too_large: set[tuple[int, int]]
) -> list[Sequence[int]]:
    """Groups of pieces, those halved that are too large and of more than one piece."""
    if not too_large:
        return groups
    pieces, last = pieces_of(job, microbatch), job.modules[-1].index
    made: list[Sequence[int]] = []
    for group in groups:
        half = (len(group) + 1) // 2
        cut = half < len(group) and any(pieces[piece][last][0][:2] in too_large for piece in group)
        made += [group[:half], group[half:]] if cut else [group]
    return made


def groups_fit(work: Work, room: Sequence[int | None]) -> bool:
    """Whether every group of sub-microbatches fits alone with all its layers lean."""
    if all(space is None for space in room):
        return True
    needs = group_needs(work, leanest_ways(work))
    return all(space is None or need <= space for of_group in needs for need, space in zip(of_group, room, strict=True))


def _too_large(work: Work, room: Sequence[int | None]) -> dict[int, set[tuple[int, int]]]:
    """For each microbatch the loss instances (sample, index) of the groups that do not fit alone."""
    needs, last = group_needs(work, leanest_ways(work)), work.job.modules[-1].index
    found: dict[int, set[tuple[int, int]]] = {}
    for part, group in zip(work.parts, work.groups, strict=True):
        fits = all(space is None or need <= space for need, space in zip(needs[group], room, strict=True))
        if part.module == last and not fits:
            found.setdefault(part.microbatch, set()).update(zip(part.samples, part.instances, strict=True))
    return found


def _shortage(
    job: Job, batch: pb.Batch, chunks: Sequence[Sequence[Chunk]], room: Sequence[int | None]
) -> CannotFitError:
    """What the first rank that is short needs for the largest of all pieces, each alone; at least one is too large."""
    groups = [[[piece] for piece in range(len(pieces_of(job, microbatch)))] for microbatch in batch.microbatches]
    parts = group_parts(job, batch, groups)
    work = Work(job=job, forward_only=batch.forward_only, chunks=chunks, parts=parts)
    needs = group_needs(work, leanest_ways(work))
    most = [max(on_rank) for on_rank in zip(*needs, strict=True)]
    rank, space = next((rank, space) for rank, space in enumerate(room) if space is not None and most[rank] > space)
    static = work.static_bytes[rank]
    return CannotFitError(rank=rank, needed_bytes=static + most[rank], available_bytes=static + space)


def fitting_ways(work: Work, room: Sequence[int | None], in_flight: int) -> list[Way]:
    """For each cell how its layers run: as few lean layers as let enough groups be in flight.

    Parameters
    ----------
    work
        The stage tasks.
    room
        Bytes that activations may take on each rank; None: no limit.
    in_flight
        How many groups each rank's room is divided among. Where even all layers lean do not allow that, they are all
        lean.
    """
    groups = work.groups
    ways: list[Way] = [()] * work.num_cells
    cells: dict[tuple[int, int], list[int]] = {}
    for cell, part in enumerate(work.cell_part):
        if work.has_backward(cell):
            cells.setdefault((groups[part], work.cell_chunk[cell].rank), []).append(cell)
    for (_, rank), of_group in cells.items():
        space = room[rank]
        if space is not None:
            _slim(work, of_group, space // in_flight, ways)
    return ways


def _slim(work: Work, cells: Sequence[int], target: int, ways: list[Way]) -> None:
    """Make as few layers of these cells lean as let them keep at most ``target`` bytes together.

    All cells have as many lean layers, or one less from some cell on.
    """
    lean = work.lean_ways
    most = [lean.most(work.cell_kind[cell]) for cell in cells]

    def kept(number: int, cell: int, limit: int) -> int:
        return work.cost(cell, lean.way(work.cell_kind[cell], min(number, limit))).kept_bytes

    def total(number: int) -> int:
        return sum(kept(number, cell, limit) for cell, limit in zip(cells, most, strict=True))

    number = bisect_left(range(max(most)), -target, key=lambda many: -total(many))
    held = total(number - 1) if number else 0
    for cell, limit in zip(cells, most, strict=True):
        fewer = number - 1 if number and held <= target else number
        if fewer == number and number:
            held += kept(number, cell, limit) - kept(number - 1, cell, limit)
        ways[cell] = lean.way(work.cell_kind[cell], min(fewer, limit))
