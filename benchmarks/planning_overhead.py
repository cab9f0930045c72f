"""What planning costs besides the search: ``python -m benchmarks.planning_overhead [--json out.json] ...``.

CPU time of every step from a request's bytes to its plan's bytes for about 2,500 stage tasks, in 64 microbatches and in
16 that are cut finer, on a partition that is kept; and the time until the planner hands out its first valid plan. The
order that is lowered is that of the fixed schedule, so that nothing depends on how long a search ran. Prints one JSON
object; milliseconds of this process, medians over all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from dip.bounds import chain_bound_us
from dip.fallback import activation_room, fallback_plan, fitting_parts, fitting_ways
from dip.job import Job
from dip.listing import list_schedule
from dip.lowering import lower
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_plan_request
from dip.work import Work, chunks_of

from planner_service.check.workload import workload_request
from planner_service.domain.graph import task_graph
from planner_service.planning import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """A request of about 2,500 stage tasks.

    Parameters
    ----------
    microbatches
        How many the batch has.
    segments
        How often vision and language visit every rank.
    max_units
        Largest sub-microbatch of each module; whole microbatches where not named.
    """

    microbatches: int
    segments: tuple[int, int]
    max_units: dict[str, int] = field(default_factory=dict)

    def request(self, seed: int) -> pb.PlanRequest:
        """Request with its partition, to be kept."""
        made = workload_request("vlm-s", self.microbatches, seed, "web")
        options = made.job.options
        options.segments["vision"], options.segments["language"] = self.segments
        options.sub_microbatch_units.update(self.max_units)
        made.partition.CopyFrom(default_partition(made.job, made.batch))
        return made


INSTANCES = {
    "64": Instance(microbatches=64, segments=(2, 3)),
    "16": Instance(microbatches=16, segments=(2, 3), max_units={"vision": 9408}),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result."""
    options = _parser().parse_args(arguments)
    measured = {name: _measure(INSTANCES[name], options) for name in options.instances}
    text = json.dumps({"settings": vars(options) | {"json": None}, "instances": measured}, indent=2)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    sys.stdout.write(text + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=_names, default=tuple(INSTANCES), help=f"of {', '.join(INSTANCES)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="a file to write as well")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _measure(instance: Instance, options: argparse.Namespace) -> dict[str, Any]:
    request = instance.request(options.seed)
    data = request.SerializeToString()
    Steps().plan(data)  # code and caches warm up
    rounds = [Steps() for _ in range(options.rounds)]
    plans = [steps.plan(data) for steps in rounds]
    names = rounds[0].milliseconds
    plan = pb.Plan.FromString(plans[0])
    return {
        "tasks": sum(action.kind <= pb.ACTION_KIND_BACKWARD_WEIGHT for rank in plan.ranks for action in rank.actions),
        "actions": sum(len(rank.actions) for rank in plan.ranks),
        "request_bytes": len(data),
        "plan_bytes": len(plans[0]),
        "steps_ms": {name: _median(steps.milliseconds[name] for steps in rounds) for name in names},
        "outside_search_ms": _median(sum(steps.milliseconds.values()) for steps in rounds),
        "first_plan_ms": _median(_first_plan_ms(request) for _ in range(min(5, options.rounds))),
        "fixed_schedule_ms": _median(_fixed_schedule_ms(request) for _ in range(min(5, options.rounds))),
    }


def _median(values: Iterable[float]) -> float:
    return round(float(statistics.median(values)), 2)


class Steps:
    """Times of the steps of one plan, by name, in milliseconds."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}

    def plan(self, data: bytes) -> bytes:
        """Go from a request's bytes to a plan's; only what a search would find is not timed."""
        request = self._timed("parse", lambda: pb.PlanRequest.FromString(data))
        self._timed("validate", lambda: validate_plan_request(request))
        job = self._timed("job", lambda: Job.from_spec(request.job))
        chunks = chunks_of(job, request.partition)
        room = activation_room(job, chunks)
        parts = self._timed("parts", lambda: fitting_parts(job, request.batch, chunks, room))
        work = self._timed("work", lambda: Work(job=job, forward_only=False, chunks=chunks, parts=parts))
        self._timed("edges", lambda: (work.edges, work.groups, work.successors))
        self._timed("graph", lambda: task_graph(work, split=job.split_backward))
        bound_us = self._timed("bound", lambda: chain_bound_us(work))
        ways = fitting_ways(work, room, in_flight=job.ranks)
        orders = list_schedule(work, ways)
        plan = self._timed(
            "lower",
            lambda: lower(
                work,
                batch=request.batch,
                partition=request.partition,
                orders=orders,
                ways=ways,
                lower_bound_us=bound_us,
            ),
        )
        return self._timed("serialize", plan.SerializeToString)

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        began = time.process_time()
        result = step()
        self.milliseconds[name] = 1e3 * (time.process_time() - began)
        return result


class _FoundError(Exception):
    """Ends a search early: the first plan is there."""


def _first_plan_ms(request: pb.PlanRequest) -> float:
    """CPU time from a request to the first plan that the planner hands out."""

    def stop(_: pb.Plan) -> NoReturn:
        raise _FoundError

    began = time.process_time()
    with suppress(_FoundError):
        make_plan(request, on_plan=stop)
    return 1e3 * (time.process_time() - began)


def _fixed_schedule_ms(request: pb.PlanRequest) -> float:
    began = time.process_time()
    fallback_plan(request.job, request.partition, request.batch)
    return 1e3 * (time.process_time() - began)


if __name__ == "__main__":
    sys.exit(main())
