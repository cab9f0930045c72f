"""The same batch again is answered with the same plan at once; another seed, budget, partition or batch is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases import documents, job, request
from dip.partition import default_partition

from planner_service import planning
from planner_service import reuse as reuse_module
from planner_service.check import check_plan
from planner_service.planning import make_plan
from planner_service.reuse import Reuse
from planner_service.search.portfolio import Portfolio

if TYPE_CHECKING:
    import pytest
    from dip.planner.v1 import planner_pb2 as pb


def asked(count: int, **options: int) -> pb.PlanRequest:
    made = request(job(), documents(count))
    made.partition.CopyFrom(default_partition(made.job, made.batch))
    made.job.options.max_evaluations = 60
    for name, value in options.items():
        setattr(made.job.options, name, value)
    return made


def test_the_same_request_gets_the_same_plan_without_a_search() -> None:
    reuse, first = Reuse(), asked(5)
    plan = make_plan(first, reuse=reuse)
    choices: list[object] = []
    assert make_plan(first, reuse=reuse, on_choice=choices.append) == plan
    assert not choices


def test_another_request_is_searched_and_its_schedule_remembered() -> None:
    reuse = Reuse()
    plan = make_plan(asked(5), reuse=reuse)
    for other in (asked(6), asked(5, seed=3), asked(5, max_evaluations=70)):
        choices: list[object] = []
        found = make_plan(other, reuse=reuse, on_choice=choices.append)
        assert len(choices) == 1
        assert check_plan(other, found).faults == ()
    assert make_plan(asked(5), reuse=reuse) == plan
    assert reuse.schedule(asked(5).job, plan.partition) is not None
    assert reuse.schedule(asked(5, seed=9).job, plan.partition) is None


def test_the_same_request_is_remembered_whatever_cores_are_idle() -> None:
    reuse, first = Reuse(), asked(5)
    plan = make_plan(first, cores=2, reuse=reuse)
    choices: list[object] = []
    assert make_plan(first, cores=1, reuse=reuse, on_choice=choices.append) == plan
    assert not choices


def test_a_plan_that_no_clock_decides_starts_from_nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    recalled: list[bool] = []

    class Noted(Portfolio):
        def __post_init__(self) -> None:
            recalled.append(self.recalled is not None)
            super().__post_init__()

    monkeypatch.setattr(planning, "Portfolio", Noted)
    for by_clock in (True, False):
        reuse = Reuse()
        for count in (5, 6):
            make_plan(asked(count, max_evaluations=0 if by_clock else 60, budget_ms=10), reuse=reuse)
    assert recalled == [False, True, False, False]


def test_the_oldest_plans_and_schedules_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_module, "KEPT_PLANS", 2)
    monkeypatch.setattr(reuse_module, "KEPT_JOBS", 2)
    reuse = Reuse()
    for seed in (1, 2, 3):
        make_plan(asked(3, seed=seed), reuse=reuse)
    choices: list[object] = []
    for seed in (2, 3):
        make_plan(asked(3, seed=seed), reuse=reuse, on_choice=choices.append)
    assert not choices
    make_plan(asked(3, seed=1), reuse=reuse, on_choice=choices.append)
    assert len(choices) == 1
    assert reuse.schedule(asked(3, seed=2).job, asked(3).partition) is None
