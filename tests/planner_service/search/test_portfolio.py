"""All engines together: better stage by stage, valid at each, stopped by the budget or by proof."""

from __future__ import annotations

from itertools import count

import pytest
from cases import documents, job, request
from corners import FITTING
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search import portfolio as portfolio_module
from planner_service.search.bounds import improved, improved_bound_us, lower_bound_us
from planner_service.search.bounds.improved import PRECISION
from planner_service.search.exact import ExactResult, WindowModel
from planner_service.search.neighbourhoods import Neighbourhoods
from planner_service.search.portfolio import Portfolio
from planner_service.search.quick import quick_schedule
from planner_service.search.stopping import Stopping

SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def _short_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio_module, "EXACT_EFFORT", 0.05)


def with_partition(asked: pb.PlanRequest) -> Instance:
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    return Instance.of(asked)


@SLOW
@given(instances(), st.integers(0, 1000), st.sampled_from([1, 30, 300]))
def test_stages_are_valid_and_never_worse(instance: Instance, seed: int, evaluations: int) -> None:
    """From any start, however bad."""
    graph = instance.graph()
    start = instance.candidate(graph, random_guide(graph, seed))
    search = Portfolio(best=start, stopping=Stopping(seconds=1, max_evaluations=evaluations), seed=seed)
    stages = list(search.stages())
    lengths = [stage.makespan_us for stage in stages]
    assert lengths[0] == start.makespan_us
    assert lengths == sorted(lengths, reverse=True)
    assert not any(instance.faults(stage) for stage in stages)
    assert lower_bound_us(instance.work) <= search.bound_us <= lengths[-1]
    assert [step.makespan_us for step in search.steps] == sorted({*lengths, *(s.makespan_us for s in search.steps)})[
        ::-1
    ]


def test_a_search_that_is_out_of_time_begins_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds pass whenever the clock is looked at: bounds and windows of large work would take tenths of one."""
    refuted: list[int] = []
    monkeypatch.setattr(improved, "is_refuted", lambda _, length_us: bool(refuted.append(length_us)))
    monkeypatch.setattr(Neighbourhoods, "improve", None)
    instance = with_partition(request(job(rank_speed=[1.0, 0.5, 1.25, 0.8]), documents(30)))
    graph = instance.graph()
    start = instance.candidate(graph, random_guide(graph, 0))
    found = Portfolio(best=start, stopping=Stopping(seconds=1, clock=count(0.0, 10.0).__next__)).run()
    assert found.makespan_us <= start.makespan_us
    assert not refuted
    assert not instance.faults(found)


@pytest.mark.parametrize("memory_bytes", [[], [10**12]])
def test_a_strategy_that_is_quicker_than_storing_pays_without_a_limit(memory_bytes: list[int]) -> None:
    asked = request(job(), documents(6))
    asked.job.cluster.memory_bytes[:] = memory_bytes
    for module in asked.job.model.modules:
        for run in module.layers:
            quick = pb.MemoryStrategy(name="fused", points=run.cost.points)
            for point in quick.points:
                point.forward_us /= 2
                point.backward_input_us /= 2
            run.cost.strategies.append(quick)
    instance = with_partition(asked)
    candidate, _ = quick_schedule(instance.work, seeds=2)
    found = Portfolio(best=candidate, stopping=Stopping(seconds=1, max_evaluations=300)).run()
    assert found.makespan_us < 0.9 * candidate.makespan_us
    assert not instance.faults(found)


def test_a_search_that_is_proven_optimal_stops() -> None:
    instance = with_partition(request(job(ranks=1), documents(3)))
    candidate, _ = quick_schedule(instance.work, seeds=1)
    stopping = Stopping(seconds=1, max_evaluations=10**9)
    search = Portfolio(best=candidate, stopping=stopping)
    assert search.run().makespan_us == search.bound_us
    assert stopping.evaluations < 1000


def test_the_budget_ends_the_search() -> None:
    instance = with_partition(request(job(rank_speed=[1.0, 0.5, 1.25, 0.8]), documents(20)))
    candidate, _ = quick_schedule(instance.work, seeds=1)
    stopping = Stopping(seconds=1, max_evaluations=500)
    search = Portfolio(best=candidate, stopping=stopping)
    found = search.run()
    assert found.makespan_us > search.bound_us
    assert 500 <= stopping.evaluations <= 500 + 2 * portfolio_module.MOVES


def test_no_time_left_gives_the_start() -> None:
    instance = with_partition(request(job(), documents(4)))
    candidate, _ = quick_schedule(instance.work, seeds=1)
    times = iter([0.0, *[1e9] * 10_000])
    search = Portfolio(best=candidate, stopping=Stopping(seconds=1, clock=lambda: next(times)))
    assert search.run().makespan_us == candidate.makespan_us


@pytest.mark.parametrize("memory_bytes", [(), (1 << 40,)], ids=["unlimited", "ample"])
def test_cp_sat_proves_what_the_bound_alone_does_not(memory_bytes: tuple[int, ...]) -> None:
    """Two ranks, three microbatches, one of them longer: the bound by machines is loose, the search closes it."""
    spec = job(ranks=2, memory_bytes=memory_bytes)
    instance = with_partition(request(spec, [[{"language": [64]}], [{"language": [320]}], [{"language": [96]}]]))
    candidate, _ = quick_schedule(instance.work, seeds=1)
    search = Portfolio(best=candidate, stopping=Stopping(seconds=1, max_evaluations=2000))
    found = search.run()
    assert lower_bound_us(instance.work) < search.bound_us <= found.makespan_us


def test_a_proof_takes_no_more_than_the_evaluations_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT's effort counts as evaluations: a few of them buy no seconds of proof."""
    efforts: list[float] = []

    def solve(model: WindowModel, *, seconds: float, effort: float, seed: int) -> ExactResult:
        efforts.append(effort)
        return ExactResult(start=None, bound_us=0)

    monkeypatch.setattr(WindowModel, "solve", solve)
    instance = with_partition(request(job(rank_speed=[1.0, 0.5, 1.25, 0.8]), documents(3)))
    candidate, _ = quick_schedule(instance.work, seeds=1)
    for evaluations in (100, 10**4):
        stopping = Stopping(seconds=1, max_evaluations=evaluations)
        Portfolio(best=candidate, stopping=stopping).run()
        assert evaluations * 0.2 < stopping.evaluations <= evaluations + 2 * portfolio_module.MOVES
    assert 0 < efforts[0] < efforts[1] == portfolio_module.EXACT_EFFORT


@pytest.mark.parametrize("name", ["split_backward", "split_backward_in_little_memory", "memory_that_differs_by_rank"])
def test_a_bound_from_one_choice_of_ways_is_not_claimed_for_all(name: str) -> None:
    """CP-SAT orders tasks of fixed ways: where other ways could be quicker, its bound is not the plan's."""
    instance = with_partition(FITTING[name]())
    candidate, _ = quick_schedule(instance.work, seeds=2)
    search = Portfolio(best=candidate, stopping=Stopping(seconds=1, max_evaluations=300))
    found = search.run()
    proven = improved_bound_us(instance.work, incumbent_us=found.makespan_us)
    assert lower_bound_us(instance.work) <= search.bound_us <= proven * (1 + 2 * PRECISION)
