"""Valid requests of every method, for a few small jobs, so that what is sent meets state.

Attempts and iterations rise with a clock that the caller counts: most requests fit what stands by then, some come early
or late.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Final

from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

BUDGET_MS: Final = 3
"""Search time of every plan: what is fuzzed is the service, not the search."""

NUM_JOBS: Final = 12

_REPLICAS: Final = 2
# A client that registers the highest attempt that there is ends its job for good: after a while, jobs get new names.
_GENERATION_TICKS: Final = 4_000
_ATTEMPT_TICKS: Final = 2_000
_ITERATION_TICKS: Final = 100
_JOBS_OF_A_GENERATION: Final = 3
_UNITS_OF_POINTS: Final = (64, 256)


def valid_request(method: str, number: int, rng: random.Random, clock: int) -> Message:
    """Return a request that keeps the contract.

    Parameters
    ----------
    method
        One of the service's methods.
    number
        Which job it is about, below `NUM_JOBS`.
    clock
        How far the fuzzing is, in inputs.
    """
    return _MAKERS[method](number, rng, clock)


def job_number(rng: random.Random, clock: int) -> int:
    """Choose one of the few jobs that are trained at a time."""
    return (clock // _GENERATION_TICKS + rng.randrange(_JOBS_OF_A_GENERATION)) % NUM_JOBS


def register_job(job_id: str, number: int, attempt: int, *, loaded: bool = True) -> pb.RegisterJobRequest:
    """Return a job's registration, with a partition that its trainers have loaded already or without one."""
    request = pb.RegisterJobRequest(job_id=job_id, attempt=attempt, spec=job_spec(number))
    if loaded:
        request.partition.CopyFrom(_partition(number))
    else:
        request.representative_batch.CopyFrom(batch(number, 0))
    return request


@functools.cache
def job_spec(number: int) -> pb.JobSpec:
    """Return one of the jobs: text alone, images into text, or two encoders into text; copy it to change it."""
    names = (("language",), ("vision", "language"), ("vision", "audio", "language"))[number % 3]
    encoders, ranks = names[:-1], 1 + number % 4
    modules = [_module(name, 4, frozen=number % 2 == 1) for name in encoders]
    modules.append(_module("language", 6, inputs=encoders))
    return pb.JobSpec(
        model=pb.Model(modules=modules),
        cluster=pb.Cluster(
            ranks=ranks,
            replicas=_REPLICAS,
            memory_bytes=[10**9] if number % 2 else [],
            link_latency_us=5,
            link_bytes_per_us=1_000,
            rank_speed=[1.0] * ranks if number % 3 == 0 else [],
        ),
        options=pb.PlannerOptions(split_backward=number % 2 == 0, budget_ms=BUDGET_MS, seed=number),
    )


def batch(number: int, seed: int) -> pb.Batch:
    """Return a small batch of a job."""
    rng = random.Random(seed)
    made = pb.Batch()
    for _ in range(rng.randrange(1, 4)):
        microbatch = made.microbatches.add()
        for _ in range(rng.randrange(3)):
            sample = microbatch.samples.add()
            for module in job_spec(number).model.modules:
                if module.name == "language" or rng.random() < 0.7:
                    sample.instances[module.name].units.extend(rng.choices(range(8, 300), k=rng.randrange(1, 3)))
    return made


def _module(name: str, layers: int, *, inputs: Sequence[str] = (), frozen: bool = False) -> pb.Module:
    def points(kept_per_unit: int) -> list[pb.CostPoint]:
        return [
            pb.CostPoint(
                units=units,
                forward_us=10 + units / 4,
                backward_input_us=10 + units / 4,
                backward_weight_us=5 + units / 4,
                activation_bytes=kept_per_unit * units,
            )
            for units in _UNITS_OF_POINTS
        ]

    cost = pb.LayerCost(points=points(400), strategies=[pb.MemoryStrategy(name="recompute", points=points(25))])
    run = pb.LayerRun(count=layers, cost=cost, static_bytes=1_000_000)
    return pb.Module(name=name, inputs=inputs, layers=[run], frozen=frozen, output_bytes_per_unit=64)


@functools.cache
def _partition(number: int) -> pb.Partition:
    return default_partition(job_spec(number))


