"""The task graph as arrays says what the stage tasks say: costs, edges both ways, needs and room."""

from __future__ import annotations

import numpy as np
from dip.fallback import leanest_ways
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances

from planner_service.domain.graph import fixed_graph, task_graph

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.booleans())
def test_arrays_hold_what_the_work_says(instance: Instance, split: bool) -> None:
    work = instance.work
    n = work.num_cells
    graph = task_graph(work, split=split)
    assert (graph.num_cells, graph.num_ranks) == (n, work.job.ranks)
    for c in range(n):
        cost = work.cost(c)
        assert graph.rank[c] == work.cell_chunk[c].rank
        assert graph.group[c] == work.groups[work.cell_part[c]]
        assert graph.duration[c] == cost.forward_us
        assert graph.has_backward[c] == work.has_backward(c)
        if not work.has_backward(c):
            assert (graph.duration[n + c], graph.duration[2 * n + c], graph.kept[c], graph.lean_kept[c]) == (0, 0, 0, 0)
        elif split and not work.module_of(c).frozen:
            halves = graph.duration[n + c], graph.duration[2 * n + c]
            assert halves == (cost.backward_input_us, cost.backward_weight_us)
            assert graph.whole[c] == cost.backward_us
            assert (graph.kept[c], graph.between[c]) == (cost.kept_bytes, cost.split_kept_bytes)
        else:
            assert (graph.duration[n + c], graph.duration[2 * n + c]) == (cost.backward_us, 0)
            assert graph.whole[c] == cost.backward_us
            assert graph.kept[c] == graph.between[c] == cost.kept_bytes


@SLOW
@given(instances())
def test_edges_lead_there_and_gradients_back(instance: Instance) -> None:
    work, graph = instance.work, task_graph(instance.work)
    there = {
        (c, int(graph.consumer[i]), int(graph.hop[i]))
        for c in range(graph.num_cells)
        for i in range(graph.first[c], graph.first[c + 1])
    }
    back = {
        (int(graph.producer[i]), c, int(graph.back_hop[i]))
        for c in range(graph.num_cells)
        for i in range(graph.back_first[c], graph.back_first[c + 1])
    }
    assert there == {(e.producer, e.consumer, e.hop_us) for e in work.edges}
    assert back == {(e.producer, e.consumer, e.hop_us) for e in work.edges if work.has_backward(e.producer)}
    assert graph.inputs.sum() == len(there)
    assert graph.gradients.sum() == len(back)
    for producer, consumer, _ in back:
        assert graph.gradients[producer] >= 1 <= graph.inputs[consumer]


@SLOW
@given(instances())
def test_room_is_what_limits_leave_and_groups_fit_it_lean(instance: Instance) -> None:
    work, graph = instance.work, instance.graph()
    for r, (limit, static) in enumerate(zip(work.job.memory_bytes, work.static_bytes, strict=True)):
        assert graph.room[r] == (limit - static if limit else -1)
        if limit:
            assert (graph.need[:, r] <= graph.room[r]).all()


@SLOW
@given(instances())
def test_with_ways_decided_nothing_is_left_to_the_scheduler(instance: Instance) -> None:
    work, graph = instance.work, task_graph(instance.work)
    ways = leanest_ways(work)
    fixed = fixed_graph(work, graph, ways, np.zeros(work.num_cells, dtype=np.bool_))
    costs = [work.cost(c, way) for c, way in enumerate(ways)]
    n = work.num_cells
    assert fixed.duration[:n].tolist() == [cost.forward_us for cost in costs]
    assert [b for b, has in zip(fixed.duration[n : 2 * n], graph.has_backward, strict=True) if has] == [
        cost.backward_us for c, cost in enumerate(costs) if work.has_backward(c)
    ]
    assert not fixed.duration[2 * n :].any()
    assert np.array_equal(fixed.lean_duration, fixed.duration)
    assert np.array_equal(fixed.lean_kept, fixed.kept)
    assert fixed.need.sum() == fixed.kept.sum()
