"""The fixed fallback: valid for every request, the same on every rank, and refused only where nothing fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import batch, job, request
from corners import CANNOT_FIT, FITTING
from dip.bounds import chain_bound_us
from dip.digests import plan_digest
from dip.errors import CannotFitError
from dip.fallback import activation_room, fallback_plan, fitting_parts, fitting_ways, groups_fit, leanest_ways
from dip.job import Job
from dip.listing import group_needs
from dip.partition import default_partition
from dip.work import Chunk, Work, chunks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from least_memory import least_kept_bytes
from random_requests import partitions, plan_requests

from planner_service.check import check_plan

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

ROUNDED_UP = 100
"""Tasks of a sample on a rank, at most: each rounds what it keeps up to a byte."""

SLOW = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def with_partition(asked: pb.PlanRequest) -> pb.PlanRequest:
    if not asked.partition.chunks:
        asked.partition.CopyFrom(default_partition(asked.job))
    return asked


def plan_of(asked: pb.PlanRequest) -> pb.Plan:
    return fallback_plan(asked.job, asked.partition, asked.batch)


@pytest.mark.parametrize("name", FITTING)
def test_every_corner_of_the_contract_has_a_valid_fallback(name: str) -> None:
    asked = with_partition(FITTING[name]())
    plan = plan_of(asked)
    result = check_plan(asked, plan)
    assert not result.faults
    assert not result.warnings
    assert plan.fallback
    assert plan.digest == plan_digest(plan, asked.batch)


@pytest.mark.parametrize("name", CANNOT_FIT)
def test_what_cannot_fit_is_refused_with_the_rank_and_both_sizes(name: str) -> None:
    asked = with_partition(CANNOT_FIT[name]())
    with pytest.raises(CannotFitError) as caught:
        plan_of(asked)
    assert caught.value.needed_bytes > caught.value.available_bytes
    assert caught.value.available_bytes == asked.job.cluster.memory_bytes[0]


def test_the_least_that_a_batch_needs_is_named_to_the_byte() -> None:
    """With one byte less it is refused, naming what it takes; with what it named it runs."""
    asked = with_partition(request(job(ranks=2), [[{"language": [1000]}, {"language": [500]}]]))
    asked.job.cluster.memory_bytes.append(1)
    with pytest.raises(CannotFitError, match="rank 0") as static:
        plan_of(asked)
    asked.job.cluster.memory_bytes[0] = static.value.needed_bytes
    with pytest.raises(CannotFitError) as caught:
        plan_of(asked)
    # 6 of 12 layers on each rank, all recomputing: 1000 units keep 400 / 16 bytes each.
    assert caught.value.needed_bytes == static.value.needed_bytes + 6 * 1000 * 400 // 16
    asked.job.cluster.memory_bytes[0] = caught.value.needed_bytes
    assert not check_plan(asked, plan_of(asked)).faults
    asked.job.cluster.memory_bytes[0] -= 1
    with pytest.raises(CannotFitError):
        plan_of(asked)


def test_a_microbatch_is_whole_where_it_fits_and_cut_between_samples_where_not() -> None:
    whole = with_partition(request(job(ranks=2), [[{"language": [400]} for _ in range(4)]]))
    assert len(plan_of(whole).sub_microbatches) == 1
    held = 10 * 1_000_000  # static bytes of half of the layers
    # 6 layers that keep 25 bytes a unit: 400 units at once.
    tight = with_partition(request(job(ranks=2, memory_bytes=[held + 6 * 25 * 400]), [[{"language": [400]}] * 4]))
    cut = plan_of(tight)
    assert [[ref.sample for ref in sub.instances] for sub in cut.sub_microbatches] == [[0], [1], [2], [3]]
    assert not check_plan(tight, cut).faults


def test_instances_of_a_sample_are_cut_apart_where_nothing_joins_them() -> None:
    """Room for one text at a time: a sample of texts alone is cut, one whose image goes into both texts is not."""
    limit = 10_000_000 + 6 * 25 * 400
    texts = with_partition(request(job(ranks=2, memory_bytes=[limit]), [[{"language": [400, 400, 300]}]]))
    plan = plan_of(texts)
    assert [[ref.index for ref in sub.instances] for sub in plan.sub_microbatches] == [[0], [1], [2]]
    assert not check_plan(texts, plan).faults
    joined = with_partition(request(job(ranks=2, memory_bytes=[limit]), [[{"vision": [10], "language": [400, 400]}]]))
    with pytest.raises(CannotFitError):
        plan_of(joined)


def test_only_the_microbatch_that_is_too_large_is_cut() -> None:
    held = 10 * 1_000_000
    limit = held + 6 * 25 * 400
    asked = with_partition(
        request(job(ranks=2, memory_bytes=[limit]), [[{"language": [100]}] * 3, [{"language": [300]}] * 2])
    )
    subs = plan_of(asked).sub_microbatches
    assert [(sub.microbatch, len(sub.instances)) for sub in subs] == [(0, 3), (1, 1), (1, 1)]


def check_refusal(asked: pb.PlanRequest, error: CannotFitError) -> None:
    """A refusal is true, and names what the rank needs: for its layers, or for the largest piece alone."""
    least = least_kept_bytes(asked, error.rank)
    needed: float = least.static_bytes
    if needed <= least.limit_bytes:
        needed += least.worst_piece_bytes
    assert error.available_bytes == least.limit_bytes < needed
    assert needed <= error.needed_bytes <= needed + ROUNDED_UP


@SLOW
@given(st.data())
def test_any_request_has_a_valid_fallback_or_a_piece_that_cannot_fit_alone(data: st.DataObject) -> None:
    asked = data.draw(plan_requests())
    asked.partition.CopyFrom(data.draw(partitions(asked.job)))
    try:
        plan = plan_of(asked)
    except CannotFitError as error:
        check_refusal(asked, error)
        return
    result = check_plan(asked, plan)
    assert not result.faults
    assert not result.warnings
    assert plan_of(asked).digest == plan.digest


def ways_in(limit: int, in_flight: int) -> tuple[Work, list[int | None], list[int]]:
    """Two microbatches on two ranks; how many layers of each cell are lean."""
    spec = job(ranks=2, memory_bytes=[limit])
    asked = batch([[{"language": [500]}], [{"vision": [200], "language": [250]}]])
    made = Job.from_spec(spec)
    chunks = chunks_of(made, default_partition(spec))
    room = activation_room(made, chunks)
    work = Work(job=made, forward_only=False, chunks=chunks, parts=fitting_parts(made, asked, chunks, room))
    ways = fitting_ways(work, room, in_flight)
    assert groups_fit(work, room)
    needs = group_needs(work, ways)
    lean = [sum(count for name, count in way if name != "store") for way in ways]
    leanest = group_needs(work, leanest_ways(work))
    for of_group, least in zip(needs, leanest, strict=True):
        for need, floor, space in zip(of_group, least, room, strict=True):
            assert need == floor or (space is not None and need <= space // in_flight)
    return work, room, lean


def test_no_layer_recomputes_where_all_groups_fit() -> None:
    assert not any(ways_in(1_000_000_000, 2)[2])


def test_the_more_groups_are_in_flight_the_more_layers_recompute() -> None:
    totals = [sum(ways_in(12_000_000, in_flight)[2]) for in_flight in (1, 2, 3, 4)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


def test_no_more_layers_recompute_than_the_room_asks_for() -> None:
    """With one lean layer less in all, some group would not fit its share."""
    work, room, _ = ways_in(12_000_000, 2)
    ways = fitting_ways(work, room, 2)
    for (group, rank), cells in _by_group_and_rank(work).items():
        lean = [sum(count for name, count in ways[cell] if name != "store") for cell in cells]
        if not any(lean):
            continue
        space = room[rank]
        assert space is not None
        last = max(i for i, count in enumerate(lean) if count)
        spared = list(ways)
        spared[cells[last]] = work.lean_ways.way(work.cell_kind[cells[last]], lean[last] - 1)
        fewer_lean = [max(lean) == count for count in lean]
        if all(fewer_lean):  # the last that has as many as the first can do with one less only if all fit
            assert group_needs(work, spared)[group][rank] > space // 2


def _by_group_and_rank(work: Work) -> dict[tuple[int, int], list[int]]:
    cells: dict[tuple[int, int], list[int]] = {}
    for cell, part in enumerate(work.cell_part):
        cells.setdefault((work.groups[part], work.cell_chunk[cell].rank), []).append(cell)
    return cells


def test_the_bound_is_that_of_the_whole_work() -> None:
    asked = with_partition(FITTING["two_encoders"]())
    made = Job.from_spec(asked.job)
    chunks: list[list[Chunk]] = chunks_of(made, asked.partition)
    parts = fitting_parts(made, asked.batch, chunks, [None] * made.ranks)
    work = Work(job=made, forward_only=False, chunks=chunks, parts=parts)
    plan = plan_of(asked)
    assert plan.lower_bound_us == chain_bound_us(work)
    assert 0 < plan.lower_bound_us <= plan.makespan_us