def _job_id(number: int, clock: int) -> str:
    return f"fuzz-{number}-{clock // _GENERATION_TICKS}"


def _attempt(rng: random.Random, clock: int) -> int:
    """The one that should be current, or now and then one beside it."""
    return max(0, 1 + clock % _GENERATION_TICKS // _ATTEMPT_TICKS + rng.choice((0,) * 30 + (-1, -1, 1)))


def _iteration(rng: random.Random, clock: int) -> int:
    """One near what trains now, or now and then long gone."""
    return max(0, clock % _ATTEMPT_TICKS // _ITERATION_TICKS + rng.choice((-50, -3, -2, -1, 0, 0, 0, 0, 1, 1, 2, 3)))


def _register(number: int, rng: random.Random, clock: int) -> Message:
    loaded = rng.random() < 0.97  # others cost a search
    return register_job(_job_id(number, clock), number, _attempt(rng, clock), loaded=loaded)


def _submit(number: int, rng: random.Random, clock: int) -> Message:
    iteration = _iteration(rng, clock)
    return pb.SubmitBatchRequest(
        job_id=_job_id(number, clock),
        attempt=_attempt(rng, clock),
        replica=rng.randrange(_REPLICAS),
        iteration=iteration,
        batch=batch(number, iteration + rng.choice((0,) * 9 + (1,))),
    )


def _stream(number: int, rng: random.Random, clock: int) -> Message:
    return pb.StreamSchedulesRequest(
        job_id=_job_id(number, clock),
        attempt=_attempt(rng, clock),
        replica=rng.randrange(_REPLICAS),
        rank=rng.randrange(job_spec(number).cluster.ranks),
        first_iteration=_iteration(rng, clock),
    )


def _report(number: int, rng: random.Random, clock: int) -> Message:
    ranks = job_spec(number).cluster.ranks
    rank = rng.randrange(ranks)
    request = pb.ReportExecutionRequest(
        job_id=_job_id(number, clock),
        attempt=_attempt(rng, clock),
        replica=rng.randrange(_REPLICAS),
        rank=rank,
        iteration=_iteration(rng, clock),
        plan_digest=rng.randbytes(32),
        peak_memory_bytes=rng.randrange(10**9),
        stalled_us=rng.choice((0, 1, 10**6)),
    )
    for index in range(rng.randrange(5)):
        kind = rng.choice((pb.ACTION_KIND_FORWARD, pb.ACTION_KIND_BACKWARD))
        request.actions.add(kind=kind, module="language", sub_microbatch=index, start_us=index, end_us=index + 1)
    if ranks > 1:
        request.actions.add(
            kind=pb.ACTION_KIND_SEND_ACTIVATION, module="language", consumer_module="language", peer=(rank + 1) % ranks
        )
    return request


def _plan(number: int, rng: random.Random, clock: int) -> Message:
    request = pb.PlanRequest(job=job_spec(number), batch=batch(number, clock))
    if rng.random() < 0.9:
        request.partition.CopyFrom(_partition(number))
    return request


def _list_jobs(number: int, rng: random.Random, clock: int) -> Message:
    return pb.ListJobsRequest()


def _get_job(number: int, rng: random.Random, clock: int) -> Message:
    return pb.GetJobRequest(job_id=_job_id(number, clock))


def _get_plan(number: int, rng: random.Random, clock: int) -> Message:
    return pb.GetPlanRequest(
        job_id=_job_id(number, clock), replica=rng.randrange(_REPLICAS), iteration=_iteration(rng, clock)
    )


def _close_job(number: int, rng: random.Random, clock: int) -> Message:
    """Most often of a job long gone, so that those that are trained stay open for a while."""
    return pb.CloseJobRequest(
        job_id=_job_id(number, clock if rng.random() < 0.02 else max(0, clock - _GENERATION_TICKS))
    )


_MAKERS: dict[str, Callable[[int, random.Random, int], Message]] = {
    "RegisterJob": _register,
    "SubmitBatch": _submit,
    "StreamSchedules": _stream,
    "ReportExecution": _report,
    "Plan": _plan,
    "ListJobs": _list_jobs,
    "GetJob": _get_job,
    "GetPlan": _get_plan,
    "CloseJob": _close_job,
}
