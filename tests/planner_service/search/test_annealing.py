"""Annealing: keeps the best it has seen, changes nothing that it was given, and repeats itself with a seed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.annealing import Moves, Walk, anneal
from planner_service.search.decoders import UNIFIED, decode
from planner_service.search.walks import Walks

if TYPE_CHECKING:
    from planner_service.search.decoders import Decoded

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def moves(instance: Instance, heat: float) -> Moves:
    part = np.array(instance.work.cell_part, dtype=np.int64)
    return Moves(part, part % 3, part % 2, 20, heat, 0.5, 0.3)


@SLOW
@given(instances(), st.integers(0, 1000), st.sampled_from([0.0, 1e3]))
def test_the_best_never_gets_worse_and_is_what_it_decodes_to(instance: Instance, seed: int, heat: float) -> None:
    graph = instance.graph()
    guide = random_guide(graph, seed)
    found = decode(graph, guide)
    start = guide._replace(priority=found.start[: 2 * graph.num_cells].astype(float), rule=UNIFIED)
    walk = Walk(start, found.makespan_us, start, found)
    before = [array.copy() for array in (start.priority, start.position, start.thrift)]
    after = anneal(graph, walk, moves(instance, heat), seed)
    assert all(map(np.array_equal, before, (start.priority, start.position, start.thrift)))
    assert after.best.makespan_us <= min(found.makespan_us, after.makespan_us)
    assert same(decode(graph, after.best_guide), after.best)
    assert decode(graph, after.guide).makespan_us == after.makespan_us
    again = anneal(graph, walk, moves(instance, heat), seed)
    assert same(again.best, after.best)
    assert np.array_equal(again.guide.priority, after.guide.priority)
    if not heat:
        assert after.makespan_us <= found.makespan_us


def same(one: Decoded, other: Decoded) -> bool:
    return one.makespan_us == other.makespan_us and np.array_equal(one.start, other.start)


@SLOW
@given(instances(), st.integers(0, 1000))
def test_rounds_find_the_same_on_one_core_and_on_three(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    starts = sorted(
        ((decode(graph, guide), guide) for guide in (random_guide(graph, seed + i) for i in range(4))),
        key=lambda pair: pair[0].makespan_us,
    )
    best = []
    for cores in (1, 3):
        with ThreadPoolExecutor(cores) as executor:
            walks = Walks(
                instance.work,
                graph,
                starts,
                cores=executor,
                limited=True,
                random=np.random.default_rng(seed),
                moves=10,
            )
            taken = [walks.round(progress) for progress in (0.0, 0.5, 1.0)]
        assert taken == [40, 40, 20]
        best.append(walks.best[0])
    assert same(*best)
    assert best[0].makespan_us <= starts[0][0].makespan_us
