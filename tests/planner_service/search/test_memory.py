"""Less recompute where an order leaves room: valid, never longer, and nothing left that would still fit."""

from __future__ import annotations

from dip.fallback import activation_room, leanest_ways
from dip.lowering import peak_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.memory import num_lean, restore
from planner_service.search.orders import orders_of
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.integers(0, 1000))
def test_layers_store_again_within_the_limits(instance: Instance, seed: int) -> None:
    work, graph = instance.work, instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    room = activation_room(work.job, work.chunks)
    orders = orders_of(schedule.graph, schedule.start)
    ways = restore(work, orders, schedule.ways, room)
    assert not instance.faults(schedule.rewayed(ways, "less recompute"))
    assert all(num_lean(new) <= num_lean(old) for new, old in zip(ways, schedule.ways, strict=True))


@SLOW
@given(instances(), st.integers(0, 1000))
def test_no_cell_that_could_store_is_left_lean(instance: Instance, seed: int) -> None:
    """With all layers lean at first; a cell that still is would overrun its rank with one lean layer less."""
    work, graph = instance.work, instance.graph()
    decoded = instance.candidate(graph, random_guide(graph, seed)).decoded
    halves = decoded.start[2 * work.num_cells :] >= 0
    lean = [() if split else way for way, split in zip(leanest_ways(work), halves, strict=True)]
    orders = orders_of(graph, decoded.start)
    ways = restore(work, orders, lean, activation_room(work.job, work.chunks))
    limits = work.job.memory_bytes
    for cell, way in enumerate(ways):
        rank = work.cell_chunk[cell].rank
        if not num_lean(way) or not limits[rank]:
            continue
        tried = list(ways)
        tried[cell] = work.lean_ways.way(work.cell_kind[cell], num_lean(way) - 1)
        assert peak_bytes(work, orders, tried)[rank] > limits[rank]
