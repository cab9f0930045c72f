"""Ways that keep less memory: the leanest strategy of each layer, the first layers first."""

from __future__ import annotations

import pytest
from cases import job
from dip.job import Job
from dip.memory import LeanWays
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Chunk, Kind


def strategy(name: str, kept: int, forward_us: float) -> pb.MemoryStrategy:
    return pb.MemoryStrategy(name=name, points=[pb.CostPoint(units=1, forward_us=forward_us, activation_bytes=kept)])


def run(count: int, *others: pb.MemoryStrategy) -> pb.LayerRun:
    store = strategy("store", 10, 1.0)
    return pb.LayerRun(count=count, cost=pb.LayerCost(points=store.points, strategies=others))


RUNS = [
    run(2, strategy("recompute", 2, 3.0), strategy("offload", 1, 9.0)),  # the leaner one, whatever it takes
    run(1),  # nothing to save
    run(2, strategy("recompute", 3, 2.0), strategy("mine", 3, 1.5)),  # of equals the quicker
    run(1, strategy("worse", 11, 0.1)),  # keeps more: not lean
]


def ways(first_layer: int, num_layers: int) -> LeanWays:
    made = Job.from_spec(job([pb.Module(name="m", layers=RUNS)], ranks=1))
    chunk = Chunk(module=0, index=0, rank=0, first_layer=first_layer, num_layers=num_layers)
    return LeanWays(made, [Kind(chunk=chunk, units=4, squares=16)])


def test_each_run_has_its_leanest_strategy() -> None:
    assert ways(0, 6).leanest(0) == (("offload", 2), ("store", 1), ("mine", 2), ("store", 1))
    assert ways(1, 3).leanest(0) == (("offload", 1), ("store", 1), ("mine", 1))
    assert (ways(0, 6).most(0), ways(1, 3).most(0), ways(2, 1).most(0)) == (4, 2, 0)


@pytest.mark.parametrize(
    ("num_lean", "way"),
    [
        (0, ()),
        (1, (("offload", 1), ("store", 5))),
        (2, (("offload", 2), ("store", 4))),
        (3, (("offload", 2), ("store", 1), ("mine", 1), ("store", 2))),
        (4, (("offload", 2), ("store", 1), ("mine", 2), ("store", 1))),
    ],
)
def test_the_first_layers_are_lean_first(num_lean: int, way: tuple[tuple[str, int], ...]) -> None:
    assert ways(0, 6).way(0, num_lean) == way


def test_a_strategy_that_keeps_as_much_in_less_time_is_taken_too() -> None:
    made = Job.from_spec(job([pb.Module(name="m", layers=[run(2, strategy("faster", 10, 0.5))])], ranks=1))
    chunk = Chunk(module=0, index=0, rank=0, first_layer=0, num_layers=2)
    assert LeanWays(made, [Kind(chunk=chunk, units=1, squares=1)]).way(0, 2) == (("faster", 2),)
