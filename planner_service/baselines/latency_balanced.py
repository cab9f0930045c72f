"""The usual partition: all layers of all modules in one chain, cut into one stage a rank, of about equal latency."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from dip.job import Job
from dip.partition import batch_load, layer_times_us, typical_load
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_batch, validate_job_spec

if TYPE_CHECKING:
    from collections.abc import Sequence


def latency_balanced_partition(spec: pb.JobSpec, batch: pb.Batch | None = None) -> pb.Partition:
    """Cut the chain of all layers, modules in the order of the model, into one stage a rank.

    Parameters
    ----------
    spec
        The job.
    batch
        A batch like those to come, which says how the modules' layers compare; without one every module is given
        middle-sized work.

    Returns
    -------
    Partition
        Rank r holds stage r: at most one chunk of each module, none where there are fewer layers than ranks. No
        contiguous cut has a shorter longest stage. Memory is not looked at, as in most launch scripts.

    Raises
    ------
    InvalidRequestError
        If the job or the batch breaks the contract.
    """
    validate_job_spec(spec)
    if batch is not None:
        validate_batch(spec, batch)
    job = Job.from_spec(spec)
    times: list[float] = []
    owners: list[int] = []
    for module in job.modules:
        load = typical_load(module) if batch is None else batch_load(module, batch)
        of_module = layer_times_us(module, load)
        times += of_module
        owners += [module.index] * len(of_module)
    made = pb.Partition()
    placed = [0] * len(job.modules)
    counts = [0] * len(job.modules)
    first = 0
    for rank, end in enumerate(cut_chain(times, job.speed)):
        for module in job.modules:
            held = owners[first:end].count(module.index)
            if held:
                chunk = made.chunks.add(module=module.name, index=counts[module.index], rank=rank, num_layers=held)
                chunk.first_layer = placed[module.index]
                placed[module.index] += held
                counts[module.index] += 1
        first = end
    return made


def cut_chain(times: Sequence[float], speeds: Sequence[float]) -> list[int]:
    """Cut a chain into contiguous stages so that the longest is as short as can be.

    With ``best[r][n]`` the longest of the stages 0..r over the first n layers,
    ``best[r][n] = min over m <= n of max(best[r-1][m], sum(times[m:n]) / speeds[r])``.

    Parameters
    ----------
    times
        Of each layer, on a rank of speed 1.
    speeds
        Of each rank.

    Returns
    -------
    list of int
        For each rank, the end of its stage; the last is ``len(times)``.
    """
    total = [0.0, *accumulate(times)]
    best = [value / speeds[0] for value in total]
    cuts: list[list[int]] = []
    for speed in speeds[1:]:
        longest = [
            min((max(best[m], (total[n] - total[m]) / speed), -m) for m in range(n + 1)) for n in range(len(total))
        ]
        best, cut = [value for value, _ in longest], [-m for _, m in longest]
        cuts.append(cut)
    ends = [len(times)]
    for cut in reversed(cuts):
        ends.append(cut[ends[-1]])
    return ends[::-1]
