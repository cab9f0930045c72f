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
from dip.parts import join_pieces, pieces_of
from dip.work import Work, chunks_of, static_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.memory import Way
    from dip.parts import Pieces
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
    work = _fitting_work(job, batch, chunks, room)
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
    of_kind = [lean.way(kind, lean.most(kind)) for kind in range(len(work.kinds))]
    return [of_kind[kind] if trains else () for kind, trains in zip(work.cell_kind, work.cell_trains, strict=True)]


def fitting_parts(
    job: Job, batch: pb.Batch, chunks: Sequence[Sequence[Chunk]], room: Sequence[int | None]
) -> list[Part]:
    """Sub-microbatches of whole microbatches, cut between pieces only where they do not fit otherwise.

    Raises
    ------
    CannotFitError
        If a piece does not fit alone.
    """
    return list(_fitting_work(job, batch, chunks, room).parts)


def _fitting_work(job: Job, batch: pb.Batch, chunks: Sequence[Sequence[Chunk]], room: Sequence[int | None]) -> Work:
    """Stage tasks of :func:`fitting_parts`."""
    pieces = [pieces_of(job, microbatch) for microbatch in batch.microbatches]
    groups: list[list[Sequence[int]]] = [
        [range(len(of_microbatch))] if of_microbatch else [] for of_microbatch in pieces
    ]
    while True:
        parts = join_pieces(job, pieces, groups)
        work = Work(job=job, forward_only=batch.forward_only, chunks=chunks, parts=parts)
        too_large = _too_large(work, room)
        if not too_large:
            return work
        halved = [_halved(job, pieces[j], of_j, too_large.get(j, set())) for j, of_j in enumerate(groups)]
        if any(halved[j] == groups[j] for j in too_large):
            raise _shortage(job, batch.forward_only, pieces, chunks, room)
        groups = halved


def _halved(
    job: Job, pieces: Pieces, groups: list[Sequence[int]], too_large: set[tuple[int, int]]
) -> list[Sequence[int]]:
    """Groups of pieces, those halved that are too large and of more than one piece."""
    if not too_large:
        return groups
    last = job.modules[-1].index
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
    found: dict[int, set[tuple[int, int]]] = {}
    if all(space is None for space in room):
        return found
    last = work.job.modules[-1].index
    fits = [
        all(space is None or need <= space for need, space in zip(of_group, room, strict=True))
        for of_group in group_needs(work, leanest_ways(work))
    ]
    for part, group in zip(work.parts, work.groups, strict=True):
        if part.module == last and not fits[group]:
            found.setdefault(part.microbatch, set()).update(zip(part.samples, part.instances, strict=True))
    return found


def _shortage(
    job: Job,
    forward_only: bool,
    pieces: Sequence[Pieces],
    chunks: Sequence[Sequence[Chunk]],
    room: Sequence[int | None],
) -> CannotFitError:
    """What the first rank that is short needs for the largest of all pieces, each alone; at least one is too large."""
    parts = join_pieces(job, pieces, [[[piece] for piece in range(len(of_microbatch))] for of_microbatch in pieces])
    work = Work(job=job, forward_only=forward_only, chunks=chunks, parts=parts)
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
    groups, kinds = work.groups, work.cell_kind
    ways: list[Way] = [()] * work.num_cells
    cells: dict[tuple[int, int], list[int]] = {}
    for cell, (part, rank) in enumerate(zip(work.cell_part, work.cell_rank, strict=True)):
        if work.cell_trains[cell]:
            cells.setdefault((groups[part], rank), []).append(cell)
    known: dict[tuple[int, tuple[int, ...]], list[Way]] = {}
    for (_, rank), of_group in cells.items():
        space = room[rank]
        if space is None:
            continue
        key = space // in_flight, tuple([kinds[cell] for cell in of_group])
        if key not in known:
            known[key] = _slim(work, of_group, key[0])
        for cell, way in zip(of_group, known[key], strict=True):
            ways[cell] = way
    return ways


def _slim(work: Work, cells: Sequence[int], target: int) -> list[Way]:
    """Ways with as few lean layers as let these cells keep at most ``target`` bytes together.

    All cells have as many lean layers, or one less from some cell on.
    """
    lean = work.lean_ways
    most = [lean.most(work.cell_kind[cell]) for cell in cells]

    def way(number: int, cell: int, limit: int) -> Way:
        return lean.way(work.cell_kind[cell], min(number, limit))

    def kept(number: int, cell: int, limit: int) -> int:
        return work.cost(cell, way(number, cell, limit)).kept_bytes

    def total(number: int) -> int:
        return sum(kept(number, cell, limit) for cell, limit in zip(cells, most, strict=True))

    number = bisect_left(range(max(most)), -target, key=lambda many: -total(many))
    held = total(number - 1) if number else 0
    chosen: list[Way] = []
    for cell, limit in zip(cells, most, strict=True):
        fewer = number - 1 if number and held <= target else number
        if fewer == number and number:
            held += kept(number, cell, limit) - kept(number - 1, cell, limit)
        chosen.append(way(fewer, cell, limit))
    return chosen
