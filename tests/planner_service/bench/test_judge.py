"""Shows that a plan's row holds what the simulator and the checker say, and that a false plan gets a fault."""

from __future__ import annotations

from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

from planner_service.bench.case import GIVEN, Case, Row
from planner_service.bench.judge import plan_row
from planner_service.bench.spent import Spent, spend
from planner_service.check import check_plan
from planner_service.simulate import simulate

CASE = Case(config="vlm-s", mix="web", seed=0, microbatches=3)
REQUEST = CASE.request(split=False)
PLAN = fallback_plan(REQUEST.job, default_partition(REQUEST.job, REQUEST.batch), REQUEST.batch)


def _judged(plan: pb.Plan) -> Row:
    return plan_row(CASE, REQUEST, plan, Spent(20, 30), method="fixed", memory=GIVEN)


def test_figures_are_those_of_simulator_and_checker() -> None:
    row, ran, checked = _judged(PLAN), simulate(REQUEST, PLAN), check_plan(REQUEST, PLAN)
    assert checked.figures is not None
    assert row["fault"] == ""
    assert (row["makespan_us"], row["peak_bytes"]) == (ran.makespan_us, max(ran.peak_bytes))
    assert (row["gap"], row["over_ideal"]) == (checked.figures.gap, checked.figures.over_ideal)
    assert (row["method"], row["memory"], row["fits"], row["cpu_ms"], row["wall_ms"]) == ("fixed", GIVEN, True, 20, 30)
    assert 0 < float(row["mfu"] or 0) < 0.6


def test_a_false_makespan_is_a_fault() -> None:
    boast = pb.Plan.FromString(PLAN.SerializeToString())
    boast.makespan_us //= 2
    row = _judged(boast)
    assert row["makespan_us"] == PLAN.makespan_us
    assert "states a makespan" in str(row["fault"])


def test_a_plan_that_cannot_run_is_a_fault() -> None:
    broken = pb.Plan.FromString(PLAN.SerializeToString())
    del broken.ranks[0].actions[0]
    assert "the simulator cannot run it" in str(_judged(broken)["fault"])


def test_spent_time_is_that_of_the_call() -> None:
    made, spent = spend(lambda: sum(range(2_000_000)))
    assert made == 1_999_999_000_000
    assert spent.cpu_ms > 0
    assert spent.wall_ms > 0


def test_one_core_does_as_much_in_the_cpu_time_or_in_the_time_that_others_had_it() -> None:
    assert Spent(4000, 2500).on_one_core_ms == 4000  # two cores at work
    assert Spent(1200, 2500).on_one_core_ms == 2500  # a core that others had half of the time
