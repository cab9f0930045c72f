"""What each step gains, as the paper tells it: partition, interleaving, order, memory, and splitting the backward."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.planner.v1 import planner_pb2 as pb

from planner_service.baselines import BASELINES
from planner_service.bench.case import GIVEN
from planner_service.bench.judge import misfit_row, plan_row
from planner_service.bench.ours import our_plan, plan_seconds
from planner_service.bench.peers import peer_rows
from planner_service.bench.spent import spend
from planner_service.bench.suites.suite import Suite, batches
from planner_service.planning import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner_service.bench.case import Case, Row
    from planner_service.bench.settings import Settings
    from planner_service.bench.spent import Spent

MEGATRON, PARTITION = "megatron-interleaved", "separated-interleaved"
"""Where the steps begin, and the same order with segments of its own for each module."""

INTERLEAVING, ORDER, MEMORY, SPLIT = "interleaving", "order", "memory", "split"
STEPS = (MEGATRON, PARTITION, INTERLEAVING, ORDER, MEMORY, SPLIT)

Make = tuple["pb.Plan", "Spent"]


class _FoundError(Exception):
    """Ends a search early: the first plan is there."""


def cases(settings: Settings) -> list[Case]:
    """Each batch of the settings."""
    return batches(settings, seconds=5 * plan_seconds(settings))


def measure(case: Case, settings: Settings) -> list[Row]:
    """Plan a batch with one step more each time.

    All but the last keep the partition that the planner chooses for whole backwards. *Interleaving* is the planner's
    first plan, list scheduling alone; *order* is all of the search but CP-SAT; *memory* adds CP-SAT, which chooses the
    ways of layers.
    """
    whole = case.request(split=False)
    rows = list(peer_rows(case, whole, [BASELINES[MEGATRON], BASELINES[PARTITION]]))
    try:
        chosen, _ = our_plan(whole, settings, seed=case.seed)
    except CannotFitError as error:
        return [*rows, misfit_row(case, error, method=MEMORY, memory=GIVEN)]
    kept = pb.PlanRequest(job=whole.job, batch=whole.batch, partition=chosen.partition)
    makers: dict[str, Callable[[], Make]] = {
        INTERLEAVING: lambda: spend(lambda: first_plan(kept)),
        ORDER: lambda: our_plan(kept, settings, seed=case.seed, cp_sat=False),
        MEMORY: lambda: our_plan(kept, settings, seed=case.seed),
    }
    return [*rows, *_rows(case, kept, makers), *_split(case, settings)]


def _rows(case: Case, request: pb.PlanRequest, makers: dict[str, Callable[[], Make]]) -> Iterator[Row]:
    for method, make in makers.items():
        try:
            plan, spent = make()
        except CannotFitError as error:
            yield misfit_row(case, error, method=method, memory=GIVEN)
        else:
            yield plan_row(case, request, plan, spent, method=method, memory=GIVEN)


def _split(case: Case, settings: Settings) -> Iterator[Row]:
    request = case.request()
    return _rows(case, request, {SPLIT: lambda: our_plan(request, settings, seed=case.seed)})


def first_plan(request: pb.PlanRequest) -> pb.Plan:
    """Return the first plan that the planner hands out."""
    first: list[pb.Plan] = []

    def keep(plan: pb.Plan) -> None:
        first.append(plan)
        raise _FoundError

    with suppress(_FoundError):
        first.append(make_plan(request, on_plan=keep))
    return first[0]


STEPS_SUITE = Suite(
    name="steps",
    about="what each step gains: partition, interleaving, order, memory, split",
    cases=cases,
    measure=measure,
)
