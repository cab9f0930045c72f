"""Annealing: keeps the best it has seen, changes nothing that it was given, and repeats itself with a seed."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.annealing import Walk, anneal
from planner_service.search.decoders import Guide, decode

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.integers(0, 1000), st.sampled_from([0.0, 1e3]))
def test_the_best_never_gets_worse_and_is_what_it_decodes_to(instance: Instance, seed: int, heat: float) -> None:
    graph = instance.graph()
    guide = random_guide(graph, seed)
    found = decode(graph, guide)
    walk = Walk(guide.priority, found.makespan_us, guide.priority, found.makespan_us)
    before = guide.priority.copy()
    part = np.array(instance.work.cell_part, dtype=np.int64)
    after = anneal(graph, walk, guide, part, 20, heat, 0.5, seed)
    assert np.array_equal(guide.priority, before)
    assert after.best_us <= found.makespan_us
    assert after.best_us <= after.makespan_us
    again = anneal(graph, walk, guide, part, 20, heat, 0.5, seed)
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(after, again, strict=True))
    if after.best_us < found.makespan_us:
        best = decode(graph, Guide(after.best_priority, guide.position, guide.rule, guide.reserve))
        assert best.makespan_us < found.makespan_us
    if not heat:
        assert after.makespan_us <= found.makespan_us
