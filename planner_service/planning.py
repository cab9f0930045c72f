"""From a request to a plan: validate, partition, split, search, lower."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.fallback import fallback_plan
from dip.job import Job
from dip.lowering import lower
from dip.partition import typical_load
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_batch, validate_job_spec, validate_plan_request

from planner_service.partition.choose import Chooser
from planner_service.search.orders import orders_of
from planner_service.search.portfolio import Portfolio
from planner_service.search.schedule import Schedule
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner_service.partition.report import ChoiceReport
    from planner_service.partition.trials import Chosen
    from planner_service.reuse import Reuse

    Progress = Callable[[int, int | None], None]

DEFAULT_BUDGET_MS = 2000
"""Search time where neither the caller nor the job sets one."""

PARTITION_BUDGET_MS = 5000
"""Most time for choosing a partition where a plan is asked for without one."""

PARTITION_SHARE, SPLIT_SHARE = 1.5, 0.25
"""Time for a partition and sizes, or for sizes alone where the partition is kept, as a share of the search time."""

SMALL_CELLS = 1000
"""Cells up to which the fixed schedule is made for comparison, in milliseconds: with more, it won in no measurement."""


def make_partition(
    spec: pb.JobSpec,
    batch: pb.Batch | None = None,
    *,
    more: Sequence[pb.Batch] = (),
    budget_ms: int = PARTITION_BUDGET_MS,
    on_progress: Progress | None = None,
) -> pb.Partition:
    """Choose where every layer lives.

    Parameters
    ----------
    spec
        The job.
    batch
        A batch like those to come; without one, every module is given middle-sized work.
    more
        Further ones: makespans add up.
    budget_ms
        Time for it.
    on_progress
        Told after each choice tried how many there were, and the best makespan so far, in microseconds.

    Raises
    ------
    InvalidRequestError
        If the job or the batch breaks the contract.
    CannotFitError
        If no partition that is worth a try fits the memory.
    """
    validate_job_spec(spec)
    job = Job.from_spec(spec)
    if batch is not None:
        validate_batch(spec, batch)
    if batch is None or not any(microbatch.samples for microbatch in batch.microbatches):
        batch = typical_batch(job)
    stopping = Stopping(seconds=budget_ms / 1000, max_evaluations=spec.options.max_evaluations)
    for other in more:
        validate_batch(spec, other)
    return Chooser(job, batch, stopping, more=more, on_progress=on_progress).choose().partition


def typical_batch(job: Job) -> pb.Batch:
    """Batch of middle-sized work for every module, with two microbatches a rank."""
    instances = {module.name: pb.Instances(units=[typical_load(module).sizes[0][0]]) for module in job.modules}
    sample = pb.Sample(instances=instances)
    return pb.Batch(microbatches=[pb.Microbatch(samples=[sample]) for _ in range(2 * job.ranks)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How a plan is searched.

    Parameters
    ----------
    budget_ms
        Search time; None: the job's, else 2,000. Without effect where the job sets ``max_evaluations``.
    partition_budget_ms
        Time for a partition where the request has none; None: one and a half times the search time, 5,000 at most.
    seed
        Of all random choices; None: the job's.
    cores
        How many the search may use.
    cp_sat
        Whether CP-SAT takes part in the search; without it, to see what it is worth.
    """

    budget_ms: int | None = None
    partition_budget_ms: int | None = None
    seed: int | None = None
    cores: int = 1
    cp_sat: bool = True

    def __post_init__(self) -> None:
        for name in ("budget_ms", "partition_budget_ms", "cores"):
            held = getattr(self, name)
            if held is not None and held < 1:
                raise ValueError(f"{name} is {held}; allowed is 1 and more")

    def milliseconds(self, options: pb.PlannerOptions) -> int:
        """Search time for a job with these options."""
        return self.budget_ms or options.budget_ms or DEFAULT_BUDGET_MS

    def stopping_of_choice(self, request: pb.PlanRequest) -> Stopping:
        """Budget for a partition and sizes, or for sizes alone where the partition is kept."""
        options = request.job.options
        milliseconds = self.milliseconds(options) * SPLIT_SHARE
        if not request.partition.chunks:
            shared = min(PARTITION_SHARE * self.milliseconds(options), PARTITION_BUDGET_MS)
            milliseconds = self.partition_budget_ms or shared
        return Stopping(seconds=milliseconds / 1000, max_evaluations=options.max_evaluations)


