"""Candidate ways: none beats another, the quickest and the leanest are there, and there are few of them."""

from __future__ import annotations

from cases import documents, job, request
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from exhaustive import ways_of
from hypothesis import HealthCheck, given, settings
from random_work import Instance, instances

from planner_service.search.ways import MOST_WAYS, CandidateWays, some_are_quicker

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances())
def test_few_ways_cover_all_layers_the_leanest_and_the_quickest_among_them(instance: Instance) -> None:
    work, candidates = instance.work, CandidateWays(instance.work)
    for cell in range(work.num_cells):
        ways = candidates.of(cell)
        assert len(ways) <= MOST_WAYS
        assert all(not way or sum(count for _, count in way) == work.cell_chunk[cell].num_layers for way in ways)
        if not work.has_backward(cell) or work.cell_chunk[cell].num_layers > 6:
            continue
        every = [work.cost(cell, way) for way in ways_of(work, cell)]
        chosen = [work.cost(cell, way) for way in ways]
        assert min(c.kept_bytes for c in chosen) == min(c.kept_bytes for c in every)
        slower = min(c.forward_us + c.backward_us for c in chosen) - min(c.forward_us + c.backward_us for c in every)
        assert slower <= 2  # rounded up forward and backward each


def test_strategies_are_mixed() -> None:
    """Storing, recomputing and offloading, each better than the others in one respect: layers of all three kinds."""
    asked = request(job(ranks=1), documents(1))
    for module in asked.job.model.modules:
        for run in module.layers:
            store = run.cost.points
            strategy = pb.MemoryStrategy(name="offload", points=store)
            for point in strategy.points:
                point.forward_us *= 1.1
                point.activation_bytes //= 2
            run.cost.strategies.append(strategy)
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    ways = CandidateWays(instance.work).of(0)
    assert () in ways
    assert {name for way in ways for name, _ in way} == {"store", "recompute", "offload"}
    costs = [instance.work.cost(0, way) for way in ways]
    by_time = sorted(costs, key=lambda cost: cost.forward_us + cost.backward_us)
    assert [c.kept_bytes for c in by_time] == sorted((c.kept_bytes for c in costs), reverse=True)


@SLOW
@given(instances())
def test_some_are_quicker_where_storing_is_not_the_quickest_way(instance: Instance) -> None:
    work = instance.work
    cells = [cell for cell in range(work.num_cells) if work.has_backward(cell)]
    costs = [(work.cost(cell, CandidateWays(work).of(cell)[0]), work.cost(cell, ())) for cell in cells]
    if any(a.forward_us + a.backward_us < b.forward_us + b.backward_us for a, b in costs):
        assert some_are_quicker(work)


def test_recomputing_is_not_quicker_than_storing() -> None:
    asked = request(job(), documents(3))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    assert any(run.cost.strategies for module in asked.job.model.modules for run in module.layers)
    assert not some_are_quicker(Instance.of(asked).work)
