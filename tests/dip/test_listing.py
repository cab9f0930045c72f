"""The fallback's list scheduling: complete, never stuck on memory, 1F1B-like, older microbatches first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases import documents, job, request
from corners import FITTING
from dip.fallback import activation_room, fitting_parts, leanest_ways
from dip.job import Job
from dip.listing import group_needs, list_schedule
from dip.lowering import Phase, peak_bytes, time_order
from dip.partition import default_partition
from dip.work import Work, chunks_of
from hypothesis import HealthCheck, given, settings
from lines_run import lines_run
from random_work import Instance, instances

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

F, B = Phase.FORWARD, Phase.BACKWARD
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def work_of(asked: pb.PlanRequest) -> Work:
    if not asked.partition.chunks:
        asked.partition.CopyFrom(default_partition(asked.job))
    made = Job.from_spec(asked.job)
    chunks = chunks_of(made, asked.partition)
    parts = fitting_parts(made, asked.batch, chunks, activation_room(made, chunks))
    return Work(job=made, forward_only=asked.batch.forward_only, chunks=chunks, parts=parts)


@SLOW
@given(instances())
def test_every_task_is_listed_once_and_memory_holds(instance: Instance) -> None:
    """As lean as can be; orders that missed a task or waited for themselves would raise."""
    work = instance.work
    ways = leanest_ways(work)
    orders = list_schedule(work, ways)
    assert time_order(work, orders, ways).makespan_us > 0
    for peak, limit in zip(peak_bytes(work, orders, ways), work.job.memory_bytes, strict=True):
        assert not limit or peak <= limit


def test_equal_microbatches_run_as_1f1b() -> None:
    """Oldest first on every rank, and the last rank alternates from its first microbatch on."""
    work = work_of(request(job(ranks=3), [[{"language": [256]}]] * 5))
    orders = list_schedule(work, [()] * work.num_cells)
    named = [[(phase, work.cell_part[cell]) for phase, cell in order] for order in orders]
    assert named[2] == [step for j in range(5) for step in ((F, j), (B, j))]
    for order in named:
        assert [j for phase, j in order if phase == F] == list(range(5))
        assert [j for phase, j in order if phase == B] == list(range(5))


def test_with_room_for_one_microbatch_they_run_one_after_another() -> None:
    asked = request(job(ranks=2), [[{"language": [256]}]] * 3)
    free = work_of(asked)
    kept = max(group_needs(free, leanest_ways(free))[0])
    asked.job.cluster.memory_bytes.append(max(free.static_bytes) + kept)
    work = work_of(asked)
    orders = list_schedule(work, leanest_ways(work))
    named = [[(phase, work.cell_part[cell]) for phase, cell in order] for order in orders]
    assert named[1] == [step for j in range(3) for step in ((F, j), (B, j))]
    assert named[0] == named[1]


def test_work_grows_with_the_microbatches_and_no_faster() -> None:
    """Nothing is looked through task by task: four times the microbatches take about four times the work."""
    asked = request(job(ranks=2), [[{"language": [256]}]])

    def took(count: int) -> int:
        del asked.batch.microbatches[1:]
        asked.batch.microbatches.extend([asked.batch.microbatches[0]] * (count - 1))
        free = work_of(asked)
        need = max(group_needs(free, [()] * free.num_cells)[0])
        asked.job.cluster.memory_bytes[:] = [max(free.static_bytes) + 3 * need]
        work = work_of(asked)
        return lines_run(lambda: list_schedule(work, [()] * work.num_cells))

    assert took(2000) < 6 * took(500)


def test_what_groups_need() -> None:
    work = work_of(request(job(ranks=2), documents(2)))
    needs = group_needs(work, [()] * work.num_cells)
    # 4 layers of vision and 6 of language on each rank, 400 bytes a unit.
    assert needs == [[400 * (4 * vision + 6 * language)] * 2 for vision, language in ((96, 480), (288, 515))]


def test_a_frozen_encoder_needs_nothing() -> None:
    work = work_of(FITTING["frozen_encoder"]())
    needs = group_needs(work, [()] * work.num_cells)
    language = [sum(work.parts[p].units for p in range(len(work.parts)) if work.parts[p].module == 1)]
    assert sum(map(sum, needs)) == 400 * 12 * language[0]
