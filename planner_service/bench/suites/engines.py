"""What each engine of the search contributes, and the search without CP-SAT from the same start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.job import Job

from planner_service.bench.case import GIVEN, HALVED
from planner_service.bench.ours import PARTITION_SHARE, PLAN_OVERHEAD_S
from planner_service.bench.suites.suite import Suite, batches
from planner_service.partition.choose import Chooser
from planner_service.search.portfolio import Portfolio
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from planner_service.bench.case import Case, Row
    from planner_service.bench.settings import Settings
    from planner_service.search.quick import Candidate

START = "start"
"""Engine of the schedule that the search starts from."""


def cases(settings: Settings) -> list[Case]:
    """Each batch of the settings, with memory as given and halved."""
    seconds = PLAN_OVERHEAD_S + settings.budget_ms / 1000 * (PARTITION_SHARE + 2)
    return [
        case for memory in (GIVEN, HALVED) for case in batches(settings, seconds=seconds, variant=f"memory {memory}")
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Choose a partition and sizes once, then search from there with CP-SAT and without."""
    memory = case.variant.split()[1]
    request = case.request(memory=memory)
    job, seconds = Job.from_spec(request.job), settings.budget_ms / 1000
    try:
        chosen = Chooser(job, request.batch, Stopping(seconds=PARTITION_SHARE * seconds)).choose()
    except CannotFitError:
        return []
    return [
        case.row(memory=memory, cp_sat=cp_sat, engine=engine, gain_us=gain_us, start_us=start_us, makespan_us=end_us)
        for cp_sat in (True, False)
        for engine, gain_us, start_us, end_us in _gains(chosen.candidate, settings, case.seed, cp_sat=cp_sat)
    ]


def _gains(candidate: Candidate, settings: Settings, seed: int, *, cp_sat: bool) -> list[tuple[str, int, int, int]]:
    """For each engine by how much it shortened the schedule in all, and the whole search's start and end."""
    stopping = Stopping(seconds=settings.budget_ms / 1000)
    portfolio = Portfolio(best=candidate, stopping=stopping, seed=seed, cores=settings.cores, cp_sat=cp_sat)
    portfolio.run()
    steps = portfolio.steps
    gains: dict[str, int] = {START: 0}
    reached = steps[0].makespan_us
    for step in steps[1:]:
        engine = family(step.engine)
        gains[engine] = gains.get(engine, 0) + max(0, reached - step.makespan_us)
        reached = min(reached, step.makespan_us)
    return [(engine, gain, steps[0].makespan_us, reached) for engine, gain in gains.items()]


def family(engine: str) -> str:
    """Engine without what it was fed: all list scheduling is one."""
    return engine.partition(":")[0]


ENGINES = Suite(
    name="engines", about="what each engine contributes, with CP-SAT and without", cases=cases, measure=measure
)
