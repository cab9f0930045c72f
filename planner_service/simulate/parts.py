"""The stage tasks of a plan, from its partition and its sub-microbatches, costed by its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.errors import InvalidRequestError
from dip.job import Job
from dip.parts import make_part
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition
from dip.work import Work, chunks_of

from planner_service.simulate.errors import BrokenPartsError

if TYPE_CHECKING:
    from dip.work import Part


def plan_work(request: pb.PlanRequest, plan: pb.Plan) -> tuple[Work, dict[int, int]]:
    """Look up what a plan runs.

    Parameters
    ----------
    request
        A valid request. Segments and sizes that it wishes for do not matter here.
    plan
        Any plan.

    Returns
    -------
    Work, dict
        The stage tasks, and the place of each sub-microbatch among their parts by its identifier.

    Raises
    ------
    BrokenPartsError
        If the partition does not hold every layer once, or the sub-microbatches do not hold every instance once.
    """
    spec = pb.JobSpec(model=request.job.model, cluster=request.job.cluster)
    try:
        validate_partition(spec, plan.partition)
    except InvalidRequestError as error:
        raise BrokenPartsError(str(error)) from error
    job = Job.from_spec(request.job)
    parts, places = _parts(job, request.batch, plan)
    chunks = chunks_of(job, plan.partition)
    return Work(job=job, forward_only=request.batch.forward_only, chunks=chunks, parts=parts), places


def _parts(job: Job, batch: pb.Batch, plan: pb.Plan) -> tuple[list[Part], dict[int, int]]:
    wanted = {
        (name, j, i, k): units
        for j, microbatch in enumerate(batch.microbatches)
        for i, sample in enumerate(microbatch.samples)
        for name, held in sample.instances.items()
        for k, units in enumerate(held.units)
    }
    parts: list[Part] = []
    places: dict[int, int] = {}
    for sub in plan.sub_microbatches:
        if sub.id in places or sub.module not in job.module_index or not sub.instances:
            raise BrokenPartsError(f"sub-microbatch {sub.id} is there twice, empty, or of no module: {sub.module!r}")
        instances = [(ref.sample, ref.index, ref.units) for ref in sub.instances]
        for sample, index, units in instances:
            if wanted.pop((sub.module, sub.microbatch, sample, index), None) != units:
                raise BrokenPartsError(
                    f"sub-microbatch {sub.id} of {sub.module!r}: the batch has no instance {index} of {units} units in "
                    f"sample {sample} of microbatch {sub.microbatch}, or it is in two"
                )
        places[sub.id] = len(parts)
        parts.append(make_part(job.modules[job.module_index[sub.module]], sub.microbatch, instances))
    if wanted:
        name, j, i, k = next(iter(wanted))
        raise BrokenPartsError(f"instance {k} of sample {i} of microbatch {j}, {name!r}, is in no sub-microbatch")
    return parts, places