def make_plan(
    request: pb.PlanRequest,
    *,
    budget_ms: int | None = None,
    partition_budget_ms: int | None = None,
    seed: int | None = None,
    cores: int = 1,
    cp_sat: bool = True,
    reuse: Reuse | None = None,
    on_plan: Callable[[pb.Plan], None] | None = None,
    on_choice: Callable[[ChoiceReport], None] | None = None,
    on_progress: Progress | None = None,
) -> pb.Plan:
    """Plan one batch.

    Parameters
    ----------
    request
        Job and batch; a partition where one is loaded, else one is chosen, in time of its own.
    budget_ms, partition_budget_ms, seed, cores, cp_sat
        See `Effort`.
    reuse
        What is remembered of earlier plans, and this one is added to. Where the job sets ``max_evaluations``, it only
        answers the same request again: the plan depends on nothing else.
    on_plan
        Called with the first plan, a fraction of a second after the start, and after each stage of the search that
        found a better one.
    on_choice
        Told why the partition and sizes were chosen.
    on_progress
        Told after each choice tried how many there were, and the best makespan so far, in microseconds.

    Raises
    ------
    InvalidRequestError
        If the request breaks the contract.
    CannotFitError
        If some sample does not fit its memory alone with every layer run in its leanest way (of samples that have work
        for the loss module alone: some instance).
    ValueError
        If a time or the number of cores is below 1.
    """
    validate_plan_request(request)
    effort = Effort(budget_ms=budget_ms, partition_budget_ms=partition_budget_ms, seed=seed, cores=cores, cp_sat=cp_sat)
    # How many cores were idle is nothing that the caller asked for.
    settings = replace(effort, cores=1)
    if reuse is not None and (known := reuse.plan(request, settings)) is not None:
        return known
    handed_out: list[int] = []

    def hand_out(partition: pb.Partition, portfolio: Portfolio, schedule: Schedule) -> None:
        if on_plan is not None and (not handed_out or schedule.makespan_us < handed_out[-1]):
            on_plan(_lowered(request, partition, portfolio, schedule))
            handed_out.append(schedule.makespan_us)

    def first(chosen: Chosen) -> None:
        hand_out(chosen.partition, _portfolio(request, effort, chosen, reuse), Schedule.of(chosen.candidate))

    stopping = effort.stopping_of_choice(request)
    kept = request.partition if request.partition.chunks else None
    chooser = Chooser(
        Job.from_spec(request.job),
        request.batch,
        stopping,
        kept,
        on_progress=on_progress,
        on_first=first if on_plan is not None else None,
    )
    chosen = chooser.choose()
    if on_choice is not None:
        on_choice(chooser.report)
    portfolio = _portfolio(request, effort, chosen, reuse)
    for schedule in portfolio.stages():
        hand_out(chosen.partition, portfolio, schedule)
    plan = _lowered(request, chosen.partition, portfolio, schedule)
    if schedule.work.num_cells <= SMALL_CELLS:
        plan = _no_worse_than_fallback(request, plan)
    if reuse is not None:
        reuse.keep_plan(plan, request, settings)
        reuse.keep_schedule(portfolio.best, request.job, chosen.partition)
    return plan


def _no_worse_than_fallback(request: pb.PlanRequest, plan: pb.Plan) -> pb.Plan:
    """Return the plan, or the fixed schedule of the same partition where the few sizes that were tried lose to it."""
    try:
        fixed = fallback_plan(request.job, plan.partition, request.batch)
    except CannotFitError:
        return plan
    if fixed.makespan_us >= plan.makespan_us:
        return plan
    fixed.fallback = False
    fixed.search.CopyFrom(plan.search)
    fixed.search.optimal = fixed.makespan_us == fixed.lower_bound_us
    fixed.search.steps.add(
        elapsed_ms=plan.search.elapsed_ms, engine="the fixed schedule", makespan_us=fixed.makespan_us
    )
    return fixed


def _portfolio(request: pb.PlanRequest, effort: Effort, chosen: Chosen, reuse: Reuse | None) -> Portfolio:
    options = request.job.options
    stopping = Stopping(seconds=effort.milliseconds(options) / 1000, max_evaluations=options.max_evaluations)
    # What no clock decides must not depend on what this process planned before either.
    return Portfolio(
        best=chosen.candidate,
        stopping=stopping,
        seed=options.seed if effort.seed is None else effort.seed,
        cores=effort.cores,
        cp_sat=effort.cp_sat,
        recalled=reuse.schedule(request.job, chosen.partition) if reuse is not None and stopping.by_time else None,
    )


def _lowered(request: pb.PlanRequest, partition: pb.Partition, portfolio: Portfolio, schedule: Schedule) -> pb.Plan:
    return lower(
        schedule.work,
        batch=request.batch,
        partition=partition,
        orders=orders_of(schedule.graph, schedule.start),
        ways=schedule.ways,
        lower_bound_us=portfolio.bound_us,
        search=_report(portfolio, schedule),
    )


def _report(portfolio: Portfolio, schedule: Schedule) -> pb.SearchReport:
    report = pb.SearchReport(
        elapsed_ms=portfolio.stopping.elapsed_ms(),
        evaluations=portfolio.stopping.evaluations,
        optimal=schedule.makespan_us == portfolio.bound_us,
    )
    for step in portfolio.steps:
        report.steps.add(elapsed_ms=step.elapsed_ms, engine=step.engine, makespan_us=step.makespan_us)
    return report
